/* Products of parallel matrices: sequential products of their blocks, whose entries are added up in the result by MatSetValuesCOO().

   With A = [Ad Ao] (diagonal and off-diagonal block), Bl the rows of B on this rank and Br those of other ranks that meet the columns of Ao:
     A B      Ad Bl + Ao Br
     A^T B    Ad^T Bl (own rows) + Ao^T Bl (rows of other ranks)
     B^T A B  Bl^T Ad Bl + Bl^T (Ao Br) (rows of any rank)
   The others come down to these: A B^T and B A B^T with B transposed, A B C with B C made first. PETSc's algorithm "backend" splits products
   in the same way, but keeps the blocks of the first operands: reused with other matrices, it is wrong. */
#include "mpirows.h"

#define MAX_PARTS 3

/* what an operand was in the symbolic phase, on this rank */
typedef struct {
  PetscObjectId    id;
  PetscObjectState state; /* of the nonzero pattern of the whole matrix */
  GpufmtPattern    blocks[2];
  uint64_t         ghosts; /* digest of the columns of the off-diagonal block */
} Operand;

typedef struct {
  Mat       product;
  PetscBool temporary; /* an operand of a later part, nothing of it is an entry of the result */
} Part;

typedef struct {
  MatProductType type;     /* AB, AtB or PtAP */
  Mat            second;   /* made operand: B^T, or B C; else NULL */
  Operand        operands[GPUFMT_MAX_OPERANDS];
  GpufmtRows     local, remote;
  Part           parts[MAX_PARTS];
  int            nparts;
  PetscCount     nentries; /* of all parts */
  PetscScalar   *entries;
} MPIProduct;

static PetscErrorCode MPIProductDestroy(GpufmtContextAddress data)
{
  MPIProduct *product = *(MPIProduct **)data;

  PetscFunctionBegin;
  if (!product) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < MAX_PARTS; k++) PetscCall(MatDestroy(&product->parts[k].product));
  PetscCall(GpufmtRowsDestroy(&product->local));
  PetscCall(GpufmtRowsDestroy(&product->remote));
  PetscCall(MatDestroy(&product->second));
  PetscCall(PetscFree(product->entries));
  PetscCall(PetscFree(product));
  *(MPIProduct **)data = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the patterns of the operands stay as they were at the symbolic phase ---- */

static PetscErrorCode OperandRecord(Mat A, Operand *operand)
{
  const PetscInt *garray;
  Mat             diag, offdiag;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetId((PetscObject)A, &operand->id));
  PetscCall(MatGetNonzeroState(A, &operand->state));
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, &offdiag, &garray));
  PetscCall(GpufmtPatternRecord(diag, &operand->blocks[0]));
  PetscCall(GpufmtPatternRecord(offdiag, &operand->blocks[1]));
  operand->ghosts = 0;
  for (PetscInt k = 0; k < operand->blocks[1].ncols; k++) operand->ghosts = (operand->ghosts ^ (uint64_t)garray[k]) * UINT64_C(0x9E3779B97F4A7C15);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool SamePattern(const Operand *a, const Operand *b)
{
  for (int k = 0; k < 2; k++) {
    const GpufmtPattern *p = &a->blocks[k], *q = &b->blocks[k];

    if (p->nrows != q->nrows || p->ncols != q->ncols || p->nnz != q->nnz || p->digest != q->digest) return PETSC_FALSE;
  }
  return (PetscBool)(a->ghosts == b->ghosts);
}

/* An error on all ranks if the pattern is another one on any. Digests are only compared when the matrix is another one, or PETSc has counted
   a change of its pattern; both are so on all ranks or on none. */
static PetscErrorCode OperandCheck(Mat C, Mat A, char letter, Operand *operand)
{
  Operand          now;
  PetscObjectId    id;
  PetscObjectState state;
  PetscBool        same;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetId((PetscObject)A, &id));
  PetscCall(MatGetNonzeroState(A, &state));
  if (PetscLikely(id == operand->id && state == operand->state)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(OperandRecord(A, &now));
  same = SamePattern(&now, operand);
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_C_BOOL, MPI_LAND, PetscObjectComm((PetscObject)C)));
  PetscCheck(same, PetscObjectComm((PetscObject)C), PETSC_ERR_ARG_WRONGSTATE, "Sparse product %s: the pattern of %c has changed since the symbolic phase: values alone may change under MAT_REUSE_MATRIX and MatProductNumeric(); make the product anew with MAT_INITIAL_MATRIX",
             MatProductTypes[C->product->type], letter);
  *operand = now;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the operand that is made of others ---- */

static PetscErrorCode MatProductSymbolic_MPIAIJGpufmt(Mat);

static PetscErrorCode SecondCreate(Mat C, MPIProduct *product)
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
    PetscCall(MatProductSymbolic_MPIAIJGpufmt(product->second));
    break;
  default:
    product->type = given->type;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SecondUpdate(Mat C, MPIProduct *product)
{
  const Mat_Product *given = C->product;

  PetscFunctionBegin;
  if (!product->second) PetscFunctionReturn(PETSC_SUCCESS);
  if (given->type == MATPRODUCT_ABC) {
    PetscCall(MatProductReplaceMats(given->B, given->C, NULL, product->second));
    PetscCall(MatProductNumeric(product->second));
  } else {
    PetscCall(MatTransposeSetPrecursor(given->B, product->second));
    PetscCall(MatTranspose(given->B, MAT_REUSE_MATRIX, &product->second));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the sequential products ---- */

/* operands of part k, as they are now; MATPRODUCT_UNSPECIFIED if this rank has no such part */
static PetscErrorCode PartOperands(const MPIProduct *product, Mat A, int k, MatProductType *type, Mat *left, Mat *right)
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
    *right = product->parts[1].product;
  } else if (k == 2) *type = MATPRODUCT_UNSPECIFIED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PartsCreate(Mat C, MPIProduct *product, Mat A)
{
  PetscFunctionBegin;
  for (int k = 0; k < MAX_PARTS; k++) {
    Part          *part = &product->parts[k];
    MatProductType type;
    Mat            left, right;

    PetscCall(PartOperands(product, A, k, &type, &left, &right));
    if (type == MATPRODUCT_UNSPECIFIED) break;
    PetscCall(MatProductCreate(left, right, NULL, &part->product));
    PetscCall(MatSetOptionsPrefix(part->product, ((PetscObject)C)->prefix));
    PetscCall(MatProductSetType(part->product, type));
    PetscCall(MatProductSymbolic_SeqAIJGpufmt(part->product)); /* the options that choose an algorithm were for C */
    part->temporary = (PetscBool)(k == 1 && product->type == MATPRODUCT_PtAP);
    product->nparts = k + 1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows and columns of all entries of the parts in the result. The values of part after part come in the same order later. */
static PetscErrorCode PartsCoordinates(MPIProduct *product, Mat A, PetscInt **coo_i, PetscInt **coo_j)
{
  const PetscInt *garray;
  PetscCount      n = 0;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, NULL, &garray));
  for (int pass = 0; pass < 2; pass++) {
    for (int k = 0; k < product->nparts; k++) {
      const PetscBool  local_columns = (PetscBool)(k == 0 || product->type == MATPRODUCT_AtB);
      const PetscInt  *columns       = local_columns ? product->local.columns : product->remote.columns;
      const PetscInt  *rows          = NULL, *rowptr, *colidx; /* NULL: those of this rank */
      const PetscInt   nrows = product->parts[k].product->rmap->n;
      PetscInt         first_row = A->rmap->rstart;

      if (product->parts[k].temporary) continue;
      if (product->type == MATPRODUCT_PtAP) rows = product->local.columns;
      else if (product->type == MATPRODUCT_AtB) {
        first_row = A->cmap->rstart;
        if (k) rows = garray;
      }
      PetscCall(GpufmtPatternGet(product->parts[k].product, &rowptr, &colidx));
      if (!pass) n += rowptr[nrows];
      for (PetscInt i = 0; pass && i < nrows; i++) {
        for (PetscInt e = rowptr[i]; e < rowptr[i + 1]; e++, n++) {
          (*coo_i)[n] = rows ? rows[i] : first_row + i;
          (*coo_j)[n] = columns[colidx[e]];
        }
      }
      PetscCall(GpufmtPatternRestore(product->parts[k].product, &rowptr, &colidx));
    }
    if (pass) break;
    product->nentries = n;
    PetscCall(PetscMalloc2(n, coo_i, n, coo_j));
    n = 0;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PartsNumeric(MPIProduct *product, Mat A)
{
  PetscCount n = 0;

  PetscFunctionBegin;
  for (int k = 0; k < product->nparts; k++) {
    Mat                part = product->parts[k].product, left, right;
    const PetscScalar *values;
    const PetscInt    *rowptr, *colidx;
    MatProductType     type;

    PetscCall(PartOperands(product, A, k, &type, &left, &right));
    PetscCall(MatProductReplaceMats(left, right, NULL, part));
    PetscCall(MatProductNumeric(part));
    if (product->parts[k].temporary) continue;
    PetscCall(GpufmtPatternGet(part, &rowptr, &colidx));
    PetscCall(MatSeqAIJGetArrayRead(part, &values));
    PetscCall(PetscArraycpy(product->entries + n, values, rowptr[part->rmap->n]));
    PetscCall(MatSeqAIJRestoreArrayRead(part, &values));
    n += rowptr[part->rmap->n];
    PetscCall(GpufmtPatternRestore(part, &rowptr, &colidx));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the parallel product ---- */

static PetscErrorCode MatProductNumeric_MPIAIJGpufmt(Mat C)
{
  const Mat_Product *given = C->product;
  MPIProduct        *product;
  Mat                operands[GPUFMT_MAX_OPERANDS], B;
  int                n;

  PetscFunctionBegin;
  MatCheckProduct(C, 1);
  product = (MPIProduct *)given->data;
  PetscCheck(product, PetscObjectComm((PetscObject)C), PETSC_ERR_ARG_WRONGSTATE, "The product %s has no symbolic phase, or MatProductClear() was called since: call MatProductSymbolic()", MatProductTypes[given->type]);
  n = GpufmtProductOperands(given, operands);
  for (int k = 0; k < n; k++) PetscCall(OperandCheck(C, operands[k], GpufmtProductLetters(given->type)[k], &product->operands[k]));
  PetscCall(SecondUpdate(C, product));
  B = product->second ? product->second : given->B;
  PetscCall(GpufmtRowsUpdateLocal(B, &product->local));
  if (product->remote.exchange) PetscCall(GpufmtRowsUpdateRemote(&product->local, &product->remote));
  PetscCall(PartsNumeric(product, given->A));
  PetscCall(MatSetValuesCOO(C, product->entries, INSERT_VALUES));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CheckLayouts(Mat C, MatProductType type, Mat A, Mat B)
{
  const PetscBool rows_meet = (PetscBool)(type != MATPRODUCT_AB), columns_meet = (PetscBool)(type != MATPRODUCT_AtB);

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    const PetscLayout map = k ? A->cmap : A->rmap;

    if (!(k ? columns_meet : rows_meet)) continue;
    PetscCheck(map->rstart == B->rmap->rstart && map->rend == B->rmap->rend, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ, "The product %s needs %s of A and rows of B on the same ranks: this rank has [%" PetscInt_FMT ", %" PetscInt_FMT ") of A and [%" PetscInt_FMT ", %" PetscInt_FMT ") of B", MatProductTypes[C->product->type],
               k ? "columns" : "rows", map->rstart, map->rend, B->rmap->rstart, B->rmap->rend);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* sizes, block sizes and type of the result */
static PetscErrorCode ResultSetUp(Mat C, MatProductType type, Mat A, Mat B)
{
  const PetscLayout rows = type == MATPRODUCT_AB ? A->rmap : type == MATPRODUCT_AtB ? A->cmap : B->cmap;

  PetscFunctionBegin;
  PetscCall(MatSetSizes(C, rows->n, B->cmap->n, rows->N, B->cmap->N));
  PetscCall(PetscLayoutSetUp(C->rmap));
  PetscCall(PetscLayoutSetUp(C->cmap));
  PetscCall(MatSetBlockSizes(C, rows->bs, B->cmap->bs));
  PetscCall(MatSetType(C, ((PetscObject)A)->type_name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the sequential type of the rows: ours, if one operand is of ours */
static PetscErrorCode BlockType(Mat A, Mat B, MatType *type)
{
  Mat diag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  PetscCall(MatGetType(diag, type));
  if (GpufmtFormatFind(*type)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatMPIAIJGetSeqAIJ(B, &diag, NULL, NULL));
  PetscCall(MatGetType(diag, type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RowsCreate(MPIProduct *product, Mat A, Mat B)
{
  const PetscInt *garray;
  PetscInt        noff;
  PetscMPIInt     size;
  MatType         type;
  Mat             offdiag;

  PetscFunctionBegin;
  PetscCall(BlockType(A, B, &type));
  PetscCall(GpufmtRowsGetLocal(B, type, &product->local));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)A), &size));
  if (size > 1 && product->type != MATPRODUCT_AtB) {
    PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, &offdiag, &garray));
    PetscCall(MatGetLocalSize(offdiag, NULL, &noff));
    PetscCall(GpufmtRowsGetRemote(B, noff, garray, &product->local, type, &product->remote));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A rank that fails alone, for want of memory say, must not leave the others waiting for it. */
static PetscErrorCode FailTogether(Mat C, PetscErrorCode own)
{
  int worst = (int)own;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, PetscObjectComm((PetscObject)C)));
  PetscCall(own);
  PetscCheck(!worst, PETSC_COMM_SELF, (PetscErrorCode)worst, "Sparse product %s: the symbolic phase failed on another rank, which says why", MatProductTypes[C->product->type]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatProductSymbolic_MPIAIJGpufmt(Mat C)
{
  const Mat_Product *given = C->product;
  PetscInt          *coo_i, *coo_j;
  MPIProduct        *product;
  Mat                operands[GPUFMT_MAX_OPERANDS], A = given->A, B;
  const int          n = GpufmtProductOperands(given, operands);

  PetscFunctionBegin;
  PetscCall(PetscNew(&product));
  C->product->data    = product;
  C->product->destroy = MPIProductDestroy;
  for (int k = 0; k < n; k++) PetscCall(OperandRecord(operands[k], &product->operands[k]));
  PetscCall(SecondCreate(C, product));
  B = product->second ? product->second : given->B;
  PetscCall(CheckLayouts(C, product->type, A, B));
  PetscCall(RowsCreate(product, A, B));
  PetscCall(FailTogether(C, PartsCreate(C, product, A)));
  PetscCall(PartsCoordinates(product, A, &coo_i, &coo_j));
  PetscCall(PetscMalloc1(product->nentries, &product->entries));
  PetscCall(PetscInfo(C, "rmerge, parallel %s: %d sequential products on this rank with %" PetscCount_FMT " entries\n", MatProductTypes[given->type], product->nparts, product->nentries));
  PetscCall(ResultSetUp(C, product->type, A, B));
  PetscCall(MatSetPreallocationCOO(C, product->nentries, coo_i, coo_j));
  PetscCall(PetscFree2(coo_i, coo_j));
  C->ops->productnumeric = MatProductNumeric_MPIAIJGpufmt;
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
