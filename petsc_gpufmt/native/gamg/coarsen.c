/* The graph of a level and its aggregates. PETSc's agg is asked where a part is not ours. */
#include "gamg/gamg.h"
#include <inttypes.h>

static int BackendOf(Mat A)
{
#if PetscDefined(HAVE_DEVICE)
  if (A->boundtocpu) return GPUFMT_BACKEND_HOST;
#endif
  return GpufmtDeviceUsable() ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;
}

/* PETSc's graph of a level */
static PetscErrorCode CreateParentGraph(PC pc, GpufmtGamg *gamg, Mat A, Mat *G)
{
  PetscFunctionBegin;
  gamg->graph = NULL;
  PetscCall((*gamg->agg.creategraph)(pc, A, G));
  gamg->graph = *G;
  if (gamg->levels[GpufmtGamgOf(pc)->current_level].ours) PetscCall(GpufmtGamgCoarsenForLevel(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the pattern of a level is known to be symmetric: the finest one was looked at in an earlier set-up, or it is that of P^T A P with such a
   one, and each column of P has an entry. Blocks of a parallel matrix may change, on one rank perhaps, without a word to it. */
static PetscBool KnownSymmetric(PC pc, const GpufmtGamg *gamg, Mat A)
{
  const PC_GAMG *g = GpufmtGamgOf(pc);

  if (g->current_level) return (PetscBool)(gamg->levels[g->current_level - 1].symmetric && !GpufmtGamgIsFiltered(g));
  return (PetscBool)(GpufmtSeqData(A) && gamg->symmetric_id == ((PetscObject)A)->id && gamg->symmetric_state == A->nonzerostate);
}

PetscErrorCode PCGAMGCreateGraph_Gpufmt(PC pc, Mat A, Mat *G)
{
  const PetscInt   number = GpufmtGamgOf(pc)->current_level;
  GpufmtGamg      *gamg;
  GpufmtGamgLevel *level;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  level         = &gamg->levels[number];
  gamg->nlevels = number + 1;
  gamg->visited = number;
  PetscCall(GpufmtGamgChoose(pc, A, level));
  if (!level->ours) PetscCall(PetscInfo(pc, "level %" PetscInt_FMT ": the set-up is that of agg, because %s\n", number, level->reason));
  else if (!level->own_graph) PetscCall(PetscInfo(pc, "level %" PetscInt_FMT ": the graph is that of agg, because %s\n", number, level->graph));
  gamg->backend = BackendOf(A);
  if (!level->own_graph) {
    PetscCall(CreateParentGraph(pc, gamg, A, G));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  level->symmetric = KnownSymmetric(pc, gamg, A);
  PetscCall(PetscObjectReference((PetscObject)A));
  *G = gamg->graph = A;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the aggregates of the rows of G; their lease holds nothing if its pattern is not symmetric, or lacks an entry of the diagonal */
static PetscErrorCode Aggregate(PC pc, GpufmtGamg *gamg, GpufmtGamgLevel *level, Mat G)
{
  const PetscInt          n          = G->rmap->n;
  const PetscBool         by_degrees = GpufmtGamgAggOf(pc)->use_minimum_degree_ordering;
  GpufmtAggregatesAnswer *answer     = &gamg->aggregates;
  GpufmtAggregatesRequest request    = {0};
  const PetscInt         *rowptr, *colidx;
  PetscInt               *order = NULL;
  PetscErrorCode          ierr  = PETSC_SUCCESS;

  PetscFunctionBegin;
  if (by_degrees) PetscCall(PetscMalloc1(n, &order));
  PetscCall(GpufmtPatternGet(G, &rowptr, &colidx));
  if (by_degrees) ierr = GpufmtGamgOrderByDegrees(n, rowptr, order);
  request.graph     = (GpufmtOperand){.nrows  = n,
                                      .ncols  = n,
                                      .nnz    = rowptr[n],
                                      .rowptr = rowptr,
                                      .colidx = colidx,
                                      .held   = GpufmtPatternHeld(G, gamg->backend)};
  request.order     = order;
  request.distance  = level->distance;
  request.symmetric = level->symmetric;
  *answer           = (GpufmtAggregatesAnswer){0};
  if (!ierr) ierr = GpufmtPlannerAsk(GPUFMT_ASK_AGGREGATES, gamg->backend, -1, G, &request.place, &answer->outcome, &gamg->lease);
  PetscCall(GpufmtPatternRestore(G, &rowptr, &colidx));
  PetscCall(PetscFree(order));
  PetscCall(ierr);
  gamg->nnodes = n;
  gamg->total  = answer->naggregates;
  if (answer->applies) GpufmtPatternHold(G, gamg->backend, answer->held);
  else PetscCall(GpufmtLeaseDrop(&gamg->lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* of the matrix's own pattern, or else of PETSc's graph, which is made symmetric unless the user does not want that */
static PetscErrorCode AggregateOrFallBack(PC pc, GpufmtGamg *gamg, GpufmtGamgLevel *level, Mat *G)
{
  const PetscInt number                                                       = GpufmtGamgOf(pc)->current_level;
  const Mat      A                                                            = *G;
  PetscErrorCode (*const aggregate)(PC, GpufmtGamg *, GpufmtGamgLevel *, Mat) = level->by_hash ? GpufmtGamgAggregateTogether : Aggregate;

  PetscFunctionBegin;
  PetscCall((*aggregate)(pc, gamg, level, *G));
  if (level->own_graph && !gamg->aggregates.applies) {
    PetscCall(PetscStrncpy(level->graph, "the pattern of the matrix is not symmetric with a complete diagonal", sizeof(level->graph)));
    PetscCall(PetscInfo(pc, "level %" PetscInt_FMT ": the graph is that of agg, because %s\n", number, level->graph));
    level->own_graph = PETSC_FALSE;
    PetscCall(PetscObjectDereference((PetscObject)A)); /* the graph's: the set-up has another */
    PetscCall(CreateParentGraph(pc, gamg, A, G));
    PetscCall((*aggregate)(pc, gamg, level, *G));
  }
  level->symmetric = level->own_graph;
  level->ours      = (PetscBool)(gamg->aggregates.applies != 0);
  if (level->ours) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrncpy(level->reason, "its graph is not symmetric with a complete diagonal", sizeof(level->reason)));
  PetscCall(PetscInfo(pc, "level %" PetscInt_FMT ": aggregates are those of agg, because %s\n", number, level->reason));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Aggregates stay with the planner: PETSc gets a list without any, which it hands on to the prolongator and destroys. */
PetscErrorCode PCGAMGCoarsen_Gpufmt(PC pc, Mat *G, PetscCoarsenData **lists)
{
  const PetscInt   number = GpufmtGamgOf(pc)->current_level;
  GpufmtGamg      *gamg;
  GpufmtGamgLevel *level;
  PetscErrorCode   ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  level = &gamg->levels[number];
  if (level->ours) {
    PetscCall(PetscLogEventBegin(petsc_gamg_setup_events[GAMG_COARSEN], 0, 0, 0, 0));
    ierr = AggregateOrFallBack(pc, gamg, level, G);
    PetscCall(PetscLogEventEnd(petsc_gamg_setup_events[GAMG_COARSEN], 0, 0, 0, 0));
    PetscCall(ierr);
  }
  if (!level->ours) {
    gamg->graph = NULL; /* which agg may replace */
    PetscCall((*gamg->agg.coarsen)(pc, G, lists));
    gamg->graph = *G;
  } else {
    if (level->symmetric && !number) {
      gamg->symmetric_id    = ((PetscObject)*G)->id;
      gamg->symmetric_state = (*G)->nonzerostate;
    }
    PetscCall(PetscCDCreate(0, lists));
    PetscCall(PetscSNPrintf(level->summary, sizeof(level->summary), "on %s, %s", gamg->backend == GPUFMT_BACKEND_CUDA ? "the device" : "the host",
                            gamg->aggregates.summary));
    PetscCall(PetscInfo(pc, "level %" PetscInt_FMT " %s\n", number, level->summary));
  }
  gamg->lists = *lists;
  PetscFunctionReturn(PETSC_SUCCESS);
}
