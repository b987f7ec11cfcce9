/* Sequential matrices with managed arrays: how they get them, and what may free or replace these, or give them to another matrix, finds
   ordinary ones. */
#include "matrix/matrix.h"

/* ---- options ---- */

static PetscBool OnNewNonzeros(MatOption option)
{
  return (PetscBool)(option == MAT_NEW_NONZERO_LOCATIONS || option == MAT_NEW_NONZERO_LOCATION_ERR || option == MAT_NEW_NONZERO_ALLOCATION_ERR);
}

/* whether it says what becomes of new nonzeros, of which the last word counts */
PetscBool GpufmtOptionsOnNewNonzeros(const GpufmtOptionsSet *set)
{
  for (int k = 0; k < set->count; k++)
    if (OnNewNonzeros(set->options[k])) return PETSC_TRUE;
  return PETSC_FALSE;
}

/* remembers what PETSc keeps beside the arrays and shows nobody */
void GpufmtOptionsRemember(GpufmtOptionsSet *set, MatOption option, PetscBool flag)
{
  int kept = 0;

  if (!OnNewNonzeros(option) && option != MAT_ROW_ORIENTED && option != MAT_KEEP_NONZERO_PATTERN && option != MAT_UNUSED_NONZERO_LOCATION_ERR &&
      option != MAT_IGNORE_ZERO_ENTRIES)
    return;
  for (int k = 0; k < set->count; k++) {
    if (OnNewNonzeros(option) ? OnNewNonzeros(set->options[k]) : set->options[k] == option) continue; /* the new one takes its place */
    set->options[kept] = set->options[k];
    set->flags[kept++] = set->flags[k];
  }
  set->options[kept] = option;
  set->flags[kept]   = flag;
  set->count         = kept + 1;
}

/* sets them anew; without any on new nonzeros these are taken, as by the products of type aij */
PetscErrorCode GpufmtOptionsRepeat(Mat A, const GpufmtOptionsSet *set)
{
  PetscFunctionBegin;
  if (!GpufmtOptionsOnNewNonzeros(set)) PetscCall((*gpufmt_seq_parent->setoption)(A, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
  for (int k = 0; k < set->count; k++) PetscCall((*gpufmt_seq_parent->setoption)(A, set->options[k], set->flags[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- arrays ---- */

/* another matrix of the size and the type of A, assembled, with these arrays */
PetscErrorCode GpufmtManagedMatrix(Mat A, GpufmtManaged *m, Mat *T)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtCreateWithArrays(PetscObjectComm((PetscObject)A), A->cmap->n, m, T));
  ierr = MatConvert_SeqAIJ_SeqAIJGpufmt(*T, ((PetscObject)A)->type_name, MAT_INPLACE_MATRIX, T);
  if (ierr) {
    PetscCall(GpufmtRowsLeave(*T, m, PETSC_FALSE));
    PetscCall(MatDestroy(T));
  }
  PetscCall(ierr);
  GpufmtArraysOf(*T)->managed = GpufmtManagedReference(m);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A gets these arrays in place of its own. All that does not belong to arrays stays, and what PETSc keeps beside them is set again. */
PetscErrorCode GpufmtManagedEnter(Mat A, GpufmtManaged *m)
{
  GpufmtManaged *before;
  void          *data;
  Mat            T;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedMatrix(A, m, &T));
  PetscCall(GpufmtManagedOf(A, &before));
  if (before) PetscCall(GpufmtRowsLeave(A, before, PETSC_FALSE));
  data      = A->data;
  A->data   = T->data;
  T->data   = data;
  A->ops[0] = T->ops[0];                                        /* those of A may be for inodes */
  PetscCall(GpufmtManagedRelease(&GpufmtArraysOf(A)->managed)); /* which those of T replace */
  GpufmtArraysOf(A)->managed = GpufmtArraysOf(T)->managed;
  GpufmtArraysOf(T)->managed = NULL;
  PetscCall(MatDestroy(&T));
  PetscCall(GpufmtOptionsRepeat(A, &GpufmtSeqData(A)->options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A gets arrays of PETSc's own, in the midst of MatSetValues() too; a result takes new nonzeros from then on */
PetscErrorCode GpufmtManagedLeave(Mat A)
{
  const PetscBool        assembled = A->assembled, was_assembled = A->was_assembled;
  const PetscObjectState nonzeros = A->nonzerostate;
  GpufmtOptionsSet       options;
  GpufmtManaged         *m;
  PetscInt              *lengths, nonzero = 0;
  PetscScalar           *values;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedOf(A, &m));
  if (!m) PetscFunctionReturn(PETSC_SUCCESS);
  GpufmtArraysOf(A)->managed = NULL; /* the preallocation sets options, which ask again */
  options                    = GpufmtSeqData(A)->options;
  PetscCall(PetscMalloc1(m->nrows, &lengths));
  for (PetscInt i = 0; i < m->nrows; i++) {
    lengths[i] = m->rowptr[i + 1] - m->rowptr[i];
    nonzero += lengths[i] > 0;
  }
  PetscCall(GpufmtRowsLeave(A, m, PETSC_FALSE));
  PetscCall(MatSeqAIJSetPreallocation(A, 0, lengths));
  PetscCall(PetscFree(lengths));
  PetscCall(MatSeqAIJSetColumnIndices(A, m->colidx));
  PetscCall(GpufmtRowsCompress(A, nonzero));
  PetscCall(MatSeqAIJGetCSRAndMemType(A, NULL, NULL, &values, NULL));
  PetscCall(PetscArraycpy(values, m->values, m->rowptr[m->nrows])); /* less than there was room for, once zeros were eliminated */
  A->assembled        = assembled;
  A->was_assembled    = was_assembled;
  A->nonzerostate     = nonzeros;
  A->info.nz_unneeded = 0;
  PetscCall(GpufmtManagedRelease(&m));
  GpufmtSeqData(A)->options = options;
  PetscCall(GpufmtOptionsRepeat(A, &options));
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

static PetscErrorCode MatSetOption_SeqAIJGpufmt(Mat A, MatOption option, PetscBool flag)
{
  PetscFunctionBegin;
  if (OnNewNonzeros(option) || option == MAT_SORTED_FULL) PetscCall(GpufmtManagedLeave(A));
  if (GpufmtSeqData(A)) GpufmtOptionsRemember(&GpufmtSeqData(A)->options, option, flag); /* also while it collects first values */
  PetscCall((*gpufmt_seq_parent->setoption)(A, option, flag));
  if (option == MAT_SORTED_FULL && !flag) A->ops->setvalues = MatSetValues_SeqAIJGpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows in managed arrays have no gaps, and whatever changes their lengths finds PETSc's own arrays, or closes the gaps: an assembly need not go over
   them. */
static PetscErrorCode MatAssemblyEnd_SeqAIJGpufmt(Mat A, MatAssemblyType type)
{
  const PetscBool        was_assembled = A->was_assembled;
  const PetscObjectState assembled     = A->ass_nonzerostate;
  GpufmtManaged         *managed;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedOf(A, &managed));
  if (managed) {
    A->was_assembled    = PETSC_TRUE;
    A->ass_nonzerostate = A->nonzerostate;
  }
  PetscCall((*gpufmt_seq_parent->assemblyend)(A, type));
  A->was_assembled    = was_assembled;
  A->ass_nonzerostate = assembled; /* MatAssemblyEnd() looks at it */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatDuplicate_SeqAIJGpufmt(Mat A, MatDuplicateOption option, Mat *B)
{
  GpufmtManaged *managed;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedOf(A, &managed));
  PetscCall((*gpufmt_seq_parent->duplicate)(A, managed && option == MAT_SHARE_NONZERO_PATTERN ? MAT_DO_NOT_COPY_VALUES : option, B));
  GpufmtSeqData(*B)->options = GpufmtSeqData(A)->options;
  PetscCall(GpufmtCooShare(A, *B));
  if (managed) PetscCall(GpufmtOptionsRepeat(*B, &GpufmtSeqData(*B)->options)); /* as GpufmtManagedLeave() */
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

/* Somebody keeps addresses of values, or values beside them: A gets arrays of PETSc's own, for good. */
PetscErrorCode GpufmtManagedPin(Mat A)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedLeave(A));
  if (GpufmtSeqData(A)) GpufmtSeqData(A)->pinned = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether a matrix of ours may get other arrays with a preallocation. MatCreateSubMatrices() leaves what it needs again beside those of its matrices,
   and a destruction of its own; so does MatSetUp() until there are values, but that is PETSc's to undo. */
PetscBool GpufmtManagedMayEnter(Mat A)
{
  return (PetscBool)(A->ops->destroy == MatDestroy_SeqAIJGpufmt || A->hash_active);
}

/* A coloring keeps the addresses of values. */
static PetscErrorCode MatFDColoringSetUp_SeqAIJGpufmt(Mat A, ISColoring coloring, MatFDColoring differences)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedPin(A));
  PetscCall((*gpufmt_seq_parent->fdcoloringsetup)(A, coloring, differences));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* gives a matrix these operations, or the parent's */
void GpufmtManagedArraysSet(Mat A, PetscBool ours)
{
  const struct _MatOps *parent = gpufmt_seq_parent;

  A->ops->fdcoloringsetup = ours ? MatFDColoringSetUp_SeqAIJGpufmt : parent->fdcoloringsetup;
  A->ops->duplicate       = ours ? MatDuplicate_SeqAIJGpufmt : parent->duplicate;
  A->ops->getinfo         = ours ? MatGetInfo_SeqAIJGpufmt : parent->getinfo;
  A->ops->setoption       = ours ? MatSetOption_SeqAIJGpufmt : parent->setoption;
  A->ops->shift           = ours ? MatShift_SeqAIJGpufmt : parent->shift;
  A->ops->zerorows        = ours ? MatZeroRows_SeqAIJGpufmt : parent->zerorows;
  A->ops->zerorowscolumns = ours ? MatZeroRowsColumns_SeqAIJGpufmt : parent->zerorowscolumns;
  if (A->ops->assemblyend == (ours ? parent->assemblyend : MatAssemblyEnd_SeqAIJGpufmt))
    A->ops->assemblyend = ours ? MatAssemblyEnd_SeqAIJGpufmt : parent->assemblyend; /* likewise */
  if (A->ops->setvalues == (ours ? parent->setvalues : MatSetValues_SeqAIJGpufmt))
    A->ops->setvalues = ours ? MatSetValues_SeqAIJGpufmt : parent->setvalues; /* else it collects first values, or takes whole rows */
}
