/* Results of sparse products with managed arrays. */
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
