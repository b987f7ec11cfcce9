/* The tentative prolongator of aggregates that ranks have found together: the rank of an aggregate factors all of it, and sends back what the nodes
   of other ranks have in the prolongator. */
#include "gamg/gamg.h"

/* what this rank has of the prolongator until it is one */
typedef struct {
  GpufmtParallelTentativeAnswer answer;
  GpufmtLease                   lease;
  Mat                           blocks[2];
  PetscInt                     *garray;
} Pieces;

static PetscErrorCode Plan(const GpufmtGamg *gamg, Mat A, PetscInt block, PetscInt nvectors, const GpufmtGamgElsewhere *e, Pieces *p)
{
  GpufmtParallelTentativeRequest request = {0};

  PetscFunctionBegin;
  request.own       = GpufmtGamgOwnAggregates(gamg);
  request.nreceived = e->nreceived;
  request.received  = e->received;
  request.nghosts   = e->nghosts;
  request.ghosts    = e->ghosts;
  request.block     = (int32_t)block;
  request.nvectors  = (int32_t)nvectors;
  request.near_null = e->near_null;
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_PARALLEL_TENTATIVE, gamg->backend, -1, A, &request.place, &p->answer.outcome, &p->lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a block with its pattern */
static PetscErrorCode BlockCreate(Mat A, int backend, PetscInt col_block, const GpufmtBlockAnswer *answer, Mat *block)
{
  const GpufmtPlannedPattern pattern = {backend, A->rmap->n, answer->ncols, answer->nnz, answer->rowptr, answer->colidx};
  PetscInt                   ncols, row_block;
  MatType                    type;
  Mat                        diag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  PetscCall(MatGetType(diag, &type));
  PetscCall(MatGetBlockSize(A, &row_block));
  PetscCall(PetscIntCast(answer->ncols, &ncols));
  PetscCall(MatCreate(PETSC_COMM_SELF, block));
  PetscCall(MatSetSizes(*block, A->rmap->n, ncols, A->rmap->n, ncols));
  PetscCall(MatSetBlockSizes(*block, row_block, col_block));
  PetscCall(MatSetType(*block, type));
  PetscCall(GpufmtGamgSetPattern(*block, A, &pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BlocksCreate(const GpufmtGamg *gamg, Mat A, PetscInt nvectors, const GpufmtGamgElsewhere *e, Pieces *p)
{
  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) PetscCall(BlockCreate(A, gamg->backend, k ? 1 : nvectors, &p->answer.blocks[k], &p->blocks[k]));
  PetscCall(PetscMalloc1(e->nghosts * nvectors, &p->garray));
  for (PetscInt k = 0; k < e->nghosts * nvectors; k++) p->garray[k] = e->ghosts[k / nvectors] * nvectors + k % nvectors;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* P from its blocks, without values; collective */
static PetscErrorCode FromBlocks(const GpufmtGamg *gamg, Mat A, PetscInt nvectors, Pieces *p, Mat *P)
{
  PetscFunctionBegin;
  PetscCall(GpufmtCreateFromBlocks(PetscObjectComm((PetscObject)A), ((PetscObject)A)->type_name, A->rmap->N, (PetscInt)gamg->total * nvectors,
                                   p->blocks, &p->garray, P));
#if PetscDefined(HAVE_DEVICE)
  PetscCall(MatBindToCPU(*P, A->boundtocpu));
  if (A->boundtocpu) PetscCall(MatSetBindingPropagates(*P, PETSC_TRUE));
#endif
  PetscCall(MatAssemblyBegin(*P, MAT_FINAL_ASSEMBLY)); /* before there are values on the device that it could take for older than those on the host */
  PetscCall(MatAssemblyEnd(*P, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the values of a block are written; ValuesEnd() follows */
static PetscErrorCode ValuesBegin(Mat block, int backend, const GpufmtBlockAnswer *answer, PetscScalar **values)
{
  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceValuesWrite(GpufmtDeviceValuesOf(block, NULL), block, answer->nnz, (void **)values));
  else PetscCall(MatSeqAIJGetArrayWrite(block, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ValuesEnd(Mat block, int backend, const GpufmtBlockAnswer *answer, PetscScalar **values)
{
  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) {
    GpufmtDeviceValues *computed = GpufmtDeviceValuesOf(block, NULL);
    void               *stream;

    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceValuesComputed(computed, block, answer->nnz, stream));
    computed->computed = PETSC_FALSE; /* no MatProductNumeric() of this matrix goes on to raise its state */
  } else {
    PetscCall(MatSeqAIJRestoreArrayWrite(block, values));
    PetscCall(PetscObjectStateIncrease((PetscObject)block));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the values of the first block are copied, and those of the other come from where they were computed; collective */
static PetscErrorCode Values(PC pc, const GpufmtGamg *gamg, const GpufmtGamgElsewhere *e, const Pieces *p, Mat P)
{
  const GpufmtParallelTentativeAnswer *answer    = &p->answer;
  const PetscBool                      on_device = (PetscBool)(gamg->backend == GPUFMT_BACKEND_CUDA);
  const PetscMemType                   place     = on_device ? PETSC_MEMTYPE_CUDA : PETSC_MEMTYPE_HOST;
  const size_t                         bytes     = (size_t)answer->blocks[0].nnz * sizeof(PetscScalar);
  const PetscScalar                   *computed  = PetscSafePointerPlusOffset((const PetscScalar *)answer->values, answer->blocks[0].nnz);
  PetscScalar                         *values[2] = {NULL, NULL};
  void                                *stream    = NULL;
  PetscErrorCode                       ierr      = PETSC_SUCCESS;
  Mat                                  blocks[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(P, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2 && !ierr; k++) ierr = ValuesBegin(blocks[k], gamg->backend, &answer->blocks[k], &values[k]);
  if (!ierr && on_device) ierr = GpufmtDeviceGet(NULL, &stream);
  if (!ierr && bytes) ierr = on_device ? GpufmtDeviceCopy(values[0], answer->values, bytes, stream) : PetscMemcpy(values[0], answer->values, bytes);
  PetscCall(GpufmtGamgAgree(pc, ierr));
  PetscCall(PetscSFReduceWithMemTypeBegin(e->sf, e->unit, place, computed, place, values[1], MPI_REPLACE));
  PetscCall(PetscSFReduceEnd(e->sf, e->unit, computed, values[1], MPI_REPLACE));
  for (int k = 0; k < 2 && !ierr; k++) ierr = ValuesEnd(blocks[k], gamg->backend, &answer->blocks[k], &values[k]);
  PetscCall(GpufmtGamgAgree(pc, ierr));
  PetscCall(PetscObjectStateIncrease((PetscObject)P));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create(PC pc, GpufmtGamg *gamg, Mat A, GpufmtGamgElsewhere *e, Pieces *p, Mat *P)
{
  PC_GAMG       *g        = GpufmtGamgOf(pc);
  const PetscInt nvectors = g->data_cell_cols;
  PetscErrorCode ierr;
  PetscInt       block;

  PetscFunctionBegin;
  PetscCall(MatGetBlockSize(A, &block));
  PetscCall(GpufmtGamgElsewhereFind(pc, gamg, A, e));
  ierr = Plan(gamg, A, block, nvectors, e, p);
  if (!ierr) ierr = BlocksCreate(gamg, A, nvectors, e, p);
  PetscCall(GpufmtGamgAgree(pc, ierr));
  PetscCall(FromBlocks(gamg, A, nvectors, p, P));
  PetscCall(Values(pc, gamg, e, p, *P));
  PetscCall(GpufmtGamgAgree(pc, GpufmtGamgReplaceNearNull(g, gamg->backend, p->answer.blocks[0].ncols, p->answer.coarse_near_null)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The prolongator of a parallel matrix, and the near-null space of the coarse level. Collective, and so are its errors. */
PetscErrorCode GpufmtGamgProlongatorTogether(PC pc, GpufmtGamg *gamg, GpufmtGamgLevel *level, Mat A, Mat *P)
{
  GpufmtGamgElsewhere elsewhere = {.unit = MPI_DATATYPE_NULL};
  Pieces              pieces    = {0};
  PetscErrorCode      ierr;

  PetscFunctionBegin;
  if (GpufmtGamgAggOf(pc)->nsmooths > 0) PetscCall(PetscStrncpy(level->smoothing, "the matrix is a parallel one", sizeof(level->smoothing)));
  ierr = Create(pc, gamg, A, &elsewhere, &pieces, P);
  PetscCall(GpufmtGamgElsewhereFree(&elsewhere));
  PetscCall(GpufmtLeaseDrop(&pieces.lease));
  for (int k = 0; k < 2; k++) PetscCall(MatDestroy(&pieces.blocks[k]));
  PetscCall(PetscFree(pieces.garray));
  if (ierr) PetscCall(MatDestroy(P));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
