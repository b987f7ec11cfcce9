/* Rows of a parallel matrix, those of this rank or those of others, as one sequential matrix with few columns. */
#pragma once
#include <petscsf.h>
#include "gpufmt_impl.h"

typedef struct {
  Mat       matrix;  /* on this rank, its columns numbered in the order of `columns` */
  PetscInt *columns; /* their numbers in the parallel matrix, ascending */
  PetscInt  nlow;    /* columns before those that this rank owns */
  PetscSF   exchange; /* from the values of the owners' rows to those of `matrix`; NULL for rows of this rank */
} GpufmtRows;

GPUFMT_HIDDEN PetscErrorCode GpufmtRowsGetLocal(Mat parallel, MatType, GpufmtRows *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsGetRemote(Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, MatType, GpufmtRows *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsUpdateLocal(Mat parallel, GpufmtRows *local);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsUpdateRemote(const GpufmtRows *local, GpufmtRows *remote);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsDestroy(GpufmtRows *);
