/* The tentative prolongator of a level. */
#include "gamg/gamg.h"

/* The values of P, which has been given the pattern, by a plan of the backend that has found it; the plan writes RESULT. */
PetscErrorCode GpufmtGamgComputeValues(Mat P, int backend, const GpufmtPlan *plan, int64_t nnz, void *slots[GPUFMT_NUM_SLOTS])
{
  void *stream;

  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) {
    GpufmtDeviceValues *values = GpufmtDeviceValuesOf(P, NULL);

    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceValuesWrite(values, P, nnz, &slots[GPUFMT_SLOT_RESULT]));
    PetscCall(GpufmtReplay(plan, backend, slots, stream));
    PetscCall(GpufmtDeviceValuesComputed(values, P, nnz, stream));
  } else {
    PetscScalar *values;

    PetscCall(MatSeqAIJGetArrayWrite(P, &values));
    slots[GPUFMT_SLOT_RESULT] = values;
    PetscCall(GpufmtReplay(plan, backend, slots, NULL));
    PetscCall(MatSeqAIJRestoreArrayWrite(P, &values));
    PetscCall(MatAssemblyBegin(P, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(P, MAT_FINAL_ASSEMBLY));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* P, which has been created, gets the sizes and the type that agg gives it; it has no entries yet */
PetscErrorCode GpufmtGamgSetSizes(Mat P, Mat A, PetscInt col_block, int64_t count)
{
  PetscInt ncols, block;

  PetscFunctionBegin;
  PetscCall(PetscIntCast(count, &ncols));
  PetscCall(MatGetBlockSize(A, &block));
  PetscCall(MatSetSizes(P, A->rmap->n, ncols, A->rmap->N, PETSC_DETERMINE));
  PetscCall(MatSetBlockSizes(P, block, col_block));
  PetscCall(MatSetType(P, ((PetscObject)A)->type_name));
#if PetscDefined(HAVE_DEVICE)
  PetscCall(MatBindToCPU(P, A->boundtocpu));
#endif
  PetscCall(PetscLayoutSetUp(P->rmap));
  PetscCall(PetscLayoutSetUp(P->cmap));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* P gets its pattern, and an arrangement for its values */
PetscErrorCode GpufmtGamgSetPattern(Mat P, Mat A, const GpufmtPlannedPattern *pattern)
{
  GpufmtManaged *managed;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtResultManaged(P, pattern, PETSC_FALSE, &managed));
  ierr = GpufmtResultSetPattern(P, pattern, managed);
  if (!ierr && managed) ierr = GpufmtManagedSettle((PetscBool)(pattern->backend == GPUFMT_BACKEND_CUDA)); /* PETSc has worked beside the device */
  PetscCall(GpufmtManagedRelease(&managed));                                                              /* P has its own reference */
  PetscCall(ierr);
#if PetscDefined(HAVE_DEVICE)
  if (A->boundtocpu) PetscCall(MatSetBindingPropagates(P, PETSC_TRUE));
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* P becomes the tentative prolongator that is held */
PetscErrorCode GpufmtGamgFillTentative(GpufmtGamg *gamg, Mat A, Mat P)
{
  const GpufmtTentativeAnswer *answer                  = &gamg->tentative;
  const GpufmtPlannedPattern   pattern                 = {gamg->backend, answer->nrows, answer->ncols, answer->nnz, answer->rowptr, answer->colidx};
  void                        *slots[GPUFMT_NUM_SLOTS] = {NULL};

  PetscFunctionBegin;
  PetscCall(GpufmtGamgSetPattern(P, A, &pattern));
  PetscCall(GpufmtGamgComputeValues(P, gamg->backend, &answer->numeric, answer->nnz, slots));
  PetscCall(GpufmtLeaseDrop(&gamg->tentative_lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtGamgCheckAggregates(const GpufmtGamg *gamg)
{
  PetscFunctionBegin;
  PetscCheck(GpufmtLeaseHolds(&gamg->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "The aggregates of PCGAMG are gone, because Python, which made them, has ended: set up before the interpreter exits");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Why the tentative prolongator is wanted as a matrix: "": it is not, since the first smoothing step makes the smoothed one from the aggregates. */
static PetscErrorCode WhyFilled(PC pc, size_t size, char reason[])
{
  PetscBool viewed;

  PetscFunctionBegin;
  PetscCall(PetscOptionsHasName(NULL, NULL, "-pc_gamg_agg_view_initial_prolongation", &viewed)); /* without a prefix, as the prolongator is */
  if (GpufmtGamgIsFiltered(GpufmtGamgOf(pc))) PetscCall(PetscStrncpy(reason, "the prolongator is filtered", size));
  else if (viewed) PetscCall(PetscStrncpy(reason, "the tentative prolongator is to be viewed", size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create(PC pc, GpufmtGamg *gamg, Mat A, PetscBool is_smoothed, Mat *P)
{
  PC_GAMG               *g       = GpufmtGamgOf(pc);
  GpufmtTentativeRequest request = {0};
  GpufmtTentativeAnswer *answer  = &gamg->tentative;
  PetscInt               block;
  PetscErrorCode         ierr;

  PetscFunctionBegin;
  PetscCall(MatGetBlockSize(A, &block));
  PetscCall(GpufmtGamgCheckAggregates(gamg));
  request.nnodes      = gamg->nnodes;
  request.naggregates = gamg->aggregates.naggregates;
  request.aggregates  = gamg->aggregates.aggregates;
  request.turns       = gamg->aggregates.turns;
  request.block       = (int32_t)block;
  request.nvectors    = (int32_t)g->data_cell_cols;
  request.near_null   = GpufmtGamgIsConstant(pc, gamg) ? NULL : g->data;
  *answer             = (GpufmtTentativeAnswer){0};
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_TENTATIVE, gamg->backend, -1, A, &request.place, &answer->outcome, &gamg->tentative_lease));
  PetscCall(MatCreate(PetscObjectComm((PetscObject)A), P));
  ierr = GpufmtGamgSetSizes(*P, A, g->data_cell_cols, answer->ncols);
  if (!ierr) ierr = GpufmtGamgReplaceNearNull(g, gamg->backend, answer->ncols, answer->coarse_near_null);
  if (!ierr && !is_smoothed) ierr = GpufmtGamgFillTentative(gamg, A, *P);
  if (ierr) PetscCall(MatDestroy(P));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the prolongator, without entries if the first smoothing step gives it those of the smoothed one */
static PetscErrorCode CreateFor(PC pc, GpufmtGamg *gamg, GpufmtGamgLevel *level, Mat A, Mat *P)
{
  PetscBool is_smoothed = (PetscBool)(GpufmtGamgAggOf(pc)->nsmooths > 0);

  PetscFunctionBegin;
  PetscCheck(GpufmtGamgOf(pc)->data_cell_cols >= 1, PetscObjectComm((PetscObject)pc), PETSC_ERR_PLIB, "A near-null space without vectors");
  if (is_smoothed) PetscCall(WhyFilled(pc, sizeof(level->smoothing), level->smoothing));
  if (level->smoothing[0]) is_smoothed = PETSC_FALSE;
  if (GpufmtSeqData(A)) PetscCall(Create(pc, gamg, A, is_smoothed, P));
  else PetscCall(GpufmtGamgProlongatorTogether(pc, gamg, A, is_smoothed, P));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCGAMGProlongator_Gpufmt(PC pc, Mat A, PetscCoarsenData *lists, Mat *P)
{
  const PC_GAMG   *g = GpufmtGamgOf(pc);
  GpufmtGamg      *gamg;
  GpufmtGamgLevel *level;
  PetscErrorCode   ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  *P = NULL;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  level = &gamg->levels[g->current_level];
  if (!level->ours) {
    /* not for want of rows: below the finest level a rank may have none, and PETSc's data is none then */
    if (!g->data && GpufmtGamgIsConstant(pc, gamg)) PetscCall((*gamg->agg.createdefaultdata)(pc, A));
    PetscCall((*gamg->agg.prolongator)(pc, A, lists, P));
  } else {
    PetscCall(PetscLogEventBegin(petsc_gamg_setup_events[GAMG_PROL], 0, 0, 0, 0));
    PetscCall(PetscInfo(pc, "New grid %" PetscInt_FMT " nodes\n", (PetscInt)gamg->total));
    if (gamg->total) ierr = CreateFor(pc, gamg, level, A, P);
    PetscCall(PetscLogEventEnd(petsc_gamg_setup_events[GAMG_PROL], 0, 0, 0, 0));
    PetscCall(ierr);
    if (*P && (*P)->assembled) PetscCall(MatViewFromOptions(*P, NULL, "-pc_gamg_agg_view_initial_prolongation"));
  }
  if (!*P) { /* no coarser level: PETSc destroys them next */
    gamg->graph = NULL;
    gamg->lists = NULL;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
