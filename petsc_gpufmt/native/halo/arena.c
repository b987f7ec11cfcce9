/* Arenas: memory of each rank that all ranks of a communicator reach by loads and stores. On the host it is in shared windows of MPI, on devices what
   ranks map of each other. Where that cannot be, an arena says why, and is asked no more.

   An arena grows by chunks, by all ranks together; pieces of chunks are for exchanges, and each rank gives out its own. Chunks stay until PETSc ends:
   a matrix may go on one rank before it goes on another. Every chunk begins with a word that is not 0 once an exchange of any rank has failed (that of
   the first chunk counts), and with the number of its rank. */
#include "halo/halo.h"
#include <stdatomic.h>

static const size_t smallest_chunk[GPUFMT_NUM_BACKENDS] = {(size_t)1 << 20, (size_t)1 << 25};

enum { CHUNK_HEAD = GPUFMT_ARENA_ALIGNMENT, REASON_LENGTH = 128 };

typedef struct Piece {
  size_t        begin, end;
  struct Piece *next; /* ascending */
} Piece;

typedef struct Chunk {
  size_t        bytes;
  size_t        given; /* the end of all pieces so far: what lies before may have been used */
  char        **base;  /* [nranks] where this rank reaches it */
  MPI_Win       window;
  Piece        *pieces;
  struct Chunk *next;
} Chunk;

struct _GpufmtArena {
  MPI_Comm             comm;
  PetscMPIInt          rank, nranks;
  int                  backend;
  char                 reason[REASON_LENGTH]; /* why it cannot be; empty: it is there */
  Chunk               *chunks;                /* in the order in which they were made */
  _Atomic uint64_t    *report;                /* the host of this rank sees here that an exchange has failed */
  GpufmtBeside         beside;                /* the stream of exchanges, on a device */
  void               **failures;              /* [nranks] the words by which ranks see it where they wait */
  struct _GpufmtArena *next;
};

static GpufmtArena arenas     = NULL; /* in the order in which they were made, which ranks of several communicators agree on */
static int64_t     generation = 1;    /* grows when PETSc ends, and with it all arenas */

/* The arena has a reason on all ranks if it has one on any; and what failed on one, `own`, fails on all. Collective. */
static PetscErrorCode AgreeOnReason(GpufmtArena arena, PetscErrorCode own)
{
  int has_reason = arena->reason[0] != 0;

  PetscFunctionBegin;
  PetscCall(GpufmtAgreeOn(arena->comm, "The set-up of a halo exchange", own, 1, &has_reason));
  if (has_reason && !arena->reason[0]) PetscCall(PetscStrncpy(arena->reason, "another rank cannot map memory", REASON_LENGTH));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- chunks ---- */

static PetscErrorCode MakeOnHost(GpufmtArena arena, Chunk *chunk)
{
  void *base;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Win_allocate_shared((MPI_Aint)chunk->bytes, 1, MPI_INFO_NULL, arena->comm, &base, &chunk->window));
  for (PetscMPIInt r = 0; r < arena->nranks; r++) {
    MPI_Aint bytes;
    int      unit;

    PetscCallMPI(MPI_Win_shared_query(chunk->window, r, &bytes, &unit, &chunk->base[r]));
  }
  PetscCall(PetscMemzero(chunk->base[arena->rank], chunk->bytes));
  PetscCallMPI(MPI_Barrier(arena->comm)); /* zeros before anything is written */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* zeros, and the number of this rank */
static PetscErrorCode Fill(GpufmtArena arena, Chunk *chunk)
{
  const uint64_t number = (uint64_t)arena->rank + 1;
  char *const    own    = chunk->base[arena->rank];
  void          *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceClear(own, chunk->bytes, stream));
  PetscCall(GpufmtDeviceUpload(own + sizeof(number), &number, sizeof(number), stream));
  PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! others read it */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether what was mapped of a rank is its memory */
static PetscErrorCode Check(GpufmtArena arena, const char *base, PetscMPIInt r)
{
  uint64_t number = 0;
  void    *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceDownload(&number, base + sizeof(number), sizeof(number), stream));
  if (number != (uint64_t)r + 1) PetscCall(PetscStrncpy(arena->reason, "mapped memory of another GPU reads wrong", REASON_LENGTH));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Without(GpufmtArena arena, const char why[])
{
  PetscFunctionBegin;
  if (why && !arena->reason[0]) PetscCall(PetscStrncpy(arena->reason, why, REASON_LENGTH));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the memory of this rank, and how others open it */
static PetscErrorCode Export(GpufmtArena arena, Chunk *chunk, char handle[GPUFMT_HANDLE_BYTES])
{
  void *address;

  PetscFunctionBegin;
  PetscCall(Without(arena, GpufmtSharedMake(chunk->bytes, &address, handle)));
  chunk->base[arena->rank] = (char *)address;
  if (address) PetscCall(Fill(arena, chunk));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the memory of others */
static PetscErrorCode Import(GpufmtArena arena, Chunk *chunk, const char handles[])
{
  void *address;

  PetscFunctionBegin;
  for (PetscMPIInt r = 0; r < arena->nranks && !arena->reason[0]; r++) {
    if (r == arena->rank) continue;
    PetscCall(Without(arena, GpufmtSharedOpen(&handles[(size_t)r * GPUFMT_HANDLE_BYTES], &address)));
    chunk->base[r] = (char *)address;
    if (address) PetscCall(Check(arena, chunk->base[r], r));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeOnDevice(GpufmtArena arena, Chunk *chunk)
{
  char           own[GPUFMT_HANDLE_BYTES] = {0}, *handles = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = PetscMalloc1((size_t)arena->nranks * GPUFMT_HANDLE_BYTES, &handles);
  if (!ierr) ierr = Export(arena, chunk, own);
  ierr = AgreeOnReason(arena, ierr);
  if (!ierr && !arena->reason[0]) {
    PetscCallMPI(MPI_Allgather(own, GPUFMT_HANDLE_BYTES, MPI_BYTE, handles, GPUFMT_HANDLE_BYTES, MPI_BYTE, arena->comm));
    ierr = AgreeOnReason(arena, Import(arena, chunk, handles));
  }
  PetscCall(PetscFree(handles));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* memory of this rank alone */
static PetscErrorCode ChunkNew(GpufmtArena arena, size_t bytes, Chunk **out)
{
  Chunk *chunk;

  PetscFunctionBegin;
  PetscCall(PetscNew(out));
  chunk         = *out;
  chunk->window = MPI_WIN_NULL;
  chunk->bytes  = smallest_chunk[arena->backend];
  while (chunk->bytes < bytes + CHUNK_HEAD) chunk->bytes *= 2;
  PetscCall(PetscCalloc1(arena->nranks, &chunk->base));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ChunkForget(Chunk *chunk)
{
  PetscFunctionBegin;
  if (!chunk) PetscFunctionReturn(PETSC_SUCCESS);
  while (chunk->pieces) {
    Piece *piece = chunk->pieces;

    chunk->pieces = piece->next;
    PetscCall(PetscFree(piece));
  }
  PetscCall(PetscFree(chunk->base));
  PetscCall(PetscFree(chunk));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* collective */
static PetscErrorCode ChunkFree(GpufmtArena arena, Chunk *chunk)
{
  PetscFunctionBegin;
  if (arena->backend == GPUFMT_BACKEND_HOST) {
    if (chunk->window != MPI_WIN_NULL) PetscCallMPI(MPI_Win_free(&chunk->window));
  } else {
    for (PetscMPIInt r = 0; r < arena->nranks; r++)
      if (r != arena->rank) GpufmtSharedClose(chunk->base[r]);
    PetscCallMPI(MPI_Barrier(arena->comm)); /* memory that others have mapped is not freed */
    GpufmtSharedFree(chunk->base[arena->rank]);
  }
  PetscCall(ChunkForget(chunk));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Room for a piece of so many bytes on every rank, or a reason on all of them. What fails on one fails on all. Collective. */
PetscErrorCode GpufmtArenaGrow(GpufmtArena arena, size_t bytes)
{
  Chunk         *chunk = NULL, **last = &arena->chunks;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = AgreeOnReason(arena, ChunkNew(arena, bytes, &chunk));
  if (ierr) PetscCall(ChunkForget(chunk));
  PetscCall(ierr);
  ierr = arena->backend == GPUFMT_BACKEND_HOST ? MakeOnHost(arena, chunk) : MakeOnDevice(arena, chunk);
  if (ierr || arena->reason[0]) {
    PetscCall(ChunkFree(arena, chunk));
    PetscCall(ierr);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  while (*last) last = &(*last)->next;
  *last = chunk;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- arenas ---- */

/* which device this rank has, and room for those of all */
static PetscErrorCode IdentityFind(GpufmtArena arena, char own[GPUFMT_IDENTITY_BYTES], char **all)
{
  void *stream;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)arena->nranks * GPUFMT_IDENTITY_BYTES, all));
  PetscCall(GpufmtDeviceGet(NULL, &stream)); /* PETSc begins with the device, if it has not so far */
  PetscCall(GpufmtDeviceIdentity(own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DevicesCompare(GpufmtArena arena)
{
  char           own[GPUFMT_IDENTITY_BYTES], *all = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = AgreeOnReason(arena, IdentityFind(arena, own, &all));
  if (!ierr) PetscCallMPI(MPI_Allgather(own, GPUFMT_IDENTITY_BYTES, MPI_BYTE, all, GPUFMT_IDENTITY_BYTES, MPI_BYTE, arena->comm));
  for (PetscMPIInt r = 0; r < arena->nranks && !ierr; r++)
    for (PetscMPIInt s = 0; s < r; s++)
      if (!memcmp(&all[(size_t)r * GPUFMT_IDENTITY_BYTES], &all[(size_t)s * GPUFMT_IDENTITY_BYTES], GPUFMT_IDENTITY_BYTES))
        PetscCall(Without(arena, "ranks share a GPU"));
  PetscCall(PetscFree(all));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Why ranks cannot reach memory of each other, as far as that is known before it is tried. What failed on one, `own`, fails on all. Collective. */
static PetscErrorCode ReasonFind(GpufmtArena arena, PetscErrorCode own)
{
  MPI_Comm    host;
  PetscMPIInt nranks;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_split_type(arena->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  PetscCallMPI(MPI_Comm_size(host, &nranks));
  PetscCallMPI(MPI_Comm_free(&host));
  if (nranks < arena->nranks) PetscCall(Without(arena, "the ranks are on several hosts"));
  PetscCall(AgreeOnReason(arena, own));
  if (!arena->reason[0] && arena->backend == GPUFMT_BACKEND_CUDA) PetscCall(DevicesCompare(arena));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the device writes to pinned memory of the host */
static PetscErrorCode ReportMake(GpufmtArena arena)
{
  void *report;

  PetscFunctionBegin;
  if (arena->backend == GPUFMT_BACKEND_HOST) PetscCall(PetscMalloc(sizeof(*arena->report), &report));
  else PetscCall(GpufmtPinnedTake(sizeof(*arena->report), &report));
  arena->report = (_Atomic uint64_t *)report;
  atomic_store(arena->report, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ReportFree(GpufmtArena arena)
{
  void *report = (void *)arena->report;

  PetscFunctionBegin;
  if (arena->backend == GPUFMT_BACKEND_HOST) PetscCall(PetscFree(report));
  else PetscCall(GpufmtPinnedReturn(&report));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what this rank has for all exchanges */
static PetscErrorCode Equip(GpufmtArena arena)
{
  PetscFunctionBegin;
  PetscCall(ReportMake(arena));
  if (arena->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtBesideCreate(&arena->beside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Build(GpufmtArena arena, PetscErrorCode own)
{
  PetscFunctionBegin;
  PetscCall(ReasonFind(arena, own));
  if (!arena->reason[0]) PetscCall(AgreeOnReason(arena, Equip(arena)));
  if (!arena->reason[0]) PetscCall(GpufmtArenaGrow(arena, 0));
  for (PetscMPIInt r = 0; r < arena->nranks && !arena->reason[0]; r++) arena->failures[r] = arena->chunks->base[r];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what the arena has; collective */
static PetscErrorCode ArenaClear(GpufmtArena arena)
{
  PetscFunctionBegin;
  while (arena->chunks) {
    Chunk *chunk = arena->chunks;

    arena->chunks = chunk->next;
    PetscCall(ChunkFree(arena, chunk));
  }
  PetscCall(ReportFree(arena));
  PetscCall(GpufmtBesideDestroy(&arena->beside));
  PetscCallMPI(MPI_Comm_free(&arena->comm));
  PetscCall(PetscFree(arena->failures));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where there is none; it may have a reason why not. What fails on one rank fails on all. Collective. */
PetscErrorCode GpufmtArenaMake(MPI_Comm comm, int backend)
{
  struct _GpufmtArena made  = {.backend = backend};
  GpufmtArena         arena = NULL, *last = &arenas;
  PetscErrorCode      ierr;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_dup(comm, &made.comm));
  PetscCallMPI(MPI_Comm_rank(comm, &made.rank));
  PetscCallMPI(MPI_Comm_size(comm, &made.nranks));
  ierr = PetscNew(&arena);
  if (!ierr) ierr = PetscCalloc1(made.nranks, &made.failures);
  ierr = Build(&made, ierr);
  if (ierr) {
    PetscCall(ArenaClear(&made));
    PetscCall(PetscFree(arena));
  }
  PetscCall(ierr);
  while (*last) last = &(*last)->next;
  *arena = made;
  *last  = arena;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the arena of a communicator all of whose ranks work on one backend, NULL if there is none so far; not collective */
PetscErrorCode GpufmtArenaFind(MPI_Comm comm, int backend, GpufmtArena *out)
{
  PetscFunctionBegin;
  for (*out = arenas; *out; *out = (*out)->next) {
    int relation;

    if ((*out)->backend != backend) continue;
    PetscCallMPI(MPI_Comm_compare(comm, (*out)->comm, &relation));
    if (relation == MPI_IDENT || relation == MPI_CONGRUENT) break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NULL: ranks reach memory of each other */
const char *GpufmtArenaWhyNot(GpufmtArena arena)
{
  return arena->reason[0] ? arena->reason : NULL;
}

/* ---- pieces ---- */

/* A piece of this rank; arena NULL: there is no room. It is full of zeros unless it was used. */
PetscErrorCode GpufmtArenaTake(GpufmtArena arena, size_t bytes, GpufmtPiece *piece)
{
  int64_t number = 0;

  PetscFunctionBegin;
  *piece = (GpufmtPiece){0};
  bytes  = (bytes + GPUFMT_ARENA_ALIGNMENT - 1) / GPUFMT_ARENA_ALIGNMENT * GPUFMT_ARENA_ALIGNMENT;
  for (Chunk *chunk = arena->chunks; chunk; chunk = chunk->next, number++) {
    size_t  begin = CHUNK_HEAD;
    Piece **place = &chunk->pieces, *taken;

    while (*place && (*place)->begin - begin < bytes) {
      begin = (*place)->end;
      place = &(*place)->next;
    }
    if (!*place && chunk->bytes - begin < bytes) continue;
    PetscCall(PetscNew(&taken));
    *taken       = (Piece){.begin = begin, .end = begin + bytes, .next = *place};
    *place       = taken;
    *piece       = (GpufmtPiece){.arena      = arena,
                                 .generation = generation,
                                 .used       = (PetscBool)(begin < chunk->given),
                                 .chunk      = number,
                                 .offset     = (int64_t)begin};
    chunk->given = PetscMax(chunk->given, begin + bytes);
    break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where this rank reaches the piece of a rank */
void *GpufmtArenaAddress(GpufmtArena arena, PetscMPIInt rank, int64_t chunk, int64_t offset)
{
  const Chunk *c = arena->chunks;

  while (chunk--) c = c->next;
  return c->base[rank] + offset;
}

void *GpufmtPieceAddress(const GpufmtPiece *piece)
{
  return GpufmtArenaAddress(piece->arena, piece->arena->rank, piece->chunk, piece->offset);
}

/* Not collective: what other ranks wrote here was waited for. Where an exchange has failed it was not, and the memory is not given out again. */
PetscErrorCode GpufmtArenaRelease(GpufmtPiece *piece)
{
  Chunk  *chunk;
  Piece **place, *taken;

  PetscFunctionBegin;
  if (piece->arena && piece->generation == generation && !atomic_load(piece->arena->report)) {
    chunk = piece->arena->chunks;
    while (piece->chunk--) chunk = chunk->next;
    place = &chunk->pieces;
    while ((*place)->begin != (size_t)piece->offset) place = &(*place)->next;
    taken  = *place;
    *place = taken->next;
    PetscCall(PetscFree(taken));
  }
  *piece = (GpufmtPiece){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

GpufmtBeside *GpufmtArenaBeside(GpufmtArena arena)
{
  return &arena->beside;
}

/* ---- failures ---- */

/* the words of all ranks where they wait, and that of the host of this one */
void GpufmtArenaWords(GpufmtArena arena, void *const **failures, void **report)
{
  *failures = arena->failures;
  *report   = (void *)arena->report;
}

/* whether an exchange has failed, as far as this rank knows so far; waits for nothing */
PetscErrorCode GpufmtArenaCheck(GpufmtArena arena, double limit)
{
  const uint64_t failure = atomic_load(arena->report);

  PetscFunctionBegin;
  if (failure) PetscCall(GpufmtHaloIsLate(limit, (int)(failure >> 32) - 1, (int)(failure & 0xffffffff) - 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the end ---- */

/* PETSc ends. Collective. */
PetscErrorCode GpufmtArenasFree(void)
{
  PetscFunctionBegin;
  while (arenas) {
    GpufmtArena arena = arenas;

    arenas = arena->next;
    PetscCall(ArenaClear(arena));
    PetscCall(PetscFree(arena));
  }
  generation++;
  PetscFunctionReturn(PETSC_SUCCESS);
}
