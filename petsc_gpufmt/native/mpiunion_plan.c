/* The pattern of a sum of sequential matrices, merged by the planner: on the device, what lies there need not come to the host. */
#include "mpisum.h"

static PetscErrorCode UnionAsk(int backend, PetscInt nsummands, const GpufmtSummand summands[], PetscInt *const places[], GpufmtUnion *u)
{
  const GpufmtPlanner *planner;
  GpufmtUnionRequest   request = {.nrows = u->nrows, .ncols = u->ncols, .low = u->low, .high = u->high, .nsummands = (int32_t)nsummands, .backend = backend, .index_bytes = sizeof(PetscInt), .scalar_bytes = sizeof(PetscScalar)};
  const PetscInt      *rowptr[GPUFMT_MAX_SUMMANDS], *colidx[GPUFMT_MAX_SUMMANDS];
  int                  device = 0;

  PetscFunctionBegin;
  PetscCall(GpufmtPlannerGet(&planner));
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(&device, &request.stream));
  request.device = device;
  for (PetscInt s = 0; s < nsummands; s++) {
    const Mat A = summands[s].matrix;

    PetscCall(GpufmtPatternGet(A, &rowptr[s], &colidx[s]));
    request.summands[s] = (GpufmtSummandPattern){.pattern = {.nrows = A->rmap->n, .ncols = A->cmap->n, .nnz = u->sizes[s], .rowptr = rowptr[s], .colidx = colidx[s]}, .places = places[s], .targets = summands[s].targets};
  }
  GpufmtPlannerAsk(planner->plan_union, &request, &u->answer.outcome);
  for (PetscInt s = 0; s < nsummands; s++) PetscCall(GpufmtPatternRestore(summands[s].matrix, &rowptr[s], &colidx[s]));
  PetscCheck(!u->answer.outcome.error, PETSC_COMM_SELF, (PetscErrorCode)u->answer.outcome.error, "%s", u->answer.outcome.message);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the parts of a union whose columns are known; `places` are those of each summand's columns */
PetscErrorCode GpufmtUnionPlan(int backend, PetscInt nsummands, const GpufmtSummand summands[], PetscInt *const places[], GpufmtUnion *u)
{
  PetscFunctionBegin;
  PetscCall(GpufmtFirstPlanBegin(backend));
  PetscCall(GpufmtFirstPlanEnd(backend, UnionAsk(backend, nsummands, summands, places, u)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* managed arrays with the pattern of part k of a planned union */
PetscErrorCode GpufmtUnionManaged(int backend, const GpufmtUnion *u, int k, GpufmtManaged **managed)
{
  const GpufmtUnionPartAnswer *part = &u->answer.parts[k];

  PetscFunctionBegin;
  PetscCall(GpufmtManagedCreate(u->nrows, (const PetscInt *)part->rowptr, managed));
  PetscCall(GpufmtManagedSetColumns(*managed, (const PetscInt *)part->colidx, (PetscBool)(backend == GPUFMT_BACKEND_CUDA)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the columns of the parallel matrix that occur in part 1 of a planned union, in the order of their numbers there */
PetscErrorCode GpufmtUnionGhosts(const GpufmtUnion *u, PetscInt *nghosts, PetscInt **ghosts)
{
  const PetscInt *places = (const PetscInt *)u->answer.ghosts;

  PetscFunctionBegin;
  PetscCall(PetscIntCast(u->answer.nghosts, nghosts));
  PetscCall(PetscMalloc1(*nghosts, ghosts));
  for (PetscInt k = 0; k < *nghosts; k++) (*ghosts)[k] = u->columns[places[k]];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what the planner keeps for a union, and the plans that no sum has taken */
PetscErrorCode GpufmtUnionRelease(GpufmtUnion *u)
{
  const int64_t tokens[] = {u->answer.outcome.token, u->answer.parts[0].token, u->answer.parts[1].token};

  PetscFunctionBegin;
  for (int k = 0; k < 3; k++)
    if (tokens[k]) PetscCall(GpufmtPlannerRelease(tokens[k]));
  u->answer.outcome.token = u->answer.parts[0].token = u->answer.parts[1].token = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
