/* Digests of patterns: two that differ share one with probability 2^-64. A large pattern is as long to read as a small product takes on the
   device, so several threads do it. */
#define _GNU_SOURCE /* sched_getaffinity() */
#include "memory/memory.h"
#include <pthread.h>
#include <sched.h>

enum {
  DIGEST_LANES   = 8, /* that keep the multipliers of a core busy */
  DIGEST_THREADS = 4  /* as quick as an upload of the pattern, which takes cores too */
};
static const size_t digest_piece = (size_t)1 << 20; /* bytes; the digest does not depend on the number of threads */
static const size_t digest_here  = (size_t)1 << 18; /* bytes that take about as long as to start a thread */

typedef struct {
  size_t                   first; /* does pieces first, first + nparts, ... */
  struct _GpufmtDigestion *of;
} DigestPart;

struct _GpufmtDigestion {
  const char *arrays[2];
  size_t      bytes[2], npieces[2]; /* of each array */
  uint64_t   *digests;              /* of all pieces */
  size_t      nparts;
  DigestPart  parts[DIGEST_THREADS];
  pthread_t   thread; /* that does the first part, and starts the threads of the others */
  PetscBool   joinable;
};

static int begun = 0;

/* how many digests were begun; for tests */
PETSC_EXTERN int GpufmtDigestCount(void)
{
  return begun;
}

static inline uint64_t Step(uint64_t digest, uint64_t word)
{
  digest ^= word;
  return (digest << 29 | digest >> 35) * UINT64_C(0x9E3779B97F4A7C15);
}

static uint64_t PieceDigest(const char *p, size_t bytes)
{
  uint64_t    lanes[DIGEST_LANES] = {0}, words[DIGEST_LANES], digest = (uint64_t)bytes;
  const char *end = p + bytes;

  for (; (size_t)(end - p) >= sizeof(words); p += sizeof(words)) {
    memcpy(words, p, sizeof(words));
    for (int l = 0; l < DIGEST_LANES; l++) lanes[l] = Step(lanes[l], words[l]);
  }
  memset(words, 0, sizeof(words));
  memcpy(words, p, (size_t)(end - p));
  for (int l = 0; l < DIGEST_LANES; l++) digest = Step(Step(digest, words[l]), lanes[l]);
  return digest ^ digest >> 32;
}

static void *DigestPartRun(void *argument)
{
  const DigestPart                    *part = (const DigestPart *)argument;
  const struct _GpufmtDigestion *const of   = part->of;

  for (size_t k = part->first; k < of->npieces[0] + of->npieces[1]; k += of->nparts) {
    const int    second = k >= of->npieces[0];
    const size_t offset = (second ? k - of->npieces[0] : k) * digest_piece, rest = of->bytes[second] - offset;

    of->digests[k] = PieceDigest(of->arrays[second] + offset, rest < digest_piece ? rest : digest_piece);
  }
  return NULL;
}

/* all parts; what finds no thread is done here */
static void *DigestRun(void *argument)
{
  GpufmtDigestion d = (GpufmtDigestion)argument;
  pthread_t       threads[DIGEST_THREADS];
  size_t          nthreads = 1;

  for (size_t k = 0; k < d->nparts; k++) d->parts[k] = (DigestPart){.first = k, .of = d};
  while (nthreads < d->nparts && !GpufmtThreadCreate(&threads[nthreads], NULL, DigestPartRun, &d->parts[nthreads])) nthreads++;
  (void)DigestPartRun(&d->parts[0]);
  for (size_t k = nthreads; k < d->nparts; k++) (void)DigestPartRun(&d->parts[k]);
  for (size_t k = 1; k < nthreads; k++) (void)pthread_join(threads[k], NULL);
  return NULL;
}

static size_t DigestThreads(size_t npieces)
{
  cpu_set_t set;
  size_t    n = DIGEST_THREADS;

  if (sched_getaffinity(0, sizeof(set), &set)) return 1;
  if ((size_t)CPU_COUNT(&set) < n) n = (size_t)CPU_COUNT(&set);
  return npieces / 2 < n ? npieces / 2 + 1 : n;
}

/* The digest of two arrays, one after the other, which must stay as they are until GpufmtDigestEnd(). Threads make it, of which this one
   starts a single one; what would take as long as that, or finds no thread, is made here. */
PetscErrorCode GpufmtDigestBegin(const void *const arrays[2], const size_t bytes[2], GpufmtDigestion *out)
{
  PetscErrorCode  ierr;
  GpufmtDigestion d;

  PetscFunctionBegin;
  begun++;
  PetscCall(PetscNew(&d));
  for (int a = 0; a < 2; a++) {
    d->arrays[a]  = (const char *)arrays[a];
    d->bytes[a]   = bytes[a];
    d->npieces[a] = (bytes[a] + digest_piece - 1) / digest_piece;
  }
  ierr = PetscMalloc1(d->npieces[0] + d->npieces[1], &d->digests);
  if (ierr) PetscCall(PetscFree(d));
  PetscCall(ierr);
  d->nparts   = bytes[0] + bytes[1] > digest_here ? DigestThreads(d->npieces[0] + d->npieces[1]) : 1;
  d->joinable = (PetscBool)(bytes[0] + bytes[1] > digest_here && !GpufmtThreadCreate(&d->thread, NULL, DigestRun, d));
  if (!d->joinable) (void)DigestRun(d);
  *out = d;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* goes on from the digest of what came before */
PetscErrorCode GpufmtDigestEnd(GpufmtDigestion *out, uint64_t *digest)
{
  GpufmtDigestion d = *out;

  PetscFunctionBegin;
  if (d->joinable) (void)pthread_join(d->thread, NULL);
  for (size_t k = 0; k < d->npieces[0] + d->npieces[1]; k++) *digest = Step(*digest, d->digests[k]);
  PetscCall(PetscFree(d->digests));
  PetscCall(PetscFree(*out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the same of one array at once */
PetscErrorCode GpufmtDigest(const void *array, size_t bytes, uint64_t *digest)
{
  GpufmtDigestion d;

  PetscFunctionBegin;
  PetscCall(GpufmtDigestBegin((const void *const[]){array, NULL}, (const size_t[]){bytes, 0}, &d));
  PetscCall(GpufmtDigestEnd(&d, digest));
  PetscFunctionReturn(PETSC_SUCCESS);
}
