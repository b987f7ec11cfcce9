/* Which part of a level's set-up is ours. Options that are PETSc's are read as agg.c does, and what it keeps of them is set. */
#include "gamg/gamg.h"

/* a new MatCoarsen with the user's options, as PCGAMGCreateGraph_AGG() makes it; it is left to agg */
static PetscErrorCode CoarsenCreate(PC pc)
{
  GpufmtGamgAgg *agg = GpufmtGamgAggOf(pc);
  const char    *prefix;

  PetscFunctionBegin;
  PetscCall(MatCoarsenDestroy(&agg->crs));
  PetscCall(MatCoarsenCreate(PetscObjectComm((PetscObject)pc), &agg->crs));
  PetscCall(PetscObjectGetOptionsPrefix((PetscObject)pc, &prefix));
  PetscCall(PetscObjectSetOptionsPrefix((PetscObject)agg->crs, prefix));
  PetscCall(PetscObjectAppendOptionsPrefix((PetscObject)agg->crs, "pc_gamg_"));
  PetscCall(MatCoarsenSetFromOptions(agg->crs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the MatCoarsen gets the type of the current level, as PCGAMGCoarsen_AGG() gives it */
PetscErrorCode GpufmtGamgCoarsenForLevel(PC pc)
{
  GpufmtGamgAgg *agg = GpufmtGamgAggOf(pc);
  const char    *prefix;

  PetscFunctionBegin;
  if (GpufmtGamgOf(pc)->current_level < agg->aggressive_coarsening_levels) {
    if (agg->use_aggressive_square_graph) PetscCall(MatCoarsenSetType(agg->crs, MATCOARSENMIS));
    else PetscCall(MatCoarsenMISKSetDistance(agg->crs, agg->aggressive_mis_k));
  } else if (agg->use_aggressive_square_graph && agg->aggressive_coarsening_levels > 0) { /* without "pc_gamg_", as there */
    PetscCall(PetscObjectGetOptionsPrefix((PetscObject)pc, &prefix));
    PetscCall(PetscObjectSetOptionsPrefix((PetscObject)agg->crs, prefix));
    PetscCall(MatCoarsenSetFromOptions(agg->crs));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the distance between roots, or the reason why the algorithm is not ours */
static PetscErrorCode Distance(PC pc, GpufmtGamgLevel *level)
{
  GpufmtGamgAgg *agg = GpufmtGamgAggOf(pc);
  MatCoarsenType type;
  PetscInt       k = 1;
  PetscBool      is_hem, is_mis, is_misk;

  PetscFunctionBegin;
  PetscCall(CoarsenCreate(pc));
  PetscCall(PetscObjectTypeCompare((PetscObject)agg->crs, MATCOARSENHEM, &is_hem));
  PetscCall(PetscObjectTypeCompare((PetscObject)agg->crs, MATCOARSENMIS, &is_mis));
  if (is_mis && agg->aggressive_coarsening_levels) agg->use_aggressive_square_graph = PETSC_TRUE;
  level->distance = GpufmtGamgOf(pc)->current_level < agg->aggressive_coarsening_levels && agg->use_aggressive_square_graph ? 2 : 1;
  if (!is_hem) PetscCall(GpufmtGamgCoarsenForLevel(pc)); /* of that type all levels are */
  PetscCall(MatCoarsenGetType(agg->crs, &type));
  PetscCall(PetscStrcmp(type, MATCOARSENMIS, &is_mis));
  PetscCall(PetscStrcmp(type, MATCOARSENMISK, &is_misk));
  if (is_misk) PetscCall(MatCoarsenMISKGetDistance(agg->crs, &k));
  if (!is_mis && !is_misk) PetscCall(PetscSNPrintf(level->reason, sizeof(level->reason), "the coarsening is of type %s", type));
  else if (k != 1) PetscCall(PetscSNPrintf(level->reason, sizeof(level->reason), "the coarsening is misk with k = %" PetscInt_FMT, k));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The order of rows, or the reason why it is not ours: by default agg's on one rank, and else that which does not depend on the number of ranks. */
static PetscErrorCode Order(PC pc, Mat A, GpufmtGamgLevel *level)
{
  static const char *const orders[]  = {"petsc", "hash", "GpufmtGamgOrder", "", NULL};
  const PetscBool          on_a_rank = (PetscBool)(GpufmtSeqData(A) != NULL);
  PetscEnum                order     = (PetscEnum)!on_a_rank;

  PetscFunctionBegin;
  PetscCall(PetscOptionsGetEnum(((PetscObject)pc)->options, ((PetscObject)pc)->prefix, "-pc_gamg_gpufmt_order", orders, &order, NULL));
  level->by_hash = (PetscBool)(order != 0);
  if (!on_a_rank && !level->by_hash)
    PetscCall(PetscStrncpy(level->reason, "agg's order of the rows of several ranks was named", sizeof(level->reason)));
  else if (level->by_hash && GpufmtGamgAggOf(pc)->use_minimum_degree_ordering)
    PetscCall(PetscStrncpy(level->reason, "rows are to be in the order of their degrees, and not of a hash", sizeof(level->reason)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the set-up of the current level is ours, and why its graph is not: where ranks find aggregates together, it is the matrix or agg's. */
PetscErrorCode GpufmtGamgChoose(PC pc, Mat A, GpufmtGamgLevel *level)
{
  const PC_GAMG  *gamg      = GpufmtGamgOf(pc);
  const PetscReal threshold = gamg->threshold[gamg->current_level];
  PetscInt        block;

  PetscFunctionBegin;
  PetscCall(PetscMemzero(level, sizeof(*level)));
  PetscCall(MatGetBlockSize(A, &block));
  if (!GpufmtFormatFind(((PetscObject)A)->type_name))
    PetscCall(PetscSNPrintf(level->reason, sizeof(level->reason), "the matrix is of type %s", ((PetscObject)A)->type_name));
  else if (gamg->use_aggs_in_asm || gamg->asm_hem_aggs)
    PetscCall(PetscStrncpy(level->reason, "ASM smoothers want lists of aggregates", sizeof(level->reason)));
  else PetscCall(Order(pc, A, level));
  if (!level->reason[0]) PetscCall(Distance(pc, level));
  level->ours = (PetscBool)!level->reason[0];
  if (level->by_hash && block > 1) PetscCall(PetscSNPrintf(level->graph, sizeof(level->graph), "rows are of blocks of %" PetscInt_FMT, block));
  else if (level->by_hash && threshold >= 0) PetscCall(PetscSNPrintf(level->graph, sizeof(level->graph), "the threshold is %g", (double)threshold));
  else if (level->ours && GpufmtGamgAggOf(pc)->crs->strength_index_size > 0)
    PetscCall(PetscStrncpy(level->graph, "strength indices were named", sizeof(level->graph)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
