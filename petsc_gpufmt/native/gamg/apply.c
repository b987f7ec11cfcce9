/* PCMG works on the right-hand side that it is given without a hold on it. After an error it keeps that, and the next application, or the end, would destroy
   what belongs to someone else. Here it gets a hold on it then. */
#include "gamg/gamg.h"

static struct _PCOps parent; /* the same for all, from the first on */
static PetscErrorCode (*parent_create)(PC) = NULL;

/* An application to b, a vector or a dense matrix, is over. Returns what it has returned. */
static PetscErrorCode Over(PC pc, PetscObject b, PetscErrorCode ierr)
{
  PC_MG_Levels **levels = ((PC_MG *)pc->data)->levels, *finest = levels ? levels[levels[0]->levels - 1] : NULL;

  PetscFunctionBegin;
  if (ierr && finest && (b == (PetscObject)finest->b || b == (PetscObject)finest->B)) PetscCall(PetscObjectReference(b));
  PetscFunctionReturn(ierr);
}

static PetscErrorCode PCApply_MGGpufmt(PC pc, Vec b, Vec x)
{
  PetscFunctionBegin;
  PetscCall(Over(pc, (PetscObject)b, (*parent.apply)(pc, b, x)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApplyTranspose_MGGpufmt(PC pc, Vec b, Vec x)
{
  PetscFunctionBegin;
  PetscCall(Over(pc, (PetscObject)b, (*parent.applytranspose)(pc, b, x)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApplyRichardson_MGGpufmt(PC pc, Vec b, Vec x, Vec w, PetscReal rtol, PetscReal atol, PetscReal divtol, PetscInt its,
                                                 PetscBool zero_guess, PetscInt *its_made, PCRichardsonConvergedReason *reason)
{
  PetscFunctionBegin;
  PetscCall(Over(pc, (PetscObject)b, (*parent.applyrichardson)(pc, b, x, w, rtol, atol, divtol, its, zero_guess, its_made, reason)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCMatApply_MGGpufmt(PC pc, Mat B, Mat X)
{
  PetscFunctionBegin;
  PetscCall(Over(pc, (PetscObject)B, (*parent.matapply)(pc, B, X)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCMatApplyTranspose_MGGpufmt(PC pc, Mat B, Mat X)
{
  PetscFunctionBegin;
  PetscCall(Over(pc, (PetscObject)B, (*parent.matapplytranspose)(pc, B, X)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PCMGSetLevels() and PCMGSetType() set what PCMG has, or nothing, until the set-up is over. */
void GpufmtMgRichardsonTake(PC pc)
{
  if (!parent.applyrichardson) parent.applyrichardson = pc->ops->applyrichardson;
  if (pc->ops->applyrichardson == parent.applyrichardson && parent.applyrichardson) pc->ops->applyrichardson = PCApplyRichardson_MGGpufmt;
}

static PetscErrorCode PCSetUp_MGGpufmt(PC pc)
{
  PetscFunctionBegin;
  PetscCall((*parent.setup)(pc));
  GpufmtMgRichardsonTake(pc);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCCreate_MGGpufmt(PC pc)
{
  PetscFunctionBegin;
  PetscCall((*parent_create)(pc));
  if (!parent.setup) parent = *pc->ops;
  pc->ops->setup = PCSetUp_MGGpufmt;
  if (parent.apply) pc->ops->apply = PCApply_MGGpufmt;
  if (parent.applytranspose) pc->ops->applytranspose = PCApplyTranspose_MGGpufmt;
  if (parent.matapply) pc->ops->matapply = PCMatApply_MGGpufmt;
  if (parent.matapplytranspose) pc->ops->matapplytranspose = PCMatApplyTranspose_MGGpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* once for each PetscInitialize(), before PCGAMG gets what belongs to it, which is made of PCMG */
PetscErrorCode GpufmtMgSetUp(void)
{
  PetscFunctionBegin;
  PetscCall(PetscFunctionListFind(PCList, PCMG, &parent_create));
  PetscCall(PCRegister(PCMG, PCCreate_MGGpufmt));
  PetscFunctionReturn(PETSC_SUCCESS);
}
