/* The near-null space of the finest level, and that of each next one in its place. */
#include "gamg/gamg.h"
#include <petscdm.h>

/* the near-null space, or null space, of the first field of the mesh; NULL if it has none, as that of a DMDA */
static PetscErrorCode NearNullOfMesh(PC pc, Mat A, PetscObject *space)
{
  DM          dm;
  PetscObject field   = NULL;
  PetscInt    nfields = 0;

  PetscFunctionBegin;
  *space = NULL;
  PetscCall(PCGetDM(pc, &dm));
  if (!dm) PetscCall(MatGetDM(A, &dm));
  if (dm) PetscCall(DMGetNumFields(dm, &nfields));
  if (nfields) PetscCall(DMGetField(dm, 0, NULL, &field));
  if (field) PetscCall(PetscObjectQuery(field, "nearnullspace", space));
  if (field && !*space) PetscCall(PetscObjectQuery(field, "nullspace", space));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the near-null space that agg would take; NULL: neither the matrix nor the first field of the mesh has one */
static PetscErrorCode NearNullOf(PC pc, Mat A, MatNullSpace *space)
{
  PetscFunctionBegin;
  PetscCall(MatGetNearNullSpace(A, space));
  if (!*space) PetscCall(NearNullOfMesh(pc, A, (PetscObject *)space));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CheckSizes(Mat A, PetscInt nvectors, const Vec vectors[])
{
  PetscFunctionBegin;
  for (PetscInt k = 0; k < nvectors; k++)
    PetscCheck(vectors[k]->map->n == A->rmap->n, PETSC_COMM_SELF, PETSC_ERR_PLIB,
               "Attached null space vector size %" PetscInt_FMT " != matrix size %" PetscInt_FMT, vectors[k]->map->n, A->rmap->n);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The vectors of a space become the data, as agg would make it: to touch its pages takes longer than to copy them, unless they may be large. */
static PetscErrorCode SetNearNull(PC_GAMG *g, Mat A, MatNullSpace space)
{
  const Vec         *vectors;
  const PetscScalar *values;
  const PetscInt     nrows = A->rmap->n;
  PetscInt           nvectors, first;
  PetscBool          has_constant;
  PetscReal         *data;

  PetscFunctionBegin;
  PetscCall(MatNullSpaceGetVecs(space, &has_constant, &nvectors, &vectors));
  PetscCall(CheckSizes(A, nvectors, vectors));
  first = has_constant ? 1 : 0;
  PetscCall(PetscMalloc1((first + nvectors) * nrows, &data));
  GpufmtPagesMayBeLarge(data, (size_t)(first + nvectors) * (size_t)nrows * sizeof(*data));
  for (PetscInt i = 0; i < first * nrows; i++) data[i] = 1.0;
  g->data           = data;
  g->data_sz        = (first + nvectors) * nrows;
  g->data_cell_cols = first + nvectors;
  PetscCall(MatGetBlockSize(A, &g->data_cell_rows));
  for (PetscInt k = 0; k < nvectors; k++) {
    PetscReal *column = PetscSafePointerPlusOffset(data, (first + k) * nrows);

    PetscCall(VecGetArrayRead(vectors[k], &values));
    for (PetscInt i = 0; i < nrows; i++) column[i] = PetscRealPart(values[i]);
    PetscCall(VecRestoreArrayRead(vectors[k], &values));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The planner knows the constant vector of a scalar problem without a space, so that it need not be brought there. It is made if PETSc is to coarsen
   anew, for a copy that it takes. */
PetscErrorCode PCGAMGCreateDefaultData_Gpufmt(PC pc, Mat A)
{
  PC_GAMG     *g = GpufmtGamgOf(pc);
  GpufmtGamg  *gamg;
  MatNullSpace space;
  PetscInt     block;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  PetscCall(NearNullOf(pc, A, &space));
  PetscCall(MatGetBlockSize(A, &block));
  if (GpufmtFormatFind(((PetscObject)A)->type_name) && !g->injection_index_size) gamg->constant = (PetscBool)(!space && block == 1);
  if (gamg->constant && g->reuse_prol) {
    g->data_cell_rows = g->data_cell_cols = 1;
    g->data_sz                            = A->rmap->n;
  } else if (space) PetscCall(SetNearNull(g, A, space));
  else PetscCall((*gamg->agg.createdefaultdata)(pc, A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the near-null space of the coarse level, with so many columns on this rank, takes the place of that of this one */
PetscErrorCode GpufmtGamgReplaceNearNull(PC_GAMG *g, int backend, int64_t ncols, const void *coarse)
{
  PetscReal     *data;
  PetscInt       size;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscIntCast(ncols * g->data_cell_cols, &size));
  PetscCall(PetscMalloc1(size, &data));
  ierr = GpufmtCopyToHost(backend, data, coarse, (size_t)size * sizeof(*data));
  if (ierr) PetscCall(PetscFree(data));
  PetscCall(ierr);
  PetscCall(PetscFree(g->data));
  g->data           = data;
  g->data_sz        = size;
  g->data_cell_rows = g->data_cell_cols;
  PetscFunctionReturn(PETSC_SUCCESS);
}
