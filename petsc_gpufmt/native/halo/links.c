/* Who sends what to whom in a halo exchange. */
#include "halo/halo.h"

static PetscErrorCode LinksCopy(PetscSF exchange, GpufmtHaloLinks *links)
{
  const PetscMPIInt *to, *from;
  const PetscInt    *to_begins, *from_begins, *indices, *ghosts;
  PetscMPIInt        nto, nfrom;

  PetscFunctionBegin;
  PetscCall(PetscSFGetLeafRanks(exchange, &nto, &to, &to_begins, &indices));
  PetscCall(PetscSFGetRootRanks(exchange, &nfrom, &from, &from_begins, &ghosts, NULL));
  PetscCall(PetscMalloc3(nto, &links->to, nto + 1, &links->to_begins, nto ? to_begins[nto] : 0, &links->indices));
  PetscCall(PetscMalloc2(nfrom, &links->from, nfrom + 1, &links->from_begins));
  links->nto   = nto;
  links->nfrom = nfrom;
  PetscCall(PetscArraycpy(links->to, to, nto));
  PetscCall(PetscArraycpy(links->from, from, nfrom));
  links->to_begins[0] = links->from_begins[0] = 0;
  for (PetscMPIInt k = 0; k < nto; k++) links->to_begins[k + 1] = to_begins[k + 1];
  for (PetscMPIInt k = 0; k < nfrom; k++) links->from_begins[k + 1] = from_begins[k + 1];
  if (nto) PetscCall(PetscArraycpy(links->indices, indices, to_begins[nto]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* collective */
PetscErrorCode GpufmtHaloLinksFind(Mat A, PetscInt nghosts, const PetscInt columns[], GpufmtHaloLinks *links)
{
  PetscSF        exchange;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &exchange));
  PetscCall(PetscSFSetGraphLayout(exchange, A->cmap, nghosts, NULL, PETSC_USE_POINTER, columns));
  PetscCall(PetscSFSetUp(exchange));
  ierr = LinksCopy(exchange, links);
  PetscCall(PetscSFDestroy(&exchange));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtHaloLinksFree(GpufmtHaloLinks *links)
{
  PetscFunctionBegin;
  PetscCall(PetscFree3(links->to, links->to_begins, links->indices));
  PetscCall(PetscFree2(links->from, links->from_begins));
  PetscFunctionReturn(PETSC_SUCCESS);
}
