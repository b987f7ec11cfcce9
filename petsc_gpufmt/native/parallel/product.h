/* A product of parallel matrices between its phases. */
#pragma once
#include "parallel/pattern.h"
#include "parallel/rows.h"

enum {
  GPUFMT_MAX_PARTS = 3
};

typedef struct {
  MatProductType        type; /* AB, AtB or PtAP */
  int                   backend;
  GpufmtParallelPattern operands[GPUFMT_MAX_OPERANDS];
  GpufmtResultPattern   result;
  Mat                   second;        /* made operand: B^T, or B C; else NULL */
  GpufmtRows            local, remote; /* rows of the second operand */
  Mat                   parts[GPUFMT_MAX_PARTS];
  int                   nparts;
  GpufmtRows            sent, received; /* rows of the result that another rank owns */
  GpufmtEntrySum            *sums[2];        /* that make the blocks of the result */
  GpufmtManaged        *managed[2];     /* arrays of these blocks, until they have them */
} GpufmtParallelProduct;

/* mpiparts.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtPartsCreate(Mat C, GpufmtParallelProduct *, Mat A);
GPUFMT_HIDDEN PetscErrorCode GpufmtPartsNumeric(GpufmtParallelProduct *, Mat A);
GPUFMT_HIDDEN PetscInt       GpufmtPartsSummands(const GpufmtParallelProduct *, PetscBool to_be_sent, const PetscInt targets[], GpufmtSummand summands[]);

/* mpiresult.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtResultCreate(Mat C, GpufmtParallelProduct *, Mat A, Mat B, MatType);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultNumeric(Mat C, GpufmtParallelProduct *);
