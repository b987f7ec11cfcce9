/* Products of parallel matrices: sequential products of their blocks, whose entries are added up in the result.

   With A = [Ad Ao] (diagonal and off-diagonal block), Bl the rows of B on this rank and Br those of other ranks that meet the columns of Ao:
     A B      Ad Bl + Ao Br
     A^T B    Ad^T Bl (own rows) + Ao^T Bl (rows of other ranks)
     B^T A B  Bl^T Ad Bl + Bl^T (Ao Br) (rows of any rank)
   The others come down to these: A B^T and B A B^T with B transposed, A B C with B C made first. What several products make of a row of
   another rank is added up before it is sent. The numeric phase replays plans and exchanges values, all of it where the values are.
   PETSc's algorithm "backend" splits products in the same way, but keeps the blocks of the first operands: reused with other matrices, it
   is wrong. */
#include "mpipattern.h"
#include "mpirows.h"

#define MAX_PARTS 3

typedef struct {
  MatProductType        type; /* AB, AtB or PtAP */
  int                   backend;
  GpufmtParallelPattern operands[GPUFMT_MAX_OPERANDS];
  GpufmtResultPattern   result;
  Mat                   second;        /* made operand: B^T, or B C; else NULL */
  GpufmtRows            local, remote; /* rows of the second operand */
  Mat                   parts[MAX_PARTS];
  int                   nparts;
  GpufmtRows            sent, received; /* rows of the result that another rank owns */
  GpufmtSum            *sums[2];        /* that make the blocks of the result */
  GpufmtManaged        *managed[2];     /* arrays of these blocks, until they have them */
} MPIProduct;

static PetscErrorCode MPIProductDestroy(GpufmtContextAddress data)
{
  MPIProduct *product = *(MPIProduct **)data;

  PetscFunctionBegin;
  if (!product) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < MAX_PARTS; k++) PetscCall(MatDestroy(&product->parts[k]));
  PetscCall(GpufmtRowsDestroy(&product->local));
  PetscCall(GpufmtRowsDestroy(&product->remote));
  PetscCall(GpufmtRowsDestroy(&product->sent));
  PetscCall(GpufmtRowsDestroy(&product->received));
  for (int k = 0; k < 2; k++) {
    PetscCall(GpufmtSumDestroy(&product->sums[k]));
    PetscCall(GpufmtManagedRelease(&product->managed[k]));
  }
  for (int k = 0; k < GPUFMT_MAX_OPERANDS; k++) PetscCall(GpufmtProductDestroy(&product->operands[k].blocks));
  PetscCall(MatDestroy(&product->second));
  PetscCall(PetscFree(product));
  *(MPIProduct **)data = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the operand that is made of others ---- */

static PetscErrorCode ProductSymbolic(Mat, MatType);

static PetscErrorCode SecondCreate(Mat C, MPIProduct *product, MatType type)
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
    *right = product->parts[1];
  } else if (k == 2) *type = MATPRODUCT_UNSPECIFIED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PartsCreate(Mat C, MPIProduct *product, Mat A)
{
  PetscFunctionBegin;
  for (int k = 0; k < MAX_PARTS; k++) {
    MatProductType type = MATPRODUCT_UNSPECIFIED;
    Mat            left = NULL, right = NULL, *part = &product->parts[k];

    PetscCall(PartOperands(product, A, k, &type, &left, &right));
    if (type == MATPRODUCT_UNSPECIFIED) break;
    PetscCall(MatProductCreate(left, right, NULL, part));
    PetscCall(MatSetOptionsPrefix(*part, ((PetscObject)C)->prefix));
    PetscCall(MatProductSetType(*part, type));
    PetscCall(MatProductSymbolic_SeqAIJGpufmt(*part)); /* the options that choose an algorithm were for C */
    PetscCheck(product->backend == GPUFMT_BACKEND_HOST || ((GpufmtProduct *)(*part)->product->data)->backend == GPUFMT_BACKEND_CUDA, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
               "Sparse product %s: a block of an operand is bound to the CPU and its parallel matrix is not; use MatBindToCPU() on the parallel matrix", MatProductTypes[C->product->type]);
    product->nparts = k + 1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PartNumeric(const MPIProduct *product, Mat A, int k)
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
static PetscErrorCode PartsNumeric(MPIProduct *product, Mat A)
{
  PetscFunctionBegin;
  if (product->remote.exchange) PetscCall(GpufmtRowsExchangeBegin(product->backend, &product->local, &product->remote));
  PetscCall(PartNumeric(product, A, 0));
  if (product->remote.exchange) PetscCall(GpufmtRowsExchangeEnd(product->backend, &product->local, &product->remote));
  for (int k = 1; k < product->nparts; k++) PetscCall(PartNumeric(product, A, k));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- what the parts make is added up ---- */

/* The matrices whose rows make those that are sent, or those of the result, always in the same order; returns how many. Rows of A^T B are
   either one or the other, those of B^T A B are told apart by `targets`. */
static PetscInt Summands(const MPIProduct *product, PetscBool to_be_sent, const PetscInt targets[], GpufmtSummand summands[])
{
  const PetscInt *own = product->local.columns, *remote = product->remote.columns;
  PetscInt        n   = 0;

  for (int k = 0; k < product->nparts; k++) {
    if (product->type == MATPRODUCT_PtAP && k == 1) continue; /* only an operand of part 2 */
    if (product->type == MATPRODUCT_AtB && (k == 1) != to_be_sent) continue;
    summands[n++] = (GpufmtSummand){.matrix = product->parts[k], .columns = k && product->type != MATPRODUCT_AtB ? remote : own, .targets = targets};
  }
  if (!to_be_sent && product->received.matrix) summands[n++] = (GpufmtSummand){.matrix = product->received.matrix, .columns = product->received.columns, .targets = product->received.rows};
  return n;
}

static PetscErrorCode SumNumeric(const MPIProduct *product, PetscBool to_be_sent, GpufmtSum *sum, Mat result)
{
  GpufmtSummand  summands[GPUFMT_MAX_SUMMANDS];
  const PetscInt n                             = Summands(product, to_be_sent, NULL, summands);
  Mat            matrices[GPUFMT_MAX_SUMMANDS] = {NULL};

  PetscFunctionBegin;
  for (PetscInt k = 0; k < n; k++) matrices[k] = summands[k].matrix;
  PetscCall(GpufmtSumRun(sum, matrices, result, to_be_sent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Which rows of the parts of B^T A B belong to this rank, by their places here, and which are sent, by their places there; -1: not these. */
static PetscErrorCode RowTargets(const MPIProduct *product, PetscInt nown, PetscInt **here, PetscInt **sent)
{
  const PetscInt nlow = product->local.nlow, n = product->local.matrix->cmap->n;

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(n, here, n, sent));
  for (PetscInt k = 0; k < n; k++) {
    const PetscBool own = (PetscBool)(k >= nlow && k < nlow + nown);

    (*here)[k] = own ? k - nlow : -1;
    (*sent)[k] = own ? -1 : (k < nlow ? k : k - nown);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the numbers of the rows that are sent */
static PetscErrorCode SentRows(const MPIProduct *product, Mat A, PetscInt nown, PetscInt *nsent, PetscInt **rows)
{
  const PetscInt *garray;
  Mat             offdiag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, &offdiag, &garray));
  *nsent = product->type == MATPRODUCT_AtB ? offdiag->cmap->n : product->local.matrix->cmap->n - nown;
  PetscCall(PetscMalloc1(*nsent, rows));
  for (PetscInt k = 0; k < *nsent; k++) (*rows)[k] = product->type == MATPRODUCT_AtB ? garray[k] : product->local.columns[k < product->local.nlow ? k : k + nown];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SentCreate(MPIProduct *product, MatType type, PetscInt nsent, const PetscInt targets[])
{
  GpufmtSummand  summands[GPUFMT_MAX_SUMMANDS];
  const PetscInt n = Summands(product, PETSC_TRUE, product->type == MATPRODUCT_PtAP ? targets : NULL, summands);

  PetscFunctionBegin;
  PetscCall(GpufmtRowsAddUp(type, product->backend, nsent, n, summands, &product->sent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the result ---- */

/* From places in the union of all columns to columns of the blocks; garray are those of the off-diagonal block, which occur in it. */
static PetscErrorCode NumberColumns(GpufmtUnion *u, PetscInt first, PetscInt *nghosts, PetscInt **garray)
{
  const GpufmtUnionPart *part = &u->parts[1];
  const PetscInt         nnz  = part->rowptr[u->nrows];
  PetscInt              *number;

  PetscFunctionBegin;
  for (PetscInt k = 0; k < u->parts[0].rowptr[u->nrows]; k++) u->parts[0].colidx[k] = u->columns[u->parts[0].colidx[k]] - first;
  PetscCall(PetscCalloc1(u->ncols, &number));
  for (PetscInt k = 0; k < nnz; k++) number[part->colidx[k]] = 1;
  *nghosts = 0;
  for (PetscInt c = 0; c < u->ncols; c++) *nghosts += number[c];
  PetscCall(PetscMalloc1(*nghosts, garray));
  *nghosts = 0;
  for (PetscInt c = 0; c < u->ncols; c++)
    if (number[c]) {
      (*garray)[*nghosts] = u->columns[c];
      number[c]           = (*nghosts)++;
    }
  for (PetscInt k = 0; k < nnz; k++) part->colidx[k] = number[part->colidx[k]];
  PetscCall(PetscFree(number));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BlocksFromUnion(MPIProduct *product, MatType type, PetscLayout rows, PetscLayout columns, GpufmtUnion *u, Mat blocks[2], PetscInt **garray)
{
  PetscInt nghosts = 0;

  PetscFunctionBegin;
  PetscCheck(u->high - u->low == columns->n, PETSC_COMM_SELF, PETSC_ERR_PLIB, "Rows of this rank lack columns of its diagonal block");
  if (u->planned) PetscCall(GpufmtUnionGhosts(u, &nghosts, garray));
  else PetscCall(NumberColumns(u, columns->rstart, &nghosts, garray));
  for (int k = 0; k < 2; k++) {
    const PetscInt row_block = PetscAbs(rows->bs), col_block = k ? 1 : PetscAbs(columns->bs), ncols = k ? nghosts : columns->n;

    PetscCall(GpufmtSumCreate(product->backend, u, k, &product->sums[k]));
    if (u->planned) {
      PetscCall(GpufmtUnionManaged(product->backend, u, k, &product->managed[k]));
      PetscCall(GpufmtCreateEmpty(type, u->nrows, ncols, row_block, col_block, &blocks[k]));
    } else PetscCall(GpufmtCreateFromPattern(type, u->nrows, ncols, u->parts[k].rowptr, u->parts[k].colidx, row_block, col_block, &blocks[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The blocks of the result on this rank, and the plans of their values. Those that are to have managed arrays get them in BlocksManage(): in
   between, PETSc sets options of the parallel matrix that such blocks must not see. */
static PetscErrorCode BlocksCreate(Mat C, MPIProduct *product, MatType type, PetscLayout rows, PetscLayout columns, const PetscInt targets[], Mat blocks[2], PetscInt **garray)
{
  GpufmtSummand  summands[GPUFMT_MAX_SUMMANDS];
  const PetscInt n = Summands(product, PETSC_FALSE, product->type == MATPRODUCT_PtAP ? targets : NULL, summands);
  PetscBool      planned;
  PetscErrorCode ierr;
  GpufmtUnion    u;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedWanted(C, product->backend, &planned));
  if (!GpufmtFormatFind(((PetscObject)C->product->A)->type_name)) planned = PETSC_FALSE; /* whatever the blocks are under -mat_seqaij_type */
  PetscCall(GpufmtUnionCreate(product->backend, planned, rows->n, columns->rstart, columns->rend, n, summands, &u));
  ierr = BlocksFromUnion(product, type, rows, columns, &u, blocks, garray); /* as in GpufmtRowsAddUp() */
  PetscCall(GpufmtUnionDestroy(&u));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What SOR and others have kept of earlier values goes. No rank has entries of another. */
static PetscErrorCode ResultAssemble(Mat C)
{
  const PetscBool kept = C->nooffprocentries;

  PetscFunctionBegin;
  PetscCall(MatSetOption(C, MAT_NO_OFF_PROC_ENTRIES, PETSC_TRUE));
  PetscCall(MatAssemblyBegin(C, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(C, MAT_FINAL_ASSEMBLY));
  PetscCall(MatSetOption(C, MAT_NO_OFF_PROC_ENTRIES, kept));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On the device, results are where host and device can read them. Blocks take new nonzeros, for which one rank alone may give them other
   arrays: PETSc's assembly takes part in reductions or not as they do, on all ranks alike. */
static PetscErrorCode BlocksManage(Mat C, MPIProduct *product)
{
  struct _MatOps seq;
  Mat            blocks[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(C, &blocks[0], &blocks[1], NULL));
  PetscCall(GpufmtParentOps(NULL, &seq, NULL));
  for (int k = 0; k < 2; k++) {
    if (!product->managed[k]) continue;
    PetscCall(GpufmtManagedAdopt(blocks[k], product->managed[k]));
    PetscCall(GpufmtManagedRelease(&product->managed[k])); /* the block has its own reference */
    PetscCall((*seq.setoption)(blocks[k], MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* C, which has nothing but its product yet, becomes the matrix of these blocks */
static PetscErrorCode ResultCreate(Mat C, MPIProduct *product, MatType type, PetscLayout rows, PetscLayout columns, Mat blocks[2], PetscInt *garray)
{
  Mat result;

  PetscFunctionBegin;
  PetscCall(MatCreateMPIAIJWithSeqAIJ(PetscObjectComm((PetscObject)C), rows->N, columns->N, blocks[0], blocks[1], garray, &result));
  PetscCall(MatConvert(result, type, MAT_INPLACE_MATRIX, &result));
  PetscCall(MatSetOption(result, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE)); /* as the products of type aij: more entries may be inserted later */
  PetscCall(MatSetSizes(C, rows->n, columns->n, rows->N, columns->N));
  PetscCall(MatSetType(C, type));
  PetscCall(MatHeaderMerge(C, &result));
  PetscCall(GpufmtFailTogether(C, BlocksManage(C, product)));
  PetscCall(ResultAssemble(C)); /* the blocks take the options prefix of C */
  PetscCall(GpufmtResultPatternRecord(C, &product->result));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ResultNumeric(Mat C, MPIProduct *product)
{
  Mat blocks[2];

  PetscFunctionBegin;
  if (product->sent.matrix) {
    PetscCall(SumNumeric(product, PETSC_TRUE, product->sent.sum, product->sent.matrix));
    PetscCall(GpufmtRowsExchangeBegin(product->backend, &product->sent, &product->received));
    PetscCall(GpufmtRowsExchangeEnd(product->backend, &product->sent, &product->received));
  }
  PetscCall(ResultAssemble(C)); /* before there are values on the device that it could take for older than those on the host */
  PetscCall(MatMPIAIJGetSeqAIJ(C, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++) PetscCall(SumNumeric(product, PETSC_FALSE, product->sums[k], blocks[k]));
  PetscCall(PetscObjectStateIncrease((PetscObject)C));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatProductNumeric_MPIAIJGpufmt(Mat C)
{
  const Mat_Product *given = C->product;
  MPIProduct        *product;
  Mat                B;

  PetscFunctionBegin;
  MatCheckProduct(C, 1);
  product = (MPIProduct *)given->data;
  PetscCheck(product, PetscObjectComm((PetscObject)C), PETSC_ERR_ARG_WRONGSTATE, "The product %s has no symbolic phase, or MatProductClear() was called since: call MatProductSymbolic()", MatProductTypes[given->type]);
  PetscCall(GpufmtParallelPatternsCheck(C, product->operands, &product->result));
  PetscCall(SecondUpdate(C, product));
  B = product->second ? product->second : given->B;
  PetscCall(GpufmtRowsUpdateLocal(B, &product->local));
  PetscCall(PartsNumeric(product, given->A));
  PetscCall(ResultNumeric(C, product));
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

/* Rows of B: those of this rank, then those of others. Collective. */
static PetscErrorCode RowsCreate(Mat C, MPIProduct *product, Mat A, Mat B, MatType type)
{
  const PetscInt *garray;
  PetscMPIInt     size;
  Mat             offdiag;

  PetscFunctionBegin;
  PetscCall(GpufmtFailTogether(C, GpufmtRowsGetLocal(B, type, product->backend, &product->local)));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)A), &size));
  if (size > 1 && product->type != MATPRODUCT_AtB) {
    PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, &offdiag, &garray));
    PetscCall(GpufmtFailTogether(C, GpufmtRowsGetRemote(B, offdiag->cmap->n, garray, &product->local, type, product->backend, &product->remote)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The parts, the rows that are sent, and the result. Collective. */
static PetscErrorCode ProductCreate(Mat C, MPIProduct *product, Mat A, Mat B, MatType type)
{
  const PetscLayout rows = product->type == MATPRODUCT_AB ? A->rmap : product->type == MATPRODUCT_AtB ? A->cmap : B->cmap;
  MPI_Comm          comm = PetscObjectComm((PetscObject)C);
  PetscInt         *here, *there, *sent_rows, *garray, nsent = 0;
  MatType           block_type, result_type = ((PetscObject)A)->type_name;
  PetscMPIInt       size;
  Mat               blocks[2];

  PetscFunctionBegin;
  PetscCall(GpufmtFailTogether(C, PartsCreate(C, product, A)));
  PetscCall(RowTargets(product, B->cmap->n, &here, &there));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  if (size > 1 && product->type != MATPRODUCT_AB) {
    PetscCall(SentRows(product, A, B->cmap->n, &nsent, &sent_rows));
    PetscCall(GpufmtFailTogether(C, SentCreate(product, type, nsent, there)));
    PetscCall(GpufmtFailTogether(C, GpufmtRowsSend(comm, rows, sent_rows, &product->sent, type, product->backend, &product->received)));
    for (PetscInt k = 0; k < product->received.matrix->rmap->n; k++) product->received.rows[k] -= rows->rstart;
    PetscCall(PetscFree(sent_rows));
  }
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], NULL, NULL));
  PetscCall(MatGetType(blocks[0], &block_type));
  PetscCall(GpufmtFailTogether(C, BlocksCreate(C, product, block_type, rows, B->cmap, here, blocks, &garray)));
  PetscCall(PetscFree2(here, there));
  PetscCall(ResultCreate(C, product, result_type, rows, B->cmap, blocks, garray));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `type`: that of the sequential matrices between operands and result */
static PetscErrorCode ProductSymbolic(Mat C, MatType type)
{
  const Mat_Product *given = C->product;
  MPIProduct        *product;
  Mat                operands[GPUFMT_MAX_OPERANDS], A = given->A, B;
  const int          n = GpufmtProductOperands(given, operands);

  PetscFunctionBegin;
  PetscCall(PetscNew(&product));
  C->product->data    = product;
  C->product->destroy = MPIProductDestroy;
  product->backend    = GpufmtProductBackend(given);
  for (int k = 0; k < n; k++) PetscCall(GpufmtParallelPatternRecord(operands[k], &product->operands[k]));
  PetscCall(SecondCreate(C, product, type));
  B = product->second ? product->second : given->B;
  PetscCall(CheckLayouts(C, product->type, A, B));
  PetscCall(RowsCreate(C, product, A, B, type));
  PetscCall(ProductCreate(C, product, A, B, type));
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
