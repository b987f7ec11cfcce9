/* PCPBJACOBI where vectors of a solve are: the inverses of the blocks on the diagonal. */
#include "ksp/ksp.h"

/* The private context of PETSc's PCPBJACOBI begins so, in pbjacobi.h of PETSc 3.24 to 3.26, wherever it applies the inverses. These are on the host, one
   after another, each column by column; the matrix has them, and a set-up makes them anew in place. */
typedef struct {
  const MatScalar *inverses;
  PetscInt         size, count;
} PointBlockContext;

static PetscErrorCode IsPointBlock(PC pc, PetscBool *is_point_block)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCPBJACOBI, is_point_block));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of a block where the preconditioner is PCPBJACOBI, set up or not, and kernels have blocks of its size; else 0. The same on all ranks. */
PetscErrorCode GpufmtKspPointBlock(KSP ksp, PetscInt *rows)
{
  Mat       pmat;
  PetscBool is_point_block;

  PetscFunctionBegin;
  *rows = 0;
  PetscCall(IsPointBlock(ksp->pc, &is_point_block));
  if (!is_point_block) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCGetOperators(ksp->pc, NULL, &pmat));
  PetscCall(MatGetBlockSize(pmat, rows));
  if (*rows < 2 || *rows > GPUFMT_MOST_POINT_BLOCK) *rows = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether a copy is of the inverses as the last set-up has left them. A PC that is not to be set up anew keeps its own, whatever matrix it has been given: that
   which had them may be gone. */
static PetscBool IsCurrent(PC pc, const GpufmtKspInverses *copy, const GpufmtKspInverses *now)
{
  const PetscBool same = (PetscBool)(copy->mat == now->mat && !memcmp(copy->set_up, now->set_up, sizeof(now->set_up)));

  return (PetscBool)(copy->pc == now->pc && copy->from == now->from && copy->bytes == now->bytes && (same || pc->reusepreconditioner));
}

/* The copy on the device. It is made anew where the PC has been set up since. */
static PetscErrorCode CopyGet(PC pc, const PointBlockContext *c, GpufmtKspInverses *copy)
{
  GpufmtKspInverses now = {.pc    = ((PetscObject)pc)->id,
                           .mat   = ((PetscObject)pc->pmat)->id,
                           .from  = c->inverses,
                           .bytes = (size_t)c->count * (size_t)c->size * (size_t)c->size * sizeof(*c->inverses)};

  PetscFunctionBegin;
  memcpy(now.set_up, &pc->matstate, sizeof(now.set_up));
  if (IsCurrent(pc, copy, &now)) PetscFunctionReturn(PETSC_SUCCESS);
  copy->from = NULL;
  PetscCall(GpufmtBufferReserve(GPUFMT_BACKEND_CUDA, now.bytes, &copy->buffer));
  PetscCall(GpufmtBufferFromHost(&copy->buffer, now.from, now.bytes));
  now.buffer = copy->buffer;
  *copy      = now;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The inverses that a preconditioner multiplies by and does nothing else, where plans are: in place on the host. On a rank without rows there are none.
   *why_not says why it is not so; NULL: it is. A null space would be removed from what the preconditioner makes. */
PetscErrorCode GpufmtKspInversesGet(KSP ksp, GpufmtKsp *own, const PetscScalar **inverses, const char **why_not)
{
  const PointBlockContext *c = (const PointBlockContext *)ksp->pc->data;
  Mat                      A;
  MatNullSpace             null_space;
  PetscBool                is_point_block;

  PetscFunctionBegin;
  *inverses = NULL;
  *why_not  = NULL;
  PetscCall(IsPointBlock(ksp->pc, &is_point_block));
  if (is_point_block) PetscCall(PCSetUp(ksp->pc)); /* before 3.26 KSPSetUp() leaves that of a changed matrix to PCApply() */
  PetscCall(PCGetOperators(ksp->pc, &A, NULL));
  PetscCall(MatGetNullSpace(A, &null_space));
  if (!is_point_block || null_space) *why_not = "the preconditioner is no multiplication by a diagonal or by point blocks";
  else if (!own->point_block) *why_not = "point blocks are of 1 row, or of more than 16";
  else if (c->size != own->point_block || c->size * c->count != own->nrows) *why_not = "point blocks are not those of the matrix";
  if (*why_not || !own->nrows) PetscFunctionReturn(PETSC_SUCCESS);
  if (own->backend == GPUFMT_BACKEND_CUDA) {
    *why_not = "point blocks could not be copied"; /* for who keeps that failure */
    PetscCall(CopyGet(ksp->pc, c, &own->inverses));
    *why_not  = NULL;
    *inverses = (const PetscScalar *)own->inverses.buffer.array;
  } else *inverses = c->inverses;
  PetscFunctionReturn(PETSC_SUCCESS);
}
