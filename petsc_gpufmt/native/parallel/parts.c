/* The sequential products that a parallel one is made of on this rank, and which of their rows make what. */
#include "parallel/parallel.h"

/* operands of part k, as they are now; MATPRODUCT_UNSPECIFIED if this rank has no such part */
static PetscErrorCode PartOperands(const GpufmtParallelProduct *product, Mat A, int k, MatProductType *type, Mat *left, Mat *right)
{
  PetscInt noff;
  Mat      diag, offdiag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, &offdiag, NULL));
  PetscCall(MatGetLocalSize(offdiag, NULL, &noff));
  *type  = product->type;
  *left  = k ? offdiag : diag;
  *right = product->local.matrix;
  if (k && !noff) *type = MATPRODUCT_UNSPECIFIED;
  else if (k == 1 && product->type != MATPRODUCT_AtB) {
    *type  = MATPRODUCT_AB;
    *right = product->remote.matrix;
  } else if (k == 2 && product->type == MATPRODUCT_PtAP) {
    *type  = MATPRODUCT_AtB;
    *left  = product->local.matrix;
    *right = product->parts[1];
  } else if (k == 2) *type = MATPRODUCT_UNSPECIFIED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtPartsCreate(Mat C, GpufmtParallelProduct *product, Mat A)
{
  PetscFunctionBegin;
  for (int k = 0; k < GPUFMT_MAX_PARTS; k++) {
    MatProductType type = MATPRODUCT_UNSPECIFIED;
    Mat            left = NULL, right = NULL, *part = &product->parts[k];

    PetscCall(PartOperands(product, A, k, &type, &left, &right));
    if (type == MATPRODUCT_UNSPECIFIED) break;
    PetscCall(MatProductCreate(left, right, NULL, part));
    PetscCall(MatSetOptionsPrefix(*part, ((PetscObject)C)->prefix));
    PetscCall(MatProductSetType(*part, type));
    PetscCall(GpufmtProductSymbolic(*part, product->backend)); /* the options that choose an algorithm were for C */
    product->nparts = k + 1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PartNumeric(const GpufmtParallelProduct *product, Mat A, int k)
{
  MatProductType type;
  Mat            left = NULL, right = NULL;

  PetscFunctionBegin;
  PetscCall(PartOperands(product, A, k, &type, &left, &right));
  PetscCall(MatProductReplaceMats(left, right, NULL, product->parts[k]));
  PetscCall(MatProductNumeric(product->parts[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* rows of other ranks arrive while the first part, which does not need them, is computed */
PetscErrorCode GpufmtPartsNumeric(GpufmtParallelProduct *product, Mat A)
{
  PetscFunctionBegin;
  if (product->remote.exchange) PetscCall(GpufmtRowsExchangeBegin(product->backend, &product->local, &product->remote));
  PetscCall(PartNumeric(product, A, 0));
  if (product->remote.exchange) PetscCall(GpufmtRowsExchangeEnd(product->backend, &product->local, &product->remote));
  for (int k = 1; k < product->nparts; k++) PetscCall(PartNumeric(product, A, k));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The matrices whose rows make those that are sent, or those of the result, always in the same order; returns how many. Rows of A^T B are
   either one or the other, those of B^T A B are told apart by `targets`. */
PetscInt GpufmtPartsSummands(const GpufmtParallelProduct *product, PetscBool to_be_sent, const PetscInt targets[], GpufmtSummand summands[])
{
  const PetscInt *own = product->local.columns, *remote = product->remote.columns;
  PetscInt        n = 0;

  for (int k = 0; k < product->nparts; k++) {
    if (product->type == MATPRODUCT_PtAP && k == 1) continue; /* only an operand of part 2 */
    if (product->type == MATPRODUCT_AtB && (k == 1) != to_be_sent) continue;
    summands[n++] = (GpufmtSummand){.matrix = product->parts[k], .columns = k && product->type != MATPRODUCT_AtB ? remote : own, .targets = targets};
  }
  if (!to_be_sent && product->received.matrix)
    summands[n++] = (GpufmtSummand){.matrix = product->received.matrix, .columns = product->received.columns, .targets = product->received.rows};
  return n;
}
