/* Who makes a sparse product of AIJ matrices of which one at least is of our types: RMerge on the device; on the host, where PETSc's own
   algorithms are faster, these, unless the user asks for RMerge. With dense, MAIJ, nest and other partners PETSc looks up the pair of type names, and ours are unknown there. */
#include "product/product.h"

static PetscErrorCode BaseName(Mat A, const char **name)
{
  PetscBool ours;

  PetscFunctionBegin;
  *name = ((PetscObject)A)->type_name;
  ours  = (PetscBool)(GpufmtFormatFind(*name) != NULL);
  if (ours) *name = strncmp(*name, "mpi", 3) ? MATSEQAIJ : MATMPIAIJ;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* lets the parent choose, with its options or without: a word that it does not know would be an error there */
static PetscErrorCode ParentSetFromOptions(Mat C, PetscBool parallel, PetscBool with_options)
{
  const struct _MatOps *parent = parallel ? gpufmt_mpi_parent : gpufmt_seq_parent;
  PetscOptions          empty;

  PetscFunctionBegin;
  if (with_options) PetscCall((*parent->productsetfromoptions)(C));
  else {
    PetscCall(PetscOptionsCreate(&empty));
    PetscCall(PetscOptionsPush(empty));
    PetscCall(MatProductSetAlgorithm(C, MATPRODUCTALGORITHMDEFAULT));
    PetscCall((*parent->productsetfromoptions)(C));
    PetscCall(PetscOptionsPop());
    PetscCall(PetscOptionsDestroy(&empty));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On the device, unless a matrix of ours is bound to the CPU. -mat_bind_below looks at the rows of each rank: a product is on the host if one
   rank has it there. Collective. */
PetscErrorCode GpufmtProductBackend(Mat C, int *backend)
{
  int on_device = GpufmtDeviceUsable();
#if PetscDefined(HAVE_DEVICE)
  Mat       operands[GPUFMT_MAX_OPERANDS];
  const int n = GpufmtProductOperands(C->product, operands);

  for (int k = 0; k < n; k++)
    if (operands[k]->boundtocpu && GpufmtFormatFind(((PetscObject)operands[k])->type_name)) on_device = 0;
#endif

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &on_device, 1, MPI_INT, MPI_MIN, PetscObjectComm((PetscObject)C)));
  *backend = on_device ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether the product is ours to make; else the parent's algorithm has been chosen */
PetscErrorCode GpufmtProductChoose(Mat C, PetscBool parallel, PetscBool *ours)
{
  GpufmtProductAlgorithm algorithm = GPUFMT_ALGORITHM_PARENT;

  PetscFunctionBegin;
  *ours = PETSC_FALSE;
  if (C->product->type == MATPRODUCT_UNSPECIFIED) PetscFunctionReturn(PETSC_SUCCESS);
  if (!C->structure_only && !C->force_diagonals) PetscCall(GpufmtProductAlgorithmGet(C, &algorithm)); /* these two only the parent knows */
  if (algorithm == GPUFMT_ALGORITHM_UNSPECIFIED) {
    PetscBool same_type;
    int       backend;

    PetscCall(PetscStrcmp(((PetscObject)C->product->A)->type_name, ((PetscObject)C->product->B)->type_name, &same_type));
    PetscCall(GpufmtProductBackend(C, &backend));
    if (backend == GPUFMT_BACKEND_CUDA) algorithm = GPUFMT_ALGORITHM_OURS;
    else if (C->product->type == MATPRODUCT_ABt && !same_type) algorithm = GPUFMT_ALGORITHM_OURS; /* the parent's ends in a segmentation violation */
    else algorithm = GPUFMT_ALGORITHM_PARENT;
  }
  *ours = (PetscBool)(algorithm == GPUFMT_ALGORITHM_OURS);
  if (*ours) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtManagedLeave(C)); /* a result of ours: PETSc's symbolic phases would free lengths of rows */
  PetscCall(ParentSetFromOptions(C, parallel, (PetscBool)(algorithm == GPUFMT_ALGORITHM_PARENT)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the operation of all our sequential types; one for all, so that they mix */
PetscErrorCode MatProductSetFromOptions_SeqAIJGpufmt(Mat C)
{
  PetscBool ours;

  PetscFunctionBegin;
  PetscCall(GpufmtProductChoose(C, PETSC_FALSE, &ours));
  if (ours) C->ops->productsymbolic = MatProductSymbolic_SeqAIJGpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether the types of all operands are derived from `base` */
static PetscErrorCode AllDerivedFrom(const Mat_Product *product, MatType base, PetscBool *all)
{
  Mat       operands[GPUFMT_MAX_OPERANDS];
  const int n = GpufmtProductOperands(product, operands);

  PetscFunctionBegin;
  *all = PETSC_TRUE;
  for (int k = 0; k < n && *all; k++) PetscCall(PetscObjectBaseTypeCompare((PetscObject)operands[k], base, all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the "anytype" hook: AIJ matrices of several types, then asks again with our type names replaced by the parent's, then lets the partner's own hook decide */
PetscErrorCode MatProductSetFromOptions_Gpufmt(Mat C)
{
  Mat_Product *product = C->product;
  Mat          operands[GPUFMT_MAX_OPERANDS];
  const int    n = GpufmtProductOperands(product, operands);
  char         name[256];
  PetscBool    all;
  PetscErrorCode (*set)(Mat) = NULL;

  PetscFunctionBegin;
  PetscCall(AllDerivedFrom(product, MATSEQAIJ, &all));
  if (all) {
    PetscCall(MatProductSetFromOptions_SeqAIJGpufmt(C));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(AllDerivedFrom(product, MATMPIAIJ, &all));
  if (all) {
    PetscCall((*gpufmt_product_ops.mpi)(C));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscStrncpy(name, "MatProductSetFromOptions", sizeof(name)));
  for (int k = 0; k < n; k++) {
    const char *base;

    PetscCall(BaseName(operands[k], &base));
    PetscCall(PetscStrlcat(name, "_", sizeof(name)));
    PetscCall(PetscStrlcat(name, base, sizeof(name)));
  }
  PetscCall(PetscStrlcat(name, "_C", sizeof(name)));
  for (int k = 0; k < n && !set; k++) PetscCall(PetscObjectQueryFunction((PetscObject)operands[k], name, &set));
  PetscCall(PetscInfo(C, "%s %s\n", name, set ? "found" : "not found"));
  if (set) PetscCall((*set)(C));
  for (int k = 0; k < n && !C->ops->productsymbolic; k++) {
    PetscErrorCode (*hook)(Mat) = NULL;

    PetscCall(PetscObjectQueryFunction((PetscObject)operands[k], "MatProductSetFromOptions_anytype_C", &hook));
    if (hook && hook != MatProductSetFromOptions_Gpufmt) PetscCall((*hook)(C));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
