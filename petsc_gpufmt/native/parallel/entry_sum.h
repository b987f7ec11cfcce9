/* Sums of sequential matrices whose rows and columns lie in different places of a parallel one: found once, then replayed for new values. */
#pragma once
#include "gpufmt_impl.h"

enum {
  GPUFMT_MAX_SUMMANDS = 3
};

typedef struct {
  Mat             matrix;  /* its rows sorted by column */
  const PetscInt *columns; /* numbers of its columns in the parallel matrix, ascending; NULL: first_column, first_column + 1, ... */
  PetscInt        first_column;
  const PetscInt *targets; /* row of the sum to which each row belongs, -1: to none; NULL: to the row of its number */
} GpufmtSummand;

/* some columns of a sum: its pattern, and the entries of the summands (counted through) that make each entry of it, in a fixed order */
typedef struct {
  PetscInt *rowptr, *colidx;
  PetscInt *begins; /* [nnz + 1]; NULL: each entry has one term */
  PetscInt *index;  /* [begins[nnz]] */
} GpufmtUnionPart;

/* the pattern of a sum */
typedef struct {
  PetscInt          nrows, ncols;
  PetscInt         *columns;   /* [ncols] those of all summands in the parallel matrix, ascending */
  PetscInt          low, high; /* places in `columns` of those in a given range */
  GpufmtUnionPart   parts[2];  /* columns in the range, and all others; colidx are places in `columns` */
  PetscInt          sizes[GPUFMT_MAX_SUMMANDS]; /* entries of the summands */
  PetscBool         planned;                    /* `answer` has the parts, `parts` is empty */
  GpufmtUnionAnswer answer;
  GpufmtLease       lease;    /* of the patterns of the answer */
  GpufmtLease       plans[2]; /* of the plans of the parts, until a sum takes them */
} GpufmtUnion;

/* the values of a sum */
typedef struct {
  int                backend;
  GpufmtLease        lease; /* of the plan */
  GpufmtPlan         plan;
  PetscInt           sizes[GPUFMT_MAX_SUMMANDS], ntargets, nterms;
  GpufmtDeviceValues own[GPUFMT_MAX_SUMMANDS + 1]; /* of summands and result that are not of our types */
} GpufmtEntrySum;

GPUFMT_HIDDEN PetscErrorCode GpufmtUnionCreate(int backend, PetscBool planned, PetscInt nrows, PetscInt first, PetscInt last, PetscInt nsummands, const GpufmtSummand[], GpufmtUnion *);
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionDestroy(GpufmtUnion *);

/* mpiunion_plan.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionPlan(int backend, PetscInt nsummands, const GpufmtSummand[], PetscInt *const places[], GpufmtUnion *);
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionManaged(int backend, const GpufmtUnion *, int k, GpufmtManaged **);
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionGhosts(const GpufmtUnion *, PetscInt *nghosts, PetscInt **ghosts);
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionRelease(GpufmtUnion *);

/* mpisum.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtEntrySumCreate(int backend, GpufmtUnion *, int k, GpufmtEntrySum **);
GPUFMT_HIDDEN PetscErrorCode GpufmtEntrySumRun(GpufmtEntrySum *, const Mat summands[], Mat result, PetscBool internal);
GPUFMT_HIDDEN PetscErrorCode GpufmtEntrySumDestroy(GpufmtEntrySum **);
