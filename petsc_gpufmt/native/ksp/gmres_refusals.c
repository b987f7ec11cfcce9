/* What types of GMRES leave to PETSc's own. */
#include "ksp/ksp.h"

/* classical Gram-Schmidt without refinement, as by default */
static PetscErrorCode OrthogonalizesOnce(KSP ksp, PetscBool *once)
{
  PetscFunctionBegin;
#if PETSC_VERSION_LT(3, 26, 0)
  {
    const GpufmtGmresContext *g = (const GpufmtGmresContext *)ksp->data;

    *once = (PetscBool)(g->orthog == KSPGMRESClassicalGramSchmidtOrthogonalization && g->cgstype == KSP_GMRES_CGS_REFINE_NEVER);
  }
#else
  *once = (PetscBool)(ksp->orthog == KSPOrthogonalizationClassicalGramSchmidt && ksp->cgstype == KSP_ORTHOGONALIZATION_CGS_REFINE_NEVER);
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* before PETSc 3.26 a preconditioner may come with a scaling of the system */
static PetscErrorCode Scales(KSP ksp, PetscBool *scales)
{
  PetscFunctionBegin;
  *scales = PETSC_FALSE;
#if PETSC_VERSION_LT(3, 26, 0)
  PetscCall(PCGetDiagonalScale(ksp->pc, scales));
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* why a solve is left to PETSc; NULL: it is not */
PetscErrorCode GpufmtGmresWhyNot(KSP ksp, int *backend, const char **why_not)
{
  const GpufmtGmresContext *g         = (const GpufmtGmresContext *)ksp->data;
  const Vec                 vectors[] = {ksp->vec_sol, ksp->vec_rhs, g->vecs[0], g->vecs[GPUFMT_GMRES_BASIS]};
  PetscBool                 usable, once, scales, looks_at_basis = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(GpufmtKspBackend(PETSC_STATIC_ARRAY_LENGTH(vectors), vectors, backend, &usable));
  PetscCall(OrthogonalizesOnce(ksp, &once));
  PetscCall(Scales(ksp, &scales));
  for (PetscInt k = 0; k < ksp->numbermonitors; k++) {
    if (ksp->monitor[k] == KSPGMRESMonitorKrylov) looks_at_basis = PETSC_TRUE;
  }
  if (!once) *why_not = "orthogonalization is not classical Gram-Schmidt without refinement";
  else if (ksp->calc_ritz) *why_not = "Ritz pairs are wanted";
  else if (looks_at_basis) *why_not = "vectors of the basis are monitored";
  else if (scales) *why_not = "the preconditioner scales the system";
  else if (!usable) *why_not = GPUFMT_KSP_VECTORS_ELSEWHERE;
  else *why_not = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}
