/* The type gpufmt of PCGAMG: its creation with agg inside, how it takes the place of agg and gives it back, what -ksp_view shows. */
#include "gamg/gamg.h"

static const char container[] = "petsc_gpufmt_gamg";

static PetscErrorCode (*parent_create)(PC) = NULL;

static PetscErrorCode Destroy(GpufmtContextAddress address)
{
  GpufmtGamg **gamg = (GpufmtGamg **)address;

  PetscFunctionBegin;
  PetscCall(GpufmtLeaseDrop(&(*gamg)->graph_lease));
  PetscCall(GpufmtLeaseDrop(&(*gamg)->lease));
  PetscCall(GpufmtLeaseDrop(&(*gamg)->tentative_lease));
  PetscCall(GpufmtLeaseDrop(&(*gamg)->smoothed_lease));
  PetscCall(GpufmtGhostsDestroy(&(*gamg)->ghosts));
  for (int k = 0; k < PETSC_MG_MAXLEVELS; k++) PetscCall(GpufmtLeaseDrop(&(*gamg)->starts[k].lease));
  PetscCall(GpufmtJacobiLeave());
  PetscCall(PetscFree(*gamg));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what belongs to a PC of type gamg, made if it is not there */
PetscErrorCode GpufmtGamgGet(PC pc, GpufmtGamg **gamg)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery((PetscObject)pc, container, (void *)gamg));
  if (*gamg) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(gamg));
  GpufmtJacobiUse();
  PetscCall(PetscObjectContainerCompose((PetscObject)pc, container, *gamg, Destroy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether agg has just made a context that begins as we know it */
static PetscBool LayoutIsKnown(PC pc)
{
  const GpufmtGamgAgg *agg = GpufmtGamgAggOf(pc);

  return (PetscBool)(agg && agg->nsmooths == 1 && agg->aggressive_coarsening_levels == 1 && agg->aggressive_mis_k == 2 &&
                     agg->use_aggressive_square_graph == PETSC_TRUE && agg->use_minimum_degree_ordering == PETSC_FALSE &&
                     agg->use_low_mem_filter == PETSC_FALSE && agg->graph_symmetrize == PETSC_TRUE && !agg->crs);
}

PetscBool GpufmtGamgIsOurs(PC pc)
{
  return (PetscBool)(GpufmtGamgOf(pc)->ops->creategraph == PCGAMGCreateGraph_Gpufmt);
}

static PetscErrorCode PCView_GAMGGpufmt(PC pc, PetscViewer viewer)
{
  GpufmtGamg *gamg;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  PetscCall((*gamg->agg.view)(pc, viewer));
  for (PetscInt k = 0; k < gamg->nlevels; k++) {
    const GpufmtGamgLevel *level = &gamg->levels[k];

    if (level->ours)
      PetscCall(PetscViewerASCIIPrintf(viewer, "        gpufmt, level %" PetscInt_FMT " from the finest: %s%s%s\n", k, level->summary,
                                       level->smoothing[0] ? "; smoothed by products, because " : "", level->smoothing));
    else
      PetscCall(
        PetscViewerASCIIPrintf(viewer, "        gpufmt, level %" PetscInt_FMT " from the finest: set-up of agg, because %s\n", k, level->reason));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetName(PC_GAMG *g, PCGAMGType name)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(g->gamg_type_name));
  PetscCall(PetscStrallocpy(name, &g->gamg_type_name));
  g->type = name;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Our functions take the place of those of agg, whose context and options stay, or give it back. Only agg can be taken. */
PetscErrorCode GpufmtGamgTake(PC pc, GpufmtGamg *gamg, PetscBool ours)
{
  PC_GAMG  *g = GpufmtGamgOf(pc);
  PetscBool is_agg;

  PetscFunctionBegin;
  if (ours == GpufmtGamgIsOurs(pc)) PetscFunctionReturn(PETSC_SUCCESS);
  if (!ours) {
    *g->ops = gamg->agg;
    PetscCall(SetName(g, PCGAMGAGG));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscStrcmp(g->gamg_type_name, PCGAMGAGG, &is_agg));
  if (!is_agg) PetscFunctionReturn(PETSC_SUCCESS);
  if (!gamg->layout_known) {
    PetscCall(PetscInfo(pc, "the set-up is that of agg, because agg of this PETSc is not as petsc_gpufmt knows it\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  gamg->agg                 = *g->ops;
  gamg->nlevels             = 0;
  g->ops->creategraph       = PCGAMGCreateGraph_Gpufmt;
  g->ops->coarsen           = PCGAMGCoarsen_Gpufmt;
  g->ops->prolongator       = PCGAMGProlongator_Gpufmt;
  g->ops->optprolongator    = PCGAMGOptimizeProlongator_Gpufmt;
  g->ops->createlevel       = PCGAMGCreateLevel_Gpufmt;
  g->ops->createdefaultdata = PCGAMGCreateDefaultData_Gpufmt;
  g->ops->view              = PCView_GAMGGpufmt;
  PetscCall(SetName(g, PCGAMGGPUFMT));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* for -pc_gamg_type gpufmt and PCGAMGSetType() */
static PetscErrorCode PCCreateGAMG_Gpufmt(PC pc)
{
  GpufmtGamg *gamg;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  PetscCall(PCGAMGSetType(pc, PCGAMGAGG));
  gamg->layout_known = LayoutIsKnown(pc);
  PetscCheck(
    gamg->layout_known, PetscObjectComm((PetscObject)pc), PETSC_ERR_SUP,
    "-pc_gamg_type gpufmt: agg of PETSc %d.%d.%d is not as petsc_gpufmt knows it; use -pc_gamg_type agg, and a petsc_gpufmt that knows this PETSc",
    PETSC_VERSION_MAJOR, PETSC_VERSION_MINOR, PETSC_VERSION_SUBMINOR);
  PetscCall(GpufmtGamgTake(pc, gamg, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* notes that the user has named a type */
static PetscErrorCode PCGAMGSetType_Gpufmt(PC pc, PCGAMGType type)
{
  GpufmtGamg    *gamg;
  char          *name;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  gamg->chosen = PETSC_TRUE;
  PetscCall(PetscStrallocpy(type, &name)); /* PETSc frees the name that it has, which this may be */
  ierr                   = (*gamg->set_type)(pc, name);
  GpufmtGamgOf(pc)->type = GpufmtGamgOf(pc)->gamg_type_name; /* PETSc keeps the name that it was given, which goes */
  PetscCall(PetscFree(name));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode (*parent_set_levels)(PC, PetscInt, MPI_Comm *) = NULL;

/* Solvers of levels are there now. Vectors of the finest one are made as one of its matrix, and not as those of the DM, which have pinned memory on the host
   besides: that is 12 ms for 4 million rows. */
static PetscErrorCode PCMGSetLevels_Gpufmt(PC pc, PetscInt nlevels, MPI_Comm *comms)
{
  PC_MG *mg = (PC_MG *)pc->data;
  KSP    finest;
  Vec    v;

  PetscFunctionBegin;
  PetscCall((*parent_set_levels)(pc, nlevels, comms));
  if (nlevels < 2 || !pc->pmat || !GpufmtGamgIsOurs(pc) || !GpufmtFormatFind(((PetscObject)pc->pmat)->type_name)) PetscFunctionReturn(PETSC_SUCCESS);
  finest = mg->levels[nlevels - 1]->smoothd;
  if (finest->vec_sol) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatCreateVecs(pc->pmat, &v, NULL));
  PetscCall(PCMGSetR(pc, nlevels - 1, v));
  finest->vec_sol = v; /* until its first solve */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCCreate_GAMGGpufmt(PC pc)
{
  GpufmtGamg *gamg;

  PetscFunctionBegin;
  PetscCall((*parent_create)(pc));
  PetscCall(PetscObjectCompose((PetscObject)pc, container, NULL)); /* of a time when the PC was of this type before */
  PetscCall(GpufmtGamgGet(pc, &gamg));
  gamg->layout_known = LayoutIsKnown(pc);
  PetscCall(PetscObjectQueryFunction((PetscObject)pc, "PCGAMGSetType_C", &gamg->set_type));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, "PCGAMGSetType_C", PCGAMGSetType_Gpufmt));
  GpufmtComposeFunction(pc, "PCMGSetLevels_C", PETSC_TRUE, PCMGSetLevels_Gpufmt, parent_set_levels);
  gpufmt_gamg_parent_setup = pc->ops->setup;
  pc->ops->setup           = PCSetUp_GAMGGpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* once for each PetscInitialize(), which makes PETSc's lists of types */
PetscErrorCode GpufmtGamgSetUp(void)
{
  PetscFunctionBegin;
  PetscCall(PCGAMGRegister(PCGAMGGPUFMT, PCCreateGAMG_Gpufmt));
  PetscCall(PCInitializePackage());
  PetscCall(GpufmtMgSetUp());
  PetscCall(PetscFunctionListFind(PCList, PCGAMG, &parent_create));
  PetscCall(PCRegister(PCGAMG, PCCreate_GAMGGpufmt));
  PetscFunctionReturn(PETSC_SUCCESS);
}
