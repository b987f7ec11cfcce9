/* What parallel matrices were in the symbolic phase of a product, and errors that all ranks share. */
#pragma once
#include "gpufmt_impl.h"

/* of an operand, on this rank */
typedef struct {
  PetscObjectId  id;
  GpufmtProduct *blocks; /* keeps the patterns of both blocks as a sequential product keeps those of its operands */
  uint64_t       ghosts; /* digest of the columns of the off-diagonal block */
} GpufmtParallelPattern;

/* of the blocks of the result, on this rank */
typedef struct {
  PetscObjectId    ids[2];
  PetscObjectState states[2]; /* of their nonzero patterns */
  uint64_t         rows[2];   /* digests of their row pointers */
} GpufmtResultPattern;

GPUFMT_HIDDEN PetscErrorCode GpufmtFailTogether(Mat, PetscErrorCode);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelPatternRecord(Mat, GpufmtParallelPattern *);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultPatternRecord(Mat C, GpufmtResultPattern *);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelPatternsCheck(Mat C, GpufmtParallelPattern operands[], GpufmtResultPattern *);
