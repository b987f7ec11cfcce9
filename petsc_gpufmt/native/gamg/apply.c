/* PCMG works on the right-hand side that it is given without a hold on it. After an error it keeps that, and the next application, or the end, would destroy
   what belongs to someone else. Here it gets a hold on it then. */
#include "gamg/gamg.h"

static struct _PCOps parent; /* the same for all, from the first on */
static PetscErrorCode (*parent_create)(PC) = NULL;

static PetscErrorCode Hold(PC pc, Vec b, Mat B)
{
  PC_MG_Levels **levels = ((PC_MG *)pc->data)->levels, *finest = levels ? levels[levels[0]->levels - 1] : NULL;

  PetscFunctionBegin;
  if (finest && b && finest->b == b) PetscCall(PetscObjectReference((PetscObject)b));
  if (finest && B && finest->B == B) PetscCall(PetscObjectReference((PetscObject)B));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApply_MGGpufmt(PC pc, Vec b, Vec x)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = (*parent.apply)(pc, b, x);
  if (ierr) PetscCall(Hold(pc, b, NULL));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApplyTranspose_MGGpufmt(PC pc, Vec b, Vec x)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = (*parent.applytranspose)(pc, b, x);
  if (ierr) PetscCall(Hold(pc, b, NULL));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApplyRichardson_MGGpufmt(PC pc, Vec b, Vec x, Vec w, PetscReal rtol, PetscReal atol, PetscReal divtol, PetscInt its,
                                                 PetscBool zero_guess, PetscInt *its_made, PCRichardsonConvergedReason *reason)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = (*parent.applyrichardson)(pc, b, x, w, rtol, atol, divtol, its, zero_guess, its_made, reason);
  if (ierr) PetscCall(Hold(pc, b, NULL));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCMatApply_MGGpufmt(PC pc, Mat B, Mat X)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = (*parent.matapply)(pc, B, X);
  if (ierr) PetscCall(Hold(pc, NULL, B));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCMatApplyTranspose_MGGpufmt(PC pc, Mat B, Mat X)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = (*parent.matapplytranspose)(pc, B, X);
  if (ierr) PetscCall(Hold(pc, NULL, B));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PCMGSetType() sets what PCMG has, or nothing, until the set-up is over. */
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
