/* How ranks come to pieces of an arena together, whatever they exchange there: all have one, or all know why they cannot. */
#include "halo/halo.h"

size_t GpufmtPieceAligned(size_t bytes)
{
  return (bytes + GPUFMT_ARENA_ALIGNMENT - 1) / GPUFMT_ARENA_ALIGNMENT * GPUFMT_ARENA_ALIGNMENT;
}

/* Others may write here once they know of it: what has read it must have ended. */
static PetscErrorCode FlagsClear(const GpufmtPiece *piece, int backend, size_t bytes)
{
  void *flags = GpufmtPieceAddress(piece), *stream;

  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_HOST) PetscCall(PetscMemzero(flags, bytes));
  else {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceSettle());
    PetscCall(GpufmtDeviceClear(flags, bytes, stream)); /* synchronize! */
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A piece of this rank, whose first `nflags` bytes are zeros; or `missing` becomes units of memory that the arena has not. */
PetscErrorCode GpufmtPieceTake(GpufmtArena arena, int backend, size_t bytes, size_t nflags, GpufmtPiece *piece, int *missing)
{
  PetscFunctionBegin;
  if (piece->arena) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtArenaTake(arena, bytes, piece));
  if (!piece->arena) *missing = (int)(GpufmtPieceAligned(bytes) / GPUFMT_ARENA_ALIGNMENT);
  else if (piece->used) PetscCall(FlagsClear(piece, backend, nflags));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Until all ranks have a piece for `what`, by `take`; `why_not`: they cannot. On the host that is only for who names it. `take` is called until nothing is
   missing on any rank; what fails on one rank, there or before, `own`, fails on all. Collective. */
PetscErrorCode GpufmtPiecesMake(Mat A, const char what[], PetscBool named, PetscErrorCode own, GpufmtTakePiece take, void *context,
                                const char **why_not)
{
  MPI_Comm  comm    = PetscObjectComm((PetscObject)A);
  const int backend = GpufmtBackendOf(A);

  PetscFunctionBegin;
  for (*why_not = NULL; !*why_not;) {
    int         most[] = {backend, -backend, 0}; /* where some and all work, missing memory */
    GpufmtArena arena  = NULL;

    if (!own) own = GpufmtArenaFind(comm, backend, &arena);
    if (!own && arena && !GpufmtArenaWhyNot(arena)) own = (*take)(context, arena, &most[2]);
    PetscCall(GpufmtAgree((PetscObject)A, what, own, 3, most));
    if (most[0] != -most[1]) *why_not = "ranks work in different places";
    else if (backend == GPUFMT_BACKEND_HOST && !named) *why_not = "on the host it is for whom asks for it";
    else if (!arena) PetscCall(GpufmtArenaMake(comm, backend));
    else if (GpufmtArenaWhyNot(arena)) *why_not = GpufmtArenaWhyNot(arena);
    else if (most[2]) PetscCall(GpufmtArenaGrow(arena, (size_t)most[2] * GPUFMT_ARENA_ALIGNMENT));
    else break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What this rank waits for in a piece, but for what arrives and who sends it. Flags come first there; `failures` is where those of the arena are copied. */
PetscErrorCode GpufmtArrivalsBegin(const GpufmtPiece *piece, int backend, PetscMPIInt rank, PetscMPIInt nranks, double limit,
                                   const void *failures_there, GpufmtPeerArrivals *arrivals)
{
  void *const *failures;
  void        *report;

  PetscFunctionBegin;
  GpufmtArenaWords(piece->arena, &failures, &report);
  *arrivals = (GpufmtPeerArrivals){.flags    = GpufmtPieceAddress(piece),
                                   .spacing  = GPUFMT_FLAG_BYTES / (int64_t)sizeof(uint64_t),
                                   .rank     = rank,
                                   .limit    = (int64_t)PetscMin(1e9 * limit, 4e18),
                                   .nranks   = nranks,
                                   .failures = (void *const *)failures_there,
                                   .failure  = failures[rank],
                                   .report   = report};
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceTicks(limit, &arrivals->limit));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* tables that are ready come to where kernels read them */
PetscErrorCode GpufmtTablesSend(int backend, void *there, const void *tables, size_t bytes, void *stream)
{
  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_HOST) PetscCall(PetscMemcpy(there, tables, bytes));
  else PetscCall(GpufmtDeviceUpload(there, tables, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
