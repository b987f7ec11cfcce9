/* Sequential matrices with managed arrays: what may free or replace these, or give them to another matrix, finds ordinary ones. */
#include "matrix/matrix.h"

/* A gets arrays of PETSc's own, in the midst of MatSetValues() too, and takes new nonzeros from then on */
PetscErrorCode GpufmtManagedLeave(Mat A)
{
  const PetscBool        assembled = A->assembled, was_assembled = A->was_assembled;
  const PetscObjectState nonzeros = A->nonzerostate;
  GpufmtManaged         *m;
  PetscInt              *lengths;
  PetscScalar           *values;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedOf(A, &m));
  if (!m) PetscFunctionReturn(PETSC_SUCCESS);
  GpufmtArraysOf(A)->managed = NULL; /* the preallocation sets options, which ask again */
  PetscCall(PetscMalloc1(m->nrows, &lengths));
  for (PetscInt i = 0; i < m->nrows; i++) lengths[i] = m->rowptr[i + 1] - m->rowptr[i];
  PetscCall(MatSeqAIJSetPreallocation(A, 0, lengths));
  PetscCall(PetscFree(lengths));
  PetscCall(MatSeqAIJSetColumnIndices(A, m->colidx));
  PetscCall(MatSeqAIJGetCSRAndMemType(A, NULL, NULL, &values, NULL));
  PetscCall(PetscArraycpy(values, m->values, m->rowptr[m->nrows])); /* less than there was room for, once zeros were eliminated */
  A->assembled        = assembled;
  A->was_assembled    = was_assembled;
  A->nonzerostate     = nonzeros;
  A->info.nz_unneeded = 0;
  PetscCall(GpufmtManagedRelease(&m));
  PetscCall(MatSetOption(A, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE)); /* as the products of type aij */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An assembly calls it for each row: without managed arrays it is one branch and a jump. */
static PetscErrorCode MatSetValues_SeqAIJGpufmt(Mat A, PetscInt m, const PetscInt rows[], PetscInt n, const PetscInt columns[],
                                                const PetscScalar values[], InsertMode mode)
{
  const GpufmtArrays *arrays = GpufmtArraysOf(A);

  if (PetscUnlikely(arrays && arrays->managed)) PetscCall(GpufmtManagedLeave(A));
  return (*gpufmt_seq_parent->setvalues)(A, m, rows, n, columns, values, mode);
}

/* the parent's goes on to read arrays that it has taken out of the matrix */
static PetscErrorCode MatShift_SeqAIJGpufmt(Mat A, PetscScalar shift)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedLeave(A));
  PetscCall((*gpufmt_seq_parent->shift)(A, shift));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatZeroRows_SeqAIJGpufmt(Mat A, PetscInt n, const PetscInt rows[], PetscScalar diagonal, Vec x, Vec b)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedLeave(A));
  PetscCall((*gpufmt_seq_parent->zerorows)(A, n, rows, diagonal, x, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatZeroRowsColumns_SeqAIJGpufmt(Mat A, PetscInt n, const PetscInt rows[], PetscScalar diagonal, Vec x, Vec b)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedLeave(A));
  PetscCall((*gpufmt_seq_parent->zerorowscolumns)(A, n, rows, diagonal, x, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatSetOption_SeqAIJGpufmt(Mat A, MatOption option, PetscBool flag)
{
  PetscFunctionBegin;
  if (option == MAT_NEW_NONZERO_LOCATIONS || option == MAT_NEW_NONZERO_LOCATION_ERR || option == MAT_NEW_NONZERO_ALLOCATION_ERR ||
      option == MAT_SORTED_FULL)
    PetscCall(GpufmtManagedLeave(A));
  PetscCall((*gpufmt_seq_parent->setoption)(A, option, flag));
  if (option == MAT_SORTED_FULL && !flag) A->ops->setvalues = MatSetValues_SeqAIJGpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatDuplicate_SeqAIJGpufmt(Mat A, MatDuplicateOption option, Mat *B)
{
  GpufmtManaged *managed;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedOf(A, &managed));
  PetscCall((*gpufmt_seq_parent->duplicate)(A, managed && option == MAT_SHARE_NONZERO_PATTERN ? MAT_DO_NOT_COPY_VALUES : option, B));
  if (managed) PetscCall(MatSetOption(*B, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE)); /* as GpufmtManagedLeave() */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* MatCreateSeqAIJWithArrays() leaves the number of allocated nonzeros 0, and so that of unneeded ones negative */
static PetscErrorCode MatGetInfo_SeqAIJGpufmt(Mat A, MatInfoType type, MatInfo *info)
{
  PetscFunctionBegin;
  PetscCall((*gpufmt_seq_parent->getinfo)(A, type, info));
  info->nz_allocated = PetscMax(info->nz_allocated, info->nz_used);
  info->nz_unneeded  = info->nz_allocated - info->nz_used;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* gives a matrix these operations, or the parent's */
void GpufmtManagedArraysSet(Mat A, PetscBool ours)
{
  const struct _MatOps *parent = gpufmt_seq_parent;

  A->ops->duplicate       = ours ? MatDuplicate_SeqAIJGpufmt : parent->duplicate;
  A->ops->getinfo         = ours ? MatGetInfo_SeqAIJGpufmt : parent->getinfo;
  A->ops->setoption       = ours ? MatSetOption_SeqAIJGpufmt : parent->setoption;
  A->ops->shift           = ours ? MatShift_SeqAIJGpufmt : parent->shift;
  A->ops->zerorows        = ours ? MatZeroRows_SeqAIJGpufmt : parent->zerorows;
  A->ops->zerorowscolumns = ours ? MatZeroRowsColumns_SeqAIJGpufmt : parent->zerorowscolumns;
  if (A->ops->setvalues == (ours ? parent->setvalues : MatSetValues_SeqAIJGpufmt))
    A->ops->setvalues = ours ? MatSetValues_SeqAIJGpufmt : parent->setvalues; /* else it collects first values, or takes whole rows */
}
