/* MatProduct with partners that are not AIJ. Products of our types among themselves and with AIJ use the parent's algorithms, because all
   share the parent's productsetfromoptions; with dense, MAIJ, nest and others PETSc looks up the pair of type names, and ours are unknown there. */
#include "gpufmt_impl.h"

static PetscErrorCode BaseName(Mat A, const char **name)
{
  PetscBool ours;

  PetscFunctionBegin;
  *name = ((PetscObject)A)->type_name;
  ours  = (PetscBool)(GpufmtFormatFind(*name) != NULL);
  if (ours) *name = strncmp(*name, "mpi", 3) ? MATSEQAIJ : MATMPIAIJ;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the "anytype" hook: asks again with our type names replaced by the parent's, then lets the partner's own hook decide */
PetscErrorCode MatProductSetFromOptions_Gpufmt(Mat C)
{
  Mat_Product *product = C->product;
  Mat          operands[3] = {product->A, product->B, product->type == MATPRODUCT_ABC ? product->C : NULL};
  char         name[256];
  PetscErrorCode (*set)(Mat) = NULL;

  PetscFunctionBegin;
  PetscCall(PetscStrncpy(name, "MatProductSetFromOptions", sizeof(name)));
  for (int k = 0; k < 3 && operands[k]; k++) {
    const char *base;

    PetscCall(BaseName(operands[k], &base));
    PetscCall(PetscStrlcat(name, "_", sizeof(name)));
    PetscCall(PetscStrlcat(name, base, sizeof(name)));
  }
  PetscCall(PetscStrlcat(name, "_C", sizeof(name)));
  for (int k = 0; k < 3 && operands[k] && !set; k++) PetscCall(PetscObjectQueryFunction((PetscObject)operands[k], name, &set));
  PetscCall(PetscInfo(C, "%s %s\n", name, set ? "found" : "not found"));
  if (set) PetscCall((*set)(C));
  for (int k = 0; k < 3 && operands[k] && !C->ops->productsymbolic; k++) {
    PetscErrorCode (*hook)(Mat) = NULL;

    PetscCall(PetscObjectQueryFunction((PetscObject)operands[k], "MatProductSetFromOptions_anytype_C", &hook));
    if (hook && hook != MatProductSetFromOptions_Gpufmt) PetscCall((*hook)(C));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
