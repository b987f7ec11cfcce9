/* The aggregates of a level, of the graph that the planner holds. PETSc's agg is asked where they are not ours. */
#include "gamg/gamg.h"
#include <inttypes.h>

/* the nodes in the order in which agg visits them if those with few neighbours are to come first; NULL: the planner knows the order */
static PetscErrorCode OrderByDegrees(PC pc, const GpufmtGamg *gamg, PetscInt n, PetscInt **order)
{
  const size_t   bytes = (size_t)(n + 1) * sizeof(PetscInt);
  PetscInt      *rowptr;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *order = NULL;
  if (!GpufmtGamgAggOf(pc)->use_minimum_degree_ordering) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1(n + 1, &rowptr));
  ierr = GpufmtCopyToHost(gamg->backend, rowptr, gamg->graph_answer.graph.rowptr, bytes);
  if (!ierr) ierr = PetscMalloc1(n, order);
  if (!ierr) ierr = GpufmtGamgOrderByDegrees(n, rowptr, *order);
  PetscCall(PetscFree(rowptr));
  if (ierr) PetscCall(PetscFree(*order));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the aggregates of the nodes of the graph */
static PetscErrorCode Aggregate(PC pc, GpufmtGamg *gamg, const GpufmtGamgLevel *level, Mat G)
{
  GpufmtAggregatesAnswer *answer  = &gamg->aggregates;
  GpufmtAggregatesRequest request = {.graph = gamg->graph_answer.graph, .longest = gamg->graph_answer.longest, .distance = level->distance};
  PetscInt               *order;
  PetscErrorCode          ierr;

  PetscFunctionBegin;
  PetscCall(PetscIntCast(request.graph.nrows, &gamg->nnodes));
  PetscCall(OrderByDegrees(pc, gamg, gamg->nnodes, &order));
  request.order = order;
  *answer       = (GpufmtAggregatesAnswer){0};
  ierr          = GpufmtPlannerAsk(GPUFMT_ASK_AGGREGATES, gamg->backend, -1, G, &request.place, &answer->outcome, &gamg->lease);
  PetscCall(PetscFree(order));
  PetscCall(ierr);
  gamg->total = answer->naggregates;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Those that ranks find together: of the matrix's own pattern, or else of PETSc's graph, which is made symmetric unless the user does not want
   that. */
static PetscErrorCode AggregateTogether(PC pc, GpufmtGamg *gamg, GpufmtGamgLevel *level, Mat *G)
{
  const Mat A = *G;
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgAggregateTogether(pc, gamg, level, A, &found));
  if (found && level->own_graph) PetscCall(GpufmtGamgNoteSymmetric(pc, gamg, A));
  if (!found && level->own_graph) {
    level->own_graph = level->symmetric = PETSC_FALSE;
    PetscCall(PetscStrncpy(level->graph, "the pattern of the matrix is not symmetric with a complete diagonal", sizeof(level->graph)));
    PetscCall(PetscObjectDereference((PetscObject)A)); /* the graph's: the set-up has another */
    PetscCall(GpufmtGamgCreateParentGraph(pc, gamg, A, level, G));
    PetscCall(GpufmtGamgAggregateTogether(pc, gamg, level, *G, &found));
  }
  level->ours = found;
  if (found) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrncpy(level->reason, "its graph is not symmetric with a complete diagonal", sizeof(level->reason)));
  PetscCall(PetscInfo(pc, "level %" PetscInt_FMT ": aggregates are those of agg, because %s\n", GpufmtGamgOf(pc)->current_level, level->reason));
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
    ierr = level->by_hash ? AggregateTogether(pc, gamg, level, G) : Aggregate(pc, gamg, level, *G);
    PetscCall(PetscLogEventEnd(petsc_gamg_setup_events[GAMG_COARSEN], 0, 0, 0, 0));
    PetscCall(ierr);
  }
  if (!level->ours) {
    gamg->graph = NULL; /* which agg may replace */
    PetscCall((*gamg->agg.coarsen)(pc, G, lists));
    gamg->graph = *G;
  } else {
    PetscCall(PetscCDCreate(0, lists));
    PetscCall(PetscSNPrintf(level->summary, sizeof(level->summary), "on %s, %s%s%s", gamg->backend == GPUFMT_BACKEND_CUDA ? "the device" : "the host",
                            gamg->aggregates.summary, level->graph[0] ? "; " : "", level->graph));
    PetscCall(PetscInfo(pc, "level %" PetscInt_FMT " %s\n", number, level->summary));
  }
  gamg->lists = *lists;
  PetscFunctionReturn(PETSC_SUCCESS);
}
