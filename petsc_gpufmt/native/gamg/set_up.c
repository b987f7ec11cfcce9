/* The set-up of PCGAMG around PETSc's: which type makes it, and what a failed one would leave behind. */
#include "gamg/gamg.h"

PetscErrorCode (*gpufmt_gamg_parent_setup)(PC) = NULL;

/* what is held of a level in progress: the patterns are wanted until the product of the next level's matrix is made */
static PetscErrorCode DropLevel(GpufmtGamg *gamg)
{
  PetscFunctionBegin;
  PetscCall(GpufmtDeviceValuesEnd()); /* nobody may have wanted them */
  PetscCall(GpufmtGhostsDestroy(&gamg->ghosts));
  PetscCall(GpufmtLeaseDrop(&gamg->smoothed_lease));
  PetscCall(GpufmtLeaseDrop(&gamg->tentative_lease));
  PetscCall(GpufmtLeaseDrop(&gamg->lease));
  PetscCall(GpufmtLeaseDrop(&gamg->graph_lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Notes what PETSc's set-up holds in variables of its own, which it does not free after an error. */
PetscErrorCode PCGAMGCreateLevel_Gpufmt(PC pc, Mat A, PetscInt block, Mat *P, Mat *coarse, PetscMPIInt *nactive, IS *permutation, PetscBool is_last)
{
  const PetscInt number = GpufmtGamgOf(pc)->current_level;
  GpufmtGamg    *gamg;
  PetscMPIInt    nranks;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &nranks));
  if (gamg->visited != number) { /* no graph was made */
    gamg->levels[number] = (GpufmtGamgLevel){.reason = "its prolongator is an injection"};
    gamg->nlevels        = number + 1;
  }
  if (nranks > 1) gamg->prolongators[number] = NULL; /* it may be replaced by one with fewer ranks */
  PetscCall((*gamg->agg.createlevel)(pc, A, block, P, coarse, nactive, permutation, is_last));
  gamg->prolongators[number] = *P;
  gamg->matrices[number]     = *coarse;
  PetscCall(DropLevel(gamg));
  PetscCall(GpufmtGamgTellMemory(pc, number, A, *P, *coarse));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the set-up has ended: what it held is PETSc's again, or is destroyed after an error */
static PetscErrorCode ForgetOrDestroy(GpufmtGamg *gamg, PetscBool destroy)
{
  Mat listed;

  PetscFunctionBegin;
  PetscCall(DropLevel(gamg));
  for (PetscInt k = 0; k < PETSC_MG_MAXLEVELS; k++) {
    if (destroy) PetscCall(MatDestroy(&gamg->matrices[k]));
    if (destroy) PetscCall(MatDestroy(&gamg->prolongators[k]));
    gamg->matrices[k] = gamg->prolongators[k] = NULL;
  }
  if (destroy && gamg->lists) {
    PetscCall(PetscCDGetMat(gamg->lists, &listed));
    if (listed == gamg->graph) PetscCall(PetscCDClearMat(gamg->lists)); /* which takes no reference */
    PetscCall(PetscCDDestroy(gamg->lists));
  }
  if (destroy) PetscCall(MatDestroy(&gamg->graph));
  gamg->graph = NULL;
  gamg->lists = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether a set-up takes the interpolations as they are, as PCSetUp_GAMG() decides */
static PetscBool OnlyNewValues(PC pc)
{
  return (PetscBool)(pc->setupcalled && GpufmtGamgOf(pc)->reuse_prol && pc->flag != DIFFERENT_NONZERO_PATTERN);
}

/* A near-null space that the user has set (PCSetCoordinates()) is replaced level by level, so that after an error the next set-up would begin
   with that of a coarse level: it gets the first one again, or makes the default one. */
static PetscErrorCode SetUp(PC pc, GpufmtGamg *gamg)
{
  PC_GAMG       *g    = GpufmtGamgOf(pc);
  const PetscInt size = g->data_sz, rows = g->data_cell_rows, columns = g->data_cell_cols;
  PetscReal     *data = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (g->data) {
    PetscCall(PetscMalloc1(size, &data));
    PetscCall(PetscArraycpy(data, g->data, size));
  }
  gamg->visited = -1;
  if (g->data || !g->orig_data) gamg->constant = PETSC_FALSE; /* else PETSc has a copy of what we found to be constant, or not */
  ierr = OnlyNewValues(pc) ? GpufmtGamgStartsBegin(pc, gamg) : PETSC_SUCCESS;
  if (!ierr) ierr = (*gpufmt_gamg_parent_setup)(pc);
  PetscCall(GpufmtGamgStartsEnd(gamg));
  PetscCall(ForgetOrDestroy(gamg, (PetscBool)(ierr != PETSC_SUCCESS)));
  if (!ierr) ierr = GpufmtGamgSmoothersTake(pc);
  if (ierr) {
    PetscCall(PetscFree(g->data));
    g->data           = data;
    g->data_sz        = size;
    g->data_cell_rows = rows;
    g->data_cell_cols = columns;
  } else PetscCall(PetscFree(data));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The type is ours where the matrix is, unless the user has named one: options and operators may have come in any order until here. */
PetscErrorCode PCSetUp_GAMGGpufmt(PC pc)
{
  GpufmtGamg *gamg;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  if (!gamg->chosen) PetscCall(GpufmtGamgTake(pc, gamg, (PetscBool)(GpufmtFormatFind(((PetscObject)pc->pmat)->type_name) != NULL)));
  if (GpufmtGamgIsOurs(pc)) PetscCall(SetUp(pc, gamg));
  else PetscCall((*gpufmt_gamg_parent_setup)(pc));
  GpufmtMgRichardsonTake(pc);
  PetscFunctionReturn(PETSC_SUCCESS);
}
