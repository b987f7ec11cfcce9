/* The operations of aij, to which ours hand on what they do not do themselves. */
#include "matrix/matrix.h"

static struct _MatOps seq_parent, mpi_parent;
static PetscBool      found = PETSC_FALSE;

/* by address, not through a call: MatSetValues() comes through here */
const struct _MatOps *const gpufmt_seq_parent = &seq_parent;
const struct _MatOps *const gpufmt_mpi_parent = &mpi_parent;

/* MatMult_SeqAIJ() and the like are hidden in libpetsc: takes them from a pristine matrix. Under -mat_seqaij_type seqaij<fmt> the
   converter runs inside MatCreate_SeqAIJ(); then B is the pristine one, and creating another would recurse for ever. Called before a matrix
   becomes one of ours, so that they are there wherever such a matrix is. */
PetscErrorCode GpufmtParentsFind(Mat B)
{
  PetscBool is_seq = PETSC_FALSE;
  Mat       T;

  PetscFunctionBegin;
  if (found) PetscFunctionReturn(PETSC_SUCCESS);
  if (B && !B->hash_active) PetscCall(PetscObjectTypeCompare((PetscObject)B, MATSEQAIJ, &is_seq));
  if (is_seq) seq_parent = B->ops[0];
  else {
    PetscCall(MatCreate(PETSC_COMM_SELF, &T));
    PetscCall(MatSetType(T, MATSEQAIJ));
    if (!found) seq_parent = T->ops[0]; /* else a nested call has found them */
    PetscCall(MatDestroy(&T));
  }
  PetscCall(MatCreate(PETSC_COMM_SELF, &T));
  PetscCall(MatSetType(T, MATMPIAIJ));
  mpi_parent = T->ops[0];
  found      = PETSC_TRUE;
  PetscCall(MatDestroy(&T));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc ends: they are those of another matrix when it begins again */
void GpufmtParentsForget(void)
{
  found = PETSC_FALSE;
}
