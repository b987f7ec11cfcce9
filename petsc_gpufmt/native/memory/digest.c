/* Digests of patterns: two that differ share one with probability 2^-64. A large pattern is as long to read as a small product takes on the
   device, so several threads do it. */
#define _GNU_SOURCE /* sched_getaffinity() */
#include "memory/memory.h"
#include <pthread.h>
#include <sched.h>

enum {
  DIGEST_LANES   = 8, /* that keep the multipliers of a core busy */
  DIGEST_THREADS = 8
};
static const size_t digest_piece = (size_t)1 << 20; /* bytes; the digest does not depend on the number of threads */

typedef struct {
  pthread_t   thread;
  PetscBool   joinable;
  const char *array;
  size_t      bytes, first, step; /* does pieces first, first + step, ... */
  uint64_t   *digests;            /* of all pieces */
} DigestPart;

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
  const DigestPart *part = (const DigestPart *)argument;

  for (size_t k = part->first; k * digest_piece < part->bytes; k += part->step) {
    const size_t offset = k * digest_piece, rest = part->bytes - offset;

    part->digests[k] = PieceDigest(part->array + offset, rest < digest_piece ? rest : digest_piece);
  }
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

/* goes on from the digest of what came before */
PetscErrorCode GpufmtDigest(const void *array, size_t bytes, uint64_t *digest)
{
  const size_t npieces = (bytes + digest_piece - 1) / digest_piece, nparts = DigestThreads(npieces);
  DigestPart   parts[DIGEST_THREADS];
  uint64_t    *digests;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(npieces, &digests));
  for (size_t k = nparts; k-- > 0;) { /* the first is this thread's, and so are those for which there is no thread */
    parts[k]          = (DigestPart){.array = (const char *)array, .bytes = bytes, .first = k, .step = nparts, .digests = digests};
    parts[k].joinable = (PetscBool)(k > 0 && !pthread_create(&parts[k].thread, NULL, DigestPartRun, &parts[k]));
    if (!parts[k].joinable) (void)DigestPartRun(&parts[k]);
  }
  for (size_t k = 0; k < nparts; k++)
    if (parts[k].joinable) (void)pthread_join(parts[k].thread, NULL);
  for (size_t k = 0; k < npieces; k++) *digest = Step(*digest, digests[k]);
  PetscCall(PetscFree(digests));
  PetscFunctionReturn(PETSC_SUCCESS);
}
