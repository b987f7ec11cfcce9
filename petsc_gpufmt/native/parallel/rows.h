/* Rows of a parallel matrix, those of this rank or those of others, as one sequential matrix with few columns. */
#pragma once
#include <petscsf.h>
#include "parallel/entry_sum.h"

typedef struct {
  Mat         matrix;   /* on this rank, its columns numbered in the order of `columns` */
  PetscInt   *columns;  /* their numbers in the parallel matrix, ascending */
  PetscInt    nlow;     /* columns before those that this rank owns, of rows of this rank */
  PetscInt   *rows;     /* numbers in the parallel matrix of rows that were sent here; else NULL */
  GpufmtEntrySum  *sum;      /* its values from others of this rank; NULL if they come from other ranks, or are those of a matrix that is there */
  PetscSF     exchange; /* its values from those of other ranks; else NULL */
  const void *root;     /* of an exchange under way: what is sent and where it arrives */
  void       *leaf;
} GpufmtRows;

/* mpirows.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtCreateFromPattern(MatType, PetscInt nrows, PetscInt ncols, const PetscInt rowptr[], PetscInt colidx[], PetscInt row_block, PetscInt col_block, Mat *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCreateEmpty(MatType, PetscInt nrows, PetscInt ncols, PetscInt row_block, PetscInt col_block, Mat *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCreateInternal(MatType, int backend, PetscInt nrows, PetscInt ncols, const PetscInt rowptr[], PetscInt colidx[], Mat *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsAddUp(MatType, int backend, PetscInt nrows, PetscInt nsummands, const GpufmtSummand[], GpufmtRows *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsGetLocal(Mat parallel, MatType, int backend, GpufmtRows *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsUpdateLocal(Mat parallel, GpufmtRows *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsDestroy(GpufmtRows *);

/* mpiexchange.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsGetRemote(Mat C, Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, MatType, int backend, GpufmtRows *remote);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsSend(Mat C, PetscLayout, const PetscInt rows[], const GpufmtRows *sent, MatType, int backend, GpufmtRows *received);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsExchangeBegin(int backend, const GpufmtRows *from, GpufmtRows *to);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsExchangeEnd(int backend, const GpufmtRows *from, GpufmtRows *to);
