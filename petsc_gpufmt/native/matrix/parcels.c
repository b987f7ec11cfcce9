/* What ranks send each other without knowing yet from whom it comes. */
#include "matrix/matrix.h"

/* Tells each of the ranks `to` a parcel of `n` integers, and gets those that others have for this rank, in the order of these, so that what is made of
   them does not depend on who comes first. `arrived` is the address of a pointer to parcels, which the caller frees, as `from`. Collective; what fails
   in the end on this rank alone is for the caller to agree on. */
PetscErrorCode GpufmtParcelsExchange(MPI_Comm comm, PetscMPIInt n, PetscMPIInt nto, const PetscMPIInt to[], const void *parcels, PetscMPIInt *nfrom,
                                     PetscMPIInt **from, void *arrived)
{
  const size_t   bytes = (size_t)n * sizeof(PetscInt);
  char          *came, *sorted; /* in the order in which they came, and of ranks */
  PetscMPIInt   *order = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscCommBuildTwoSided(comm, n, MPIU_INT, nto, to, parcels, nfrom, from, &came));
  ierr = PetscMalloc(bytes * (size_t)*nfrom, &sorted);
  if (!ierr) *(char **)arrived = sorted;
  if (!ierr) ierr = PetscMalloc1(*nfrom, &order);
  for (PetscMPIInt k = 0; k < *nfrom && !ierr; k++) order[k] = k;
  if (!ierr) ierr = PetscSortMPIIntWithArray(*nfrom, *from, order);
  for (PetscMPIInt k = 0; k < *nfrom && !ierr; k++) ierr = PetscMemcpy(sorted + bytes * (size_t)k, came + bytes * (size_t)order[k], bytes);
  PetscCall(PetscFree(order));
  PetscCall(PetscFree(came));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
