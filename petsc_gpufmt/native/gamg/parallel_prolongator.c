/* The tentative prolongator of aggregates that ranks have found together: the rank of an aggregate factors all of it, and sends back what the nodes
   of other ranks have in the prolongator. */
#include "gamg/gamg.h"

static PetscErrorCode Plan(GpufmtGamg *gamg, Mat A, PetscInt block, PetscInt nvectors, PetscBool is_smoothed, const GpufmtGamgElsewhere *e)
{
  GpufmtParallelTentativeAnswer *answer  = &gamg->parallel_tentative;
  GpufmtParallelTentativeRequest request = {0};
  Mat                            others;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, &others, NULL));
  request.own        = GpufmtGamgOwnAggregates(gamg);
  request.nreceived  = e->nreceived;
  request.received   = e->received;
  request.nghosts    = e->nghosts;
  request.ghosts     = e->ghosts;
  request.nlooked_at = is_smoothed ? others->cmap->n : -1;
  request.block      = (int32_t)block;
  request.nvectors   = (int32_t)nvectors;
  request.near_null  = e->near_null;
  *answer            = (GpufmtParallelTentativeAnswer){0};
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_PARALLEL_TENTATIVE, gamg->backend, -1, A, &request.place, &answer->outcome, &gamg->tentative_lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what was computed for nodes of other ranks goes to these: `elsewhere` are entries of this rank's; collective */
static PetscErrorCode Send(const GpufmtGamgElsewhere *e, const PetscScalar *computed, PetscScalar *elsewhere)
{
  PetscFunctionBegin;
  PetscCall(PetscSFReduceBegin(e->sf, e->unit, computed, elsewhere, MPI_REPLACE));
  PetscCall(PetscSFReduceEnd(e->sf, e->unit, computed, elsewhere, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same of entries on the device, by way of the host, where PETSc's messages go as well: it would load a kernel for these few, which takes longer. */
static PetscErrorCode SendFromDevice(PC pc, const GpufmtParallelTentativeAnswer *answer, const PetscScalar *computed, PetscInt unit,
                                     const GpufmtGamgElsewhere *e)
{
  const PetscInt nsent = e->nreceived * unit, nreceived = (PetscInt)e->answer.count * unit;
  PetscScalar   *sent = NULL, *received = NULL;
  void          *stream;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = PetscMalloc2(nsent, &sent, nreceived, &received);
  if (!ierr) ierr = GpufmtCopyToHost(GPUFMT_BACKEND_CUDA, sent, computed, (size_t)nsent * sizeof(*sent));
  ierr = GpufmtGamgAgree(pc, ierr);
  if (!ierr) {
    ierr = Send(e, sent, received);
    if (!ierr) ierr = GpufmtDeviceGet(NULL, &stream);
    if (!ierr) ierr = GpufmtDeviceUpload(answer->elsewhere, received, (size_t)nreceived * sizeof(*received), stream);
    ierr = GpufmtGamgAgree(pc, ierr);
  }
  PetscCall(PetscFree2(sent, received));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SendBack(PC pc, const GpufmtGamg *gamg, PetscInt unit, const GpufmtGamgElsewhere *e)
{
  const GpufmtParallelTentativeAnswer *answer   = &gamg->parallel_tentative;
  const PetscScalar                   *computed = PetscSafePointerPlusOffset((const PetscScalar *)answer->values, answer->blocks[0].nnz);

  PetscFunctionBegin;
  if (gamg->backend == GPUFMT_BACKEND_CUDA) PetscCall(SendFromDevice(pc, answer, computed, unit, e));
  else PetscCall(Send(e, computed, (PetscScalar *)answer->elsewhere));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Find(PC pc, GpufmtGamg *gamg, Mat A, PetscBool is_smoothed, GpufmtGamgElsewhere *e)
{
  const GpufmtParallelTentativeAnswer *answer = &gamg->parallel_tentative;
  PC_GAMG                             *g      = GpufmtGamgOf(pc);
  PetscInt                             block;

  PetscFunctionBegin;
  PetscCall(MatGetBlockSize(A, &block));
  PetscCall(GpufmtGamgElsewhereFind(pc, gamg, A, e));
  PetscCall(GpufmtGamgAgree(pc, Plan(gamg, A, block, g->data_cell_cols, is_smoothed, e)));
  PetscCall(SendBack(pc, gamg, block * g->data_cell_cols, e));
  PetscCall(GpufmtGamgAgree(pc, GpufmtGamgReplaceNearNull(g, gamg->backend, answer->blocks[0].ncols, answer->coarse_near_null)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CopyValues(const GpufmtGamg *gamg, Mat P)
{
  const GpufmtParallelTentativeAnswer *answer  = &gamg->parallel_tentative;
  const void                          *from[2] = {answer->values, answer->elsewhere};
  Mat                                  blocks[2];
  void                                *stream = NULL, *to;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(P, &blocks[0], &blocks[1], NULL));
  if (gamg->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  for (int k = 0; k < 2; k++) {
    const size_t bytes = (size_t)answer->blocks[k].nnz * sizeof(PetscScalar);

    PetscCall(GpufmtGamgBlockWrite(blocks[k], gamg->backend, answer->blocks[k].nnz, &to));
    if (gamg->backend == GPUFMT_BACKEND_CUDA && bytes) PetscCall(GpufmtDeviceCopy(to, from[k], bytes, stream));
    else PetscCall(PetscMemcpy(to, from[k], bytes));
    PetscCall(GpufmtGamgBlockWritten(blocks[k], gamg->backend, answer->blocks[k].nnz, &to));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* *P becomes the tentative prolongator that is held. Collective, and so are its errors. */
PetscErrorCode GpufmtGamgFillTogether(PC pc, GpufmtGamg *gamg, Mat A, Mat *P)
{
  const GpufmtParallelTentativeAnswer *answer = &gamg->parallel_tentative;

  PetscFunctionBegin;
  PetscCall(MatDestroy(P));
  PetscCall(GpufmtGamgFromBlocks(pc, gamg, A, answer->nghosts, answer->ghosts, answer->blocks, P));
  PetscCall(GpufmtGamgAgree(pc, CopyValues(gamg, *P)));
  PetscCall(PetscObjectStateIncrease((PetscObject)*P));
  PetscCall(GpufmtLeaseDrop(&gamg->tentative_lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The prolongator of a parallel matrix, and the near-null space of the coarse level; where it `is_smoothed` next, it has sizes and no entries.
   Collective, and so are its errors. */
PetscErrorCode GpufmtGamgProlongatorTogether(PC pc, GpufmtGamg *gamg, Mat A, PetscBool is_smoothed, Mat *P)
{
  GpufmtGamgElsewhere elsewhere = {.unit = MPI_DATATYPE_NULL};
  PetscErrorCode      ierr;

  PetscFunctionBegin;
  ierr = Find(pc, gamg, A, is_smoothed, &elsewhere);
  PetscCall(GpufmtGamgElsewhereFree(&elsewhere));
  PetscCall(ierr);
  if (is_smoothed) {
    PetscCall(MatCreate(PetscObjectComm((PetscObject)A), P));
    ierr = GpufmtGamgSetSizes(*P, A, GpufmtGamgOf(pc)->data_cell_cols, gamg->parallel_tentative.blocks[0].ncols);
  } else ierr = GpufmtGamgFillTogether(pc, gamg, A, P);
  if (ierr) PetscCall(MatDestroy(P));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
