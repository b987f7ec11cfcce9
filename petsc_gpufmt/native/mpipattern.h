/* What parallel matrices were in the symbolic phase of a product, and errors that all ranks share. */
#pragma once
#include "gpufmt_impl.h"

/* of an operand, on this rank */
typedef struct {
  PetscObjectId    id;
  PetscObjectState state;  /* of the nonzero pattern of the whole matrix */
  GpufmtProduct   *blocks; /* keeps the patterns of both blocks as a sequential product keeps those of its operands */
  uint64_t         ghosts; /* digest of the columns of the off-diagonal block */
} GpufmtParallelPattern;

/* of the result, on this rank */
typedef struct {
  PetscObjectState state;
  uint64_t         rows[2]; /* digests of the row pointers of its blocks */
} GpufmtResultPattern;

GPUFMT_HIDDEN PetscErrorCode GpufmtFailTogether(Mat, PetscErrorCode);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelPatternRecord(Mat, GpufmtParallelPattern *);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelPatternCheck(Mat C, Mat A, char letter, GpufmtParallelPattern *);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultPatternRecord(Mat C, GpufmtResultPattern *);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultPatternCheck(Mat C, GpufmtResultPattern *);
