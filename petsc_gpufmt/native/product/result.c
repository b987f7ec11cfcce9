/* Results that are made from a pattern of the planner: with managed arrays, or with PETSc's own. */
#include "product/product.h"

/* whether the result of a product, or a block of one, is to have managed arrays */
PetscErrorCode GpufmtManagedWanted(Mat A, int backend, PetscBool *wanted)
{
  PetscBool eager;

  PetscFunctionBegin;
  PetscCall(GpufmtProductHostValuesEager(A, &eager));
  *wanted = (PetscBool)(!eager && GpufmtManagedPossible(backend));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A, of a type of ours and with its sizes set, becomes an assembled matrix with these arrays. All that belongs to its old entries goes. */
PetscErrorCode GpufmtManagedAdopt(Mat A, GpufmtManaged *m)
{
  Mat_Gpufmt            *old       = (Mat_Gpufmt *)A->spptr, *gpufmt;
  const PetscInt         row_block = A->rmap->bs, col_block = A->cmap->bs;
  const PetscObjectState nonzeros = A->nonzerostate;
  PetscOptions           options  = ((PetscObject)A)->options;
  MatNullSpace           spaces[] = {A->nullsp, A->transnullsp, A->nearnullsp};
  struct _MatOps         ops;
  Mat                    T;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedMatrix(A, m, &T));
#if PetscDefined(HAVE_DEVICE)
  PetscCall(MatBindToCPU(T, A->boundtocpu));
#endif
  gpufmt                = (Mat_Gpufmt *)T->spptr;
  gpufmt->offdiag       = old->offdiag;
  gpufmt->parent_prefix = old->parent_prefix;
  old->parent_prefix    = NULL;
  ops                   = T->ops[0]; /* those of A may be for inodes */
  PetscCall(MatHeaderMerge(A, &T));
  A->ops[0]                 = ops;
  A->nullsp                 = spaces[0];
  A->transnullsp            = spaces[1];
  A->nearnullsp             = spaces[2];
  A->nonzerostate           = nonzeros + 1;
  A->ass_nonzerostate       = A->nonzerostate;
  ((PetscObject)A)->options = options;
  PetscCall(MatSetBlockSizes(A, PetscAbs(row_block), PetscAbs(col_block)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a copy of the row pointer on the host */
PetscErrorCode GpufmtResultRowPointer(const GpufmtPlannedPattern *pattern, PetscInt **rowptr)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(pattern->nrows + 1, rowptr));
  ierr = GpufmtCopyToHost(pattern->backend, *rowptr, pattern->rowptr, (size_t)(pattern->nrows + 1) * sizeof(PetscInt));
  if (ierr) PetscCall(PetscFree(*rowptr));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* managed arrays with the pattern; NULL where C is to have arrays of PETSc's own; `internal`: no user sees C */
PetscErrorCode GpufmtResultManaged(Mat C, const GpufmtPlannedPattern *pattern, PetscBool internal, GpufmtManaged **managed)
{
  const PetscBool on_device = (PetscBool)(pattern->backend == GPUFMT_BACKEND_CUDA);
  PetscInt        nrows;
  PetscBool       wanted = PETSC_FALSE;

  PetscFunctionBegin;
  *managed = NULL;
  PetscCall(GpufmtManagedWanted(C, pattern->backend, &wanted));
  if (!wanted) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscIntCast(pattern->nrows, &nrows));
  PetscCall(GpufmtManagedCreate(nrows, pattern->nnz, (const PetscInt *)pattern->rowptr, on_device, internal, managed));
  PetscCall(GpufmtManagedSetColumns(*managed, (const PetscInt *)pattern->colidx, on_device));
  if (PetscDefined(USE_DEBUG)) PetscCall(GpufmtManagedSettle(on_device)); /* PETSc looks at all columns then */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* C gets arrays of PETSc's own with the pattern */
static PetscErrorCode SetArrays(Mat C, const GpufmtPlannedPattern *pattern)
{
  const PetscInt *own_rowptr, *own_colidx, nrows = C->rmap->n;
  const size_t    bytes = (size_t)pattern->nnz * sizeof(PetscInt);
  PetscInt       *lengths, none = 0, *columns = &none;
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtResultRowPointer(pattern, &lengths));
  for (PetscInt i = 0; i < nrows; i++) lengths[i] = lengths[i + 1] - lengths[i];
  ierr = MatSeqAIJSetPreallocation(C, 0, lengths);
  PetscCall(PetscFree(lengths));
  PetscCall(ierr);
  if (bytes) { /* the columns go where they belong, and MatSeqAIJSetColumnIndices() finds them there */
    PetscCall(GpufmtPatternGet(C, &own_rowptr, &own_colidx));
    columns = (PetscInt *)own_colidx;
    PetscCall(GpufmtCopyToHost(pattern->backend, columns, pattern->colidx, bytes));
  }
  PetscCall(MatSeqAIJSetColumnIndices(C, columns));
  PetscCall(MatAssemblyBegin(C, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(C, MAT_FINAL_ASSEMBLY));
  PetscCall(MatSetOption(C, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE)); /* as the products of type aij: more entries may be inserted later */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* C, with its sizes and type set, gets the pattern, by GpufmtResultManaged()'s arrays if these are not NULL: GpufmtManagedSettle() follows then.
   Values are not set. */
PetscErrorCode GpufmtResultSetPattern(Mat C, const GpufmtPlannedPattern *pattern, GpufmtManaged *managed)
{
  PetscFunctionBegin;
  if (managed) PetscCall(GpufmtManagedAdopt(C, managed));
  else PetscCall(SetArrays(C, pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}
