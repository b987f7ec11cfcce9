/* The pattern of a sum of sequential matrices, merged by the planner: on the device, what lies there need not come to the host. */
#include "parallel/parallel.h"

/* the parts of a union whose columns are known */
PetscErrorCode GpufmtUnionPlan(int backend, PetscInt nsummands, const GpufmtSummand summands[], const GpufmtPlaces places[], GpufmtUnion *u)
{
  GpufmtUnionRequest request = {.nrows = u->nrows, .ncols = u->ncols, .low = u->low, .high = u->high, .nsummands = (int32_t)nsummands};
  const PetscInt    *rowptr[GPUFMT_MAX_SUMMANDS], *colidx[GPUFMT_MAX_SUMMANDS];
  PetscErrorCode     ierr;

  PetscFunctionBegin;
  for (PetscInt s = 0; s < nsummands; s++) {
    const Mat A = summands[s].matrix;

    PetscCall(GpufmtPatternGet(A, &rowptr[s], &colidx[s]));
    request.summands[s] = (GpufmtSummandPattern){
      .pattern   = {.nrows  = A->rmap->n,
                    .ncols  = A->cmap->n,
                    .nnz    = u->sizes[s],
                    .rowptr = rowptr[s],
                    .colidx = colidx[s],
                    .held   = GpufmtPatternHeld(A, backend)},
      .first     = places[s].first,
      .last      = places[s].last,
      .shift     = places[s].shift,
      .places    = places[s].others,
      .targets   = summands[s].targets,
      .first_row = summands[s].first_row,
      .last_row  = summands[s].last_row,
      .outside   = summands[s].outside
    };
  }
  ierr = GpufmtPlannerAsk(GPUFMT_ASK_UNION, backend, -1, NULL, &request.place, &u->answer.outcome, &u->lease);
  for (PetscInt s = 0; s < nsummands; s++) PetscCall(GpufmtPatternRestore(summands[s].matrix, &rowptr[s], &colidx[s]));
  PetscCall(ierr);
  for (int k = 0; k < 2; k++) GpufmtLeaseTake(&u->plans[k], u->answer.parts[k].token);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* managed arrays with the pattern of part k of a planned union */
PetscErrorCode GpufmtUnionManaged(int backend, const GpufmtUnion *u, int k, PetscBool internal, GpufmtManaged **managed)
{
  const GpufmtUnionPartAnswer *part      = &u->answer.parts[k];
  const PetscBool              on_device = (PetscBool)(backend == GPUFMT_BACKEND_CUDA);

  PetscFunctionBegin;
  PetscCall(GpufmtManagedCreate(u->nrows, part->nnz, (const PetscInt *)part->rowptr, on_device, internal, managed));
  PetscCall(GpufmtManagedSetColumns(*managed, (const PetscInt *)part->colidx, on_device));
  PetscCall(GpufmtManagedSettle((PetscBool)(on_device && !(*managed)->internal))); /* the host may read the columns next */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the columns of the parallel matrix that occur in part 1 of a planned union, in the order of their numbers there */
PetscErrorCode GpufmtUnionGhosts(const GpufmtUnion *u, PetscInt *nghosts, PetscInt **ghosts)
{
  const PetscInt *places = (const PetscInt *)u->answer.ghosts;

  PetscFunctionBegin;
  PetscCall(PetscIntCast(u->answer.nghosts, nghosts));
  PetscCall(PetscMalloc1(*nghosts, ghosts));
  for (PetscInt k = 0; k < *nghosts; k++) (*ghosts)[k] = GpufmtColumn(&u->columns, places[k]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what the planner keeps for a union, and the plans that no sum has taken */
PetscErrorCode GpufmtUnionRelease(GpufmtUnion *u)
{
  PetscFunctionBegin;
  PetscCall(GpufmtLeaseDrop(&u->lease));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtLeaseDrop(&u->plans[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}
