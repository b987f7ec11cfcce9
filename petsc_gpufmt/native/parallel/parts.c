/* The sequential products that a parallel one is made of on this rank, and which of their rows make what. */
#include "parallel/parallel.h"

/* a sequential product */
typedef struct {
  int            product; /* GPUFMT_PRODUCT_... */
  MatProductType type;    /* PETSc's with as many operands */
  Mat            operands[GPUFMT_MAX_OPERANDS];
} Part;

/* part k, of the blocks of A as they are now */
static PetscErrorCode PartGet(const GpufmtParallelProduct *product, Mat A, int k, Part *part)
{
  Mat local = product->local.matrix, remote = product->remote.matrix, blocks[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  if (product->type == MATPRODUCT_AB)
    *part = (Part){
      GPUFMT_PRODUCT_AB, MATPRODUCT_AB, {blocks[k], k ? remote : local}
    };
  else if (product->type == MATPRODUCT_AtB)
    *part = (Part){
      GPUFMT_PRODUCT_ATB, MATPRODUCT_AtB, {blocks[k], local}
    };
  else if (k)
    *part = (Part){
      GPUFMT_PRODUCT_ATBC, MATPRODUCT_ABC, {local, blocks[1], remote}
    };
  else
    *part = (Part){
      GPUFMT_PRODUCT_PTAP, MATPRODUCT_PtAP, {blocks[0], local}
    };
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtPartsCreate(Mat C, GpufmtParallelProduct *product, Mat A)
{
  PetscInt noff;
  Mat      offdiag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, &offdiag, NULL));
  PetscCall(MatGetLocalSize(offdiag, NULL, &noff));
  for (int k = 0; k < (noff ? GPUFMT_MAX_PARTS : 1); k++) {
    Part part = {0};
    Mat *made = &product->parts[k];

    PetscCall(PartGet(product, A, k, &part));
    PetscCall(MatProductCreate(part.operands[0], part.operands[1], part.operands[2], made));
    PetscCall(MatSetOptionsPrefix(*made, ((PetscObject)C)->prefix));
    PetscCall(MatProductSetType(*made, part.type));
    PetscCall(GpufmtProductSymbolic(*made, part.product, product->backend, product->planned)); /* the options that choose an algorithm were for C */
    product->nparts = k + 1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Not by MatProductReplaceMats(): where blocks are of another type since the matrix was converted in place, that has the part planned anew, by PETSc.
   Plans only need the pattern, which the numeric phase compares. */
static PetscErrorCode OperandReplace(Mat operand, Mat *of_product)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectReference((PetscObject)operand));
  PetscCall(MatDestroy(of_product));
  *of_product = operand;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PartNumeric(const GpufmtParallelProduct *product, Mat A, int k)
{
  Part         part    = {0};
  Mat_Product *planned = product->parts[k]->product;

  PetscFunctionBegin;
  PetscCall(PartGet(product, A, k, &part));
  PetscCall(OperandReplace(part.operands[0], &planned->A));
  PetscCall(OperandReplace(part.operands[1], &planned->B));
  if (part.operands[2]) PetscCall(OperandReplace(part.operands[2], &planned->C));
  PetscCall(MatProductNumeric(product->parts[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows of other ranks arrive while the first part, which does not need them, is computed. If that fails, they arrive nevertheless: MPI would write
   into memory that goes with the product. Collective; what fails on this rank, or has failed before, *own, is not agreed on. */
PetscErrorCode GpufmtPartsNumeric(GpufmtParallelProduct *product, Mat A, PetscErrorCode *own)
{
  PetscFunctionBegin;
  if (product->remote.exchange) PetscCall(GpufmtValuesBegin(product->remote.exchange, product->local.matrix, product->remote.matrix, own));
  if (!*own) *own = PartNumeric(product, A, 0);
  if (product->remote.exchange) PetscCall(GpufmtValuesEnd(product->remote.exchange, product->local.matrix, product->remote.matrix, own));
  for (int k = 1; k < product->nparts && !*own; k++) *own = PartNumeric(product, A, k);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The matrices whose rows make those that are sent, or those of the result, always in the same order; returns how many. Rows of A^T B are
   either one or the other. Rows of the parts of B^T A B are numbered as the columns of `local`: of them the result has those that this rank owns. */
PetscInt GpufmtPartsSummands(const GpufmtParallelProduct *product, PetscBool to_be_sent, GpufmtSummand summands[])
{
  const GpufmtColumns *own = &product->local.columns, *remote = &product->remote.columns;
  PetscInt             n = 0;

  for (int k = 0; k < product->nparts; k++) {
    if (product->type == MATPRODUCT_AtB && (k == 1) != to_be_sent) continue;
    summands[n] = (GpufmtSummand){.matrix   = product->parts[k],
                                  .columns  = k && product->type != MATPRODUCT_AtB ? *remote : *own,
                                  .last_row = product->parts[k]->rmap->n};
    if (product->type == MATPRODUCT_PtAP) {
      summands[n].first_row = own->nlow;
      summands[n].last_row  = own->nlow + own->nown;
      summands[n].outside   = to_be_sent;
    }
    n++;
  }
  if (!to_be_sent && product->received.matrix)
    summands[n++] = (GpufmtSummand){.matrix = product->received.matrix, .columns = product->received.columns, .targets = product->received.rows};
  return n;
}
