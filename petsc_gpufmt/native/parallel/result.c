/* The result of a parallel product: what the parts make is sent to its rank, added up, and put into the two blocks of a matrix. */
#include "parallel/parallel.h"

/* what is not needed once the result is there */
typedef struct {
  const PetscInt *sent_rows; /* numbers of the rows that are sent */
  Mat             blocks[2];
  PetscInt       *garray;
  GpufmtDigestion digestion; /* of the row pointers of the blocks; NULL: none is in the making */
} Pieces;

/* the rows that are sent, in columns of this layout */
static PetscErrorCode SentCreate(GpufmtParallelProduct *product, Mat A, PetscLayout columns, MatType type, Pieces *pieces)
{
  const GpufmtColumns *own = &product->local.columns;
  GpufmtSummand        summands[GPUFMT_MAX_SUMMANDS];
  PetscInt             n, nsent = own->nothers;
  Mat                  offdiag;

  PetscFunctionBegin;
  pieces->sent_rows = own->others;
  if (product->type == MATPRODUCT_AtB) {
    PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, &offdiag, &pieces->sent_rows));
    nsent = offdiag->cmap->n;
  }
  n = GpufmtPartsSummands(product, PETSC_TRUE, summands);
  PetscCall(GpufmtRowsAddUp(type, product->backend, nsent, columns, n, summands, &product->sent));
  PetscCall(GpufmtLeaseDrop(&product->sent.pattern)); /* nothing is planned with it */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* From places in the union of all columns to columns of the blocks; garray are those of the off-diagonal block, which occur in it. */
static PetscErrorCode NumberColumns(GpufmtUnion *u, PetscInt first, PetscInt *nghosts, PetscInt **garray)
{
  const GpufmtUnionPart *part = &u->parts[1];
  const PetscInt         nnz  = part->rowptr[u->nrows];
  PetscInt              *number;
  PetscErrorCode         ierr;

  PetscFunctionBegin;
  for (PetscInt k = 0; k < u->parts[0].rowptr[u->nrows]; k++) u->parts[0].colidx[k] = GpufmtColumn(&u->columns, u->parts[0].colidx[k]) - first;
  PetscCall(PetscCalloc1(u->ncols, &number));
  for (PetscInt k = 0; k < nnz; k++) number[part->colidx[k]] = 1;
  *nghosts = 0;
  for (PetscInt c = 0; c < u->ncols; c++) *nghosts += number[c];
  ierr     = PetscMalloc1(*nghosts, garray);
  *nghosts = 0;
  for (PetscInt c = 0; c < u->ncols && !ierr; c++)
    if (number[c]) {
      (*garray)[*nghosts] = GpufmtColumn(&u->columns, c);
      number[c]           = (*nghosts)++;
    }
  for (PetscInt k = 0; k < nnz; k++) part->colidx[k] = number[part->colidx[k]];
  PetscCall(PetscFree(number));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BlocksFromUnion(GpufmtParallelProduct *product, MatType type, PetscLayout rows, PetscLayout columns, GpufmtUnion *u,
                                      Pieces *pieces)
{
  PetscInt nghosts = 0;

  PetscFunctionBegin;
  if (u->planned) PetscCall(GpufmtUnionGhosts(u, &nghosts, &pieces->garray));
  else PetscCall(NumberColumns(u, columns->rstart, &nghosts, &pieces->garray));
  for (int k = 0; k < 2; k++) {
    const PetscInt row_block = PetscAbs(rows->bs), col_block = k ? 1 : PetscAbs(columns->bs), ncols = k ? nghosts : columns->n;

    PetscCall(GpufmtEntrySumCreate(product->backend, u, k, &product->sums[k]));
    if (u->planned) PetscCall(GpufmtCreateManaged(type, product->backend, u, k, ncols, row_block, col_block, PETSC_FALSE, &pieces->blocks[k]));
    else PetscCall(GpufmtCreateFromPattern(type, u->nrows, ncols, u->parts[k].rowptr, u->parts[k].colidx, row_block, col_block, &pieces->blocks[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether the planner makes the blocks of the result, which have managed arrays then */
PetscErrorCode GpufmtResultPlanned(Mat C, int backend, PetscBool *planned)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedWanted(C, backend, planned));
  if (!GpufmtFormatFind(((PetscObject)C->product->A)->type_name)) *planned = PETSC_FALSE; /* whatever the blocks are under -mat_seqaij_type */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the blocks of the result on this rank, and the plans of their values */
static PetscErrorCode BlocksCreate(GpufmtParallelProduct *product, MatType type, PetscLayout rows, PetscLayout columns, Pieces *pieces)
{
  GpufmtSummand  summands[GPUFMT_MAX_SUMMANDS];
  PetscInt       n;
  PetscErrorCode ierr;
  GpufmtUnion    u;

  PetscFunctionBegin;
  n = GpufmtPartsSummands(product, PETSC_FALSE, summands);
  PetscCall(GpufmtUnionCreate(product->backend, product->planned, rows->n, columns, PETSC_TRUE, n, summands, &u));
  ierr = BlocksFromUnion(product, type, rows, columns, &u, pieces); /* as in GpufmtRowsAddUp() */
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

/* C, which has nothing but its product yet, becomes the matrix of these blocks */
static PetscErrorCode ResultFromBlocks(Mat C, GpufmtParallelProduct *product, MatType type, PetscLayout rows, PetscLayout columns, Pieces *pieces)
{
  const Mat      blocks[] = {pieces->blocks[0], pieces->blocks[1]};
  PetscErrorCode ierr;
  Mat            result;

  PetscFunctionBegin;
  PetscCall(GpufmtCreateFromBlocks(PetscObjectComm((PetscObject)C), type, rows->N, columns->N, PETSC_TRUE, pieces->blocks, &pieces->garray, &result));
  ierr = MatSetSizes(C, rows->n, columns->n, rows->N, columns->N);
  if (!ierr) ierr = MatSetType(C, type);
  if (ierr) PetscCall(MatDestroy(&result));
  PetscCall(ierr);
  PetscCall(MatHeaderMerge(C, &result));
  PetscCall(ResultAssemble(C)); /* the blocks take the options prefix of C */
  PetscCall(GpufmtResultPatternEnd(blocks, &pieces->digestion, &product->result));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ResultBuild(Mat C, GpufmtParallelProduct *product, Mat A, Mat B, MatType type, PetscErrorCode own, Pieces *pieces)
{
  const PetscLayout rows = product->type == MATPRODUCT_AB ? A->rmap : product->type == MATPRODUCT_AtB ? A->cmap : B->cmap;
  MatType           block_type, result_type = ((PetscObject)A)->type_name;
  PetscMPIInt       size;
  Mat               diag;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)C), &size));
  if (size > 1 && product->type != MATPRODUCT_AB) {
    if (!own) own = SentCreate(product, A, B->cmap, type, pieces);
    PetscCall(GpufmtRowsSend(C, rows, pieces->sent_rows, &product->sent, type, product->backend, &product->received, &own));
    for (PetscInt k = 0; !own && k < product->received.matrix->rmap->n; k++) product->received.rows[k] -= rows->rstart;
  }
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  PetscCall(MatGetType(diag, &block_type));
  if (!own) own = BlocksCreate(product, block_type, rows, B->cmap, pieces);
  if (!own) own = GpufmtResultPatternBegin(pieces->blocks, &pieces->digestion); /* beside what follows */
  PetscCall(GpufmtFailTogether(C, own));
  PetscCall(ResultFromBlocks(C, product, result_type, rows, B->cmap, pieces));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows that are sent, and the result; `type`: that of the sequential matrices in between. Collective, and so are errors, also what has failed on
   this rank before, `own`. */
PetscErrorCode GpufmtResultCreate(Mat C, GpufmtParallelProduct *product, Mat A, Mat B, MatType type, PetscErrorCode own)
{
  Pieces         pieces = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = ResultBuild(C, product, A, B, type, own, &pieces);
  if (pieces.digestion) PetscCall(GpufmtDigestEnd(&pieces.digestion, &product->result.rows)); /* after a failure: it reads the blocks */
  for (int k = 0; k < 2; k++) PetscCall(MatDestroy(&pieces.blocks[k]));
  PetscCall(PetscFree(pieces.garray));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode EntrySumNumeric(const GpufmtParallelProduct *product, PetscBool to_be_sent, GpufmtEntrySum *sum, Mat result)
{
  GpufmtSummand  summands[GPUFMT_MAX_SUMMANDS];
  const PetscInt n                             = GpufmtPartsSummands(product, to_be_sent, summands);
  Mat            matrices[GPUFMT_MAX_SUMMANDS] = {NULL};

  PetscFunctionBegin;
  for (PetscInt k = 0; k < n; k++) matrices[k] = summands[k].matrix;
  PetscCall(GpufmtEntrySumRun(sum, matrices, result, to_be_sent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what the sums of the blocks take, so that it is there or the result stays what it was */
static PetscErrorCode BlocksReserve(GpufmtParallelProduct *product, const Mat blocks[2])
{
  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) PetscCall(GpufmtEntrySumReserve(product->sums[k], blocks[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The values of the result from those of the parts. Collective, and so are errors, also what has failed on this rank before, `own`. */
PetscErrorCode GpufmtResultNumeric(Mat C, GpufmtParallelProduct *product, PetscErrorCode own)
{
  Mat blocks[2];

  PetscFunctionBegin;
  if (product->sent.matrix) {
    if (!own) own = EntrySumNumeric(product, PETSC_TRUE, product->sent.sum, product->sent.matrix);
    PetscCall(GpufmtValuesBegin(product->received.exchange, product->sent.matrix, product->received.matrix, &own));
    PetscCall(GpufmtValuesEnd(product->received.exchange, product->sent.matrix, product->received.matrix, &own));
  }
  PetscCall(MatMPIAIJGetSeqAIJ(C, &blocks[0], &blocks[1], NULL));
  if (!own) own = BlocksReserve(product, blocks);
  PetscCall(GpufmtFailTogether(C, own));
  for (int k = 0; k < 2 && !own; k++) own = EntrySumNumeric(product, PETSC_FALSE, product->sums[k], blocks[k]);
  PetscCall(ResultAssemble(C)); /* whatever has failed, since other ranks are there; -mat_view shows the values */
  PetscCall(own);
  PetscCall(PetscObjectStateIncrease((PetscObject)C));
  PetscFunctionReturn(PETSC_SUCCESS);
}
