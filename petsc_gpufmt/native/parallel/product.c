/* Products of parallel matrices: sequential products of their blocks, whose entries are added up in the result.

   With A = [diag offdiag], local the rows of B on this rank and remote those of other ranks that meet the columns of offdiag:
     A B      diag local + offdiag remote
     A^T B    diag^T local (own rows) + offdiag^T local (rows of other ranks)
     B^T A B  local^T diag local + local^T offdiag remote (rows of any rank)
   The others come down to these: A B^T and B A B^T with B transposed, A B C with B C made first. What several products make of a row of
   another rank is added up before it is sent. The numeric phase replays plans and exchanges values, all of it where the values are.
   PETSc's algorithm "backend" splits products in the same way, but keeps the blocks of the first operands: reused with other matrices, it
   is wrong. */
#include "parallel/parallel.h"

static PetscErrorCode MPIProductDestroy(void *given)
{
  GpufmtParallelProduct *product = (GpufmtParallelProduct *)GpufmtProductTake(given);

  PetscFunctionBegin;
  if (!product) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < GPUFMT_MAX_PARTS; k++) PetscCall(MatDestroy(&product->parts[k]));
  PetscCall(GpufmtRowsDestroy(&product->local));
  PetscCall(GpufmtRowsDestroy(&product->remote));
  PetscCall(GpufmtRowsDestroy(&product->sent));
  PetscCall(GpufmtRowsDestroy(&product->received));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtEntrySumDestroy(&product->sums[k]));
  for (int k = 0; k < GPUFMT_MAX_OPERANDS; k++) PetscCall(GpufmtProductDestroy(&product->operands[k].blocks));
  PetscCall(MatDestroy(&product->second));
  PetscCall(PetscFree(product));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the operand that is made of others ---- */

static PetscErrorCode ProductSymbolic(Mat, MatType);

static PetscErrorCode SecondCreate(Mat C, GpufmtParallelProduct *product, MatType type)
{
  const Mat_Product *given = C->product;

  PetscFunctionBegin;
  switch (given->type) {
  case MATPRODUCT_ABt:
  case MATPRODUCT_RARt:
    product->type = given->type == MATPRODUCT_ABt ? MATPRODUCT_AB : MATPRODUCT_PtAP;
    PetscCall(MatTranspose(given->B, MAT_INITIAL_MATRIX, &product->second));
    break;
  case MATPRODUCT_ABC:
    product->type = MATPRODUCT_AB;
    PetscCall(MatProductCreate(given->B, given->C, NULL, &product->second));
    PetscCall(MatSetOptionsPrefix(product->second, ((PetscObject)C)->prefix));
    PetscCall(MatProductSetType(product->second, MATPRODUCT_AB));
    PetscCall(ProductSymbolic(product->second, type));
    break;
  default: product->type = given->type;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Collective in PETSc, so what has failed before on this rank, `own`, fails on all before that. */
static PetscErrorCode SecondUpdate(Mat C, GpufmtParallelProduct *product, PetscErrorCode own)
{
  const Mat_Product *given = C->product;

  PetscFunctionBegin;
  PetscCall(GpufmtFailTogether(C, own));
  if (given->type == MATPRODUCT_ABC) {
    PetscCall(MatProductReplaceMats(given->B, given->C, NULL, product->second));
    PetscCall(MatProductNumeric(product->second));
  } else {
    PetscCall(MatTransposeSetPrecursor(given->B, product->second));
    PetscCall(MatTranspose(given->B, MAT_REUSE_MATRIX, &product->second));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatProductNumeric_MPIAIJGpufmt(Mat C)
{
  const Mat_Product     *given = C->product;
  GpufmtParallelProduct *product;
  Mat                    B;
  PetscErrorCode         own;

  PetscFunctionBegin;
  MatCheckProduct(C, 1);
  product = (GpufmtParallelProduct *)given->data;
  PetscCheck(product, PetscObjectComm((PetscObject)C), PETSC_ERR_ARG_WRONGSTATE,
             "The product %s has no symbolic phase, or MatProductClear() was called since: call MatProductSymbolic()", MatProductTypes[given->type]);
  own = GpufmtParallelPatternsCheck(C, product->operands, &product->result);
  if (product->second) PetscCall(SecondUpdate(C, product, own));
  B = product->second ? product->second : given->B;
  if (!own) own = GpufmtRowsUpdateLocal(B, &product->local);
  PetscCall(GpufmtPartsNumeric(product, given->A, &own));
  PetscCall(GpufmtResultNumeric(C, product, own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CheckLayouts(Mat C, MatProductType type, Mat A, Mat B)
{
  const PetscBool rows_meet = (PetscBool)(type != MATPRODUCT_AB), columns_meet = (PetscBool)(type != MATPRODUCT_AtB);

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    const PetscLayout map = k ? A->cmap : A->rmap;

    if (!(k ? columns_meet : rows_meet)) continue;
    PetscCheck(map->rstart == B->rmap->rstart && map->rend == B->rmap->rend, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
               "The product %s needs %s of A and rows of B on the same ranks: this rank has [%" PetscInt_FMT ", %" PetscInt_FMT
               ") of A and [%" PetscInt_FMT ", %" PetscInt_FMT ") of B",
               MatProductTypes[C->product->type], k ? "columns" : "rows", map->rstart, map->rend, B->rmap->rstart, B->rmap->rend);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the rows of B on this rank */
static PetscErrorCode LocalCreate(Mat C, GpufmtParallelProduct *product, Mat A, Mat B, MatType type)
{
  PetscFunctionBegin;
  PetscCall(CheckLayouts(C, product->type, A, B));
  PetscCall(GpufmtRowsGetLocal(B, type, product->backend, &product->local));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sequential products, and what the operands are now, on this rank. Products digest the blocks of A beside the planner. */
static PetscErrorCode PartsCreate(Mat C, GpufmtParallelProduct *product, Mat A)
{
  Mat       operands[GPUFMT_MAX_OPERANDS];
  const int n = GpufmtProductOperands(C->product, operands);

  PetscFunctionBegin;
  PetscCall(GpufmtPartsCreate(C, product, A));
  PetscCall(GpufmtLeaseDrop(&product->local.pattern)); /* they hold what they need of it */
  for (int k = 0; k < n; k++) PetscCall(GpufmtParallelPatternRecord(operands[k], &product->operands[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows of B: those of this rank, then those of others. Collective; what fails in the end on this rank, *own, is not agreed on. */
static PetscErrorCode RowsCreate(Mat C, GpufmtParallelProduct *product, Mat A, Mat B, MatType type, PetscErrorCode *own)
{
  const PetscInt *garray;
  PetscMPIInt     size;
  Mat             offdiag;

  PetscFunctionBegin;
  *own = LocalCreate(C, product, A, B, type);
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)A), &size));
  if (size > 1 && product->type != MATPRODUCT_AtB) {
    PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, &offdiag, &garray));
    PetscCall(GpufmtRowsGetRemote(C, B, offdiag->cmap->n, garray, &product->local, type, product->backend, &product->remote, own));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `type`: that of the sequential matrices between operands and result */
static PetscErrorCode ProductSymbolic(Mat C, MatType type)
{
  const Mat_Product     *given   = C->product;
  GpufmtParallelProduct *product = NULL;
  Mat                    A       = given->A, B;
  PetscErrorCode         own;

  PetscFunctionBegin;
  own = PetscNew(&product);
  own = GpufmtAgree((PetscObject)C, "A sparse product", own, 0, NULL);
  if (own) PetscCall(PetscFree(product));
  PetscCall(own);
  C->product->data    = product;
  C->product->destroy = MPIProductDestroy;
  PetscCall(GpufmtProductBackend(C, &product->backend));
  PetscCall(GpufmtResultPlanned(C, product->backend, &product->planned));
  PetscCall(SecondCreate(C, product, type));
  B = product->second ? product->second : given->B;
  PetscCall(RowsCreate(C, product, A, B, type, &own));
  if (!own) own = PartsCreate(C, product, A);
  PetscCall(GpufmtResultCreate(C, product, A, B, type, own));
  PetscCall(PetscInfo(C, "rmerge, parallel %s: %d sequential products on this rank\n", MatProductTypes[given->type], product->nparts));
  C->ops->productnumeric = MatProductNumeric_MPIAIJGpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatProductSymbolic_MPIAIJGpufmt(Mat C)
{
  Mat     operands[GPUFMT_MAX_OPERANDS];
  MatType type = MATSEQAIJ;

  PetscFunctionBegin;
  for (int k = GpufmtProductOperands(C->product, operands) - 1; k >= 0; k--) {
    const GpufmtFormat *format = GpufmtFormatFind(((PetscObject)operands[k])->type_name);

    if (format) type = format->seq_type; /* at least one operand is of ours */
  }
  PetscCall(ProductSymbolic(C, type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the operation of all our parallel types; one for all, so that they mix */
PetscErrorCode MatProductSetFromOptions_MPIAIJGpufmt(Mat C)
{
  PetscBool ours;

  PetscFunctionBegin;
  PetscCall(GpufmtProductChoose(C, PETSC_TRUE, &ours));
  if (ours) C->ops->productsymbolic = MatProductSymbolic_MPIAIJGpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}
