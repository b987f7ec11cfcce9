/* The graph of a level: the matrix itself, one that the planner makes of it, or PETSc's. The planner keeps it as long as the level is made. */
#include "gamg/gamg.h"

/* Whether the pattern of a level is known to be symmetric: the finest one was looked at in an earlier set-up, or it is that of P^T A P with such a
   one, and each column of P has an entry. Blocks of a parallel matrix may change, on one rank perhaps, without a word to it. */
static PetscBool KnownSymmetric(PC pc, const GpufmtGamg *gamg, Mat A)
{
  const PC_GAMG *g = GpufmtGamgOf(pc);

  if (g->current_level) return (PetscBool)(gamg->levels[g->current_level - 1].symmetric && !GpufmtGamgIsFiltered(g));
  return (PetscBool)(GpufmtSeqData(A) && gamg->symmetric_id == ((PetscObject)A)->id && gamg->symmetric_state == A->nonzerostate);
}

/* the values of A on the backend; the planner has read them when it answers */
static PetscErrorCode Values(Mat A, int backend, PetscCount nnz, const void **values)
{
  const PetscScalar *array;
  void              *stream;

  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) {
    GpufmtDeviceValues *on_device = GpufmtDeviceValuesOf(A, NULL);

    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceValuesUpdate(on_device, A, nnz, stream));
    *values = on_device->array;
  } else {
    PetscCall(MatSeqAIJGetArrayRead(A, &array));
    *values = array;
    PetscCall(MatSeqAIJRestoreArrayRead(A, &array));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the graph of A with the settings of the request; its lease holds nothing if there are no aggregates for it */
static PetscErrorCode Ask(GpufmtGamg *gamg, Mat A, GpufmtGraphRequest *request)
{
  GpufmtGraphAnswer *answer = &gamg->graph_answer;
  PetscErrorCode     ierr   = PETSC_SUCCESS;

  PetscFunctionBegin;
  *answer = (GpufmtGraphAnswer){0};
  PetscCall(GpufmtOperandGet(A, gamg->backend, &request->matrix));
  if (request->threshold >= 0) ierr = Values(A, gamg->backend, request->matrix.nnz, &request->values);
  if (!ierr) ierr = GpufmtPlannerAsk(GPUFMT_ASK_GRAPH, gamg->backend, -1, A, &request->place, &answer->outcome, &gamg->graph_lease);
  PetscCall(GpufmtOperandRestore(A, &request->matrix));
  PetscCall(ierr);
  if (answer->applies) GpufmtPatternHold(A, gamg->backend, answer->held);
  else PetscCall(GpufmtLeaseDrop(&gamg->graph_lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the pattern of the current level has been found symmetric, and its diagonal complete */
PetscErrorCode GpufmtGamgNoteSymmetric(PC pc, GpufmtGamg *gamg, Mat A)
{
  const PetscInt number = GpufmtGamgOf(pc)->current_level;

  PetscFunctionBegin;
  gamg->levels[number].symmetric = PETSC_TRUE;
  if (number) PetscFunctionReturn(PETSC_SUCCESS);
  gamg->symmetric_id    = ((PetscObject)A)->id;
  gamg->symmetric_state = A->nonzerostate;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* our graph of a level, as PCGAMGCreateGraph_AGG() would make it */
static PetscErrorCode CreateOwn(PC pc, GpufmtGamg *gamg, Mat A, GpufmtGamgLevel *level)
{
  const PC_GAMG           *g       = GpufmtGamgOf(pc);
  const GpufmtGamgAgg     *agg     = GpufmtGamgAggOf(pc);
  const GpufmtGraphAnswer *answer  = &gamg->graph_answer;
  GpufmtGraphRequest       request = {0};
  PetscBool                known, symmetric;
  PetscInt                 block;

  PetscFunctionBegin;
  PetscCall(MatGetBlockSize(A, &block));
  PetscCall(MatIsSymmetricKnown(A, &known, &symmetric));
  request.block         = (int32_t)block;
  request.threshold     = (double)g->threshold[g->current_level];
  request.symmetrize    = agg->graph_symmetrize && !(known && symmetric);
  request.keep_diagonal = agg->use_low_mem_filter;
  request.symmetric     = KnownSymmetric(pc, gamg, A);
  PetscCall(Ask(gamg, A, &request));
  level->own_graph = (PetscBool)(answer->applies != 0);
  level->symmetric = (PetscBool)(answer->applies && answer->is_matrix);
  if (level->symmetric) PetscCall(GpufmtGamgNoteSymmetric(pc, gamg, A));
  if (!level->own_graph) PetscCall(PetscStrncpy(level->graph, answer->summary, sizeof(level->graph)));
  else if (!level->symmetric) PetscCall(PetscSNPrintf(level->graph, sizeof(level->graph), "graph of %s", answer->summary));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc's graph of a level, which is brought to the planner if the aggregates may be ours; where ranks find them together, that is done later */
PetscErrorCode GpufmtGamgCreateParentGraph(PC pc, GpufmtGamg *gamg, Mat A, GpufmtGamgLevel *level, Mat *G)
{
  GpufmtGraphRequest request = {.block = 1, .threshold = -1.0};
  char               reason[sizeof(level->graph)];

  PetscFunctionBegin;
  gamg->graph = NULL;
  PetscCall((*gamg->agg.creategraph)(pc, A, G));
  gamg->graph = *G;
  if (!level->ours) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrncpy(reason, level->graph, sizeof(reason)));
  PetscCall(PetscSNPrintf(level->graph, sizeof(level->graph), "graph of agg, because %s", reason));
  PetscCall(PetscInfo(pc, "level %" PetscInt_FMT ": %s\n", GpufmtGamgOf(pc)->current_level, level->graph));
  PetscCall(GpufmtGamgCoarsenForLevel(pc));
  if (level->by_hash) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Ask(gamg, *G, &request));
  level->ours = (PetscBool)(gamg->graph_answer.applies != 0);
  if (!level->ours) PetscCall(PetscStrncpy(level->reason, "its graph is not symmetric with a complete diagonal", sizeof(level->reason)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc only hands the graph on and destroys it: the matrix stands for one that is ours. */
PetscErrorCode PCGAMGCreateGraph_Gpufmt(PC pc, Mat A, Mat *G)
{
  const PetscInt   number = GpufmtGamgOf(pc)->current_level;
  GpufmtGamg      *gamg;
  GpufmtGamgLevel *level;
  PetscErrorCode   ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  level         = &gamg->levels[number];
  gamg->nlevels = number + 1;
  gamg->visited = number;
  gamg->backend = GpufmtBackendOf(A);
  PetscCall(GpufmtGamgChoose(pc, A, level));
  if (level->ours && level->by_hash) {
    level->own_graph = (PetscBool)!level->graph[0];
    level->symmetric = (PetscBool)(level->own_graph && KnownSymmetric(pc, gamg, A));
  } else if (level->ours && !level->graph[0]) {
    PetscCall(PetscLogEventBegin(petsc_gamg_setup_events[GAMG_GRAPH], 0, 0, 0, 0));
    ierr = CreateOwn(pc, gamg, A, level);
    PetscCall(PetscLogEventEnd(petsc_gamg_setup_events[GAMG_GRAPH], 0, 0, 0, 0));
    PetscCall(ierr);
  }
  PetscCall(GpufmtGamgSendValues(pc, gamg, A, PETSC_FALSE));
  if (level->own_graph) {
    PetscCall(PetscObjectReference((PetscObject)A));
    *G = gamg->graph = A;
  } else PetscCall(GpufmtGamgCreateParentGraph(pc, gamg, A, level, G));
  if (!level->ours) PetscCall(PetscInfo(pc, "level %" PetscInt_FMT ": the set-up is that of agg, because %s\n", number, level->reason));
  PetscFunctionReturn(PETSC_SUCCESS);
}
