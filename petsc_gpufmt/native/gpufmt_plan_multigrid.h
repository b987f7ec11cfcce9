/* What multigrid asks the planner for, and the answers: a part of the interface in gpufmt_plan.h. Mirrored in
   petsc_gpufmt/planning/multigrid_abi.py. */
#pragma once
#include "gpufmt_plan.h"

/* the graph of a square matrix as PETSc's agg makes it: a node for each block of rows, A + A^T, no weak entries */
typedef struct {
  GpufmtPlace   place;
  GpufmtOperand matrix;
  const void   *values;        /* on the backend: [matrix.nnz]; read if there is a threshold */
  double        threshold;     /* that scaled weights of entries are above; negative: there is none */
  int32_t       block;         /* rows of a node */
  int32_t       symmetrize;    /* the transpose is added */
  int32_t       keep_diagonal; /* whatever the threshold */
  int32_t       symmetric;     /* the pattern of the matrix is known to be, with all entries of the diagonal; 0: it is looked at */
} GpufmtGraphRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtOperand graph;     /* on the backend */
  int64_t       longest;   /* entries of a row of it */
  int64_t       held;      /* number of the matrix's pattern */
  int32_t       applies;   /* 0: the graph is not symmetric, lacks an entry of the diagonal, or is left to agg: there is none */
  int32_t       is_matrix; /* the pattern is that of the matrix */
  char          summary[256];
} GpufmtGraphAnswer;

/* aggregates of the rows of a graph */
typedef struct {
  GpufmtPlace   place;
  GpufmtOperand graph;    /* of an answer that is held, on the same backend; a row with nothing but its diagonal belongs to no aggregate */
  int64_t       longest;  /* of the same answer */
  const void   *order;    /* host: [nrows] the rows in the order in which they are visited; NULL: as PETSc's agg shuffles them */
  int32_t       distance; /* roots are further apart: 1 (independent set), 2 (of the square graph, which is not formed) */
} GpufmtAggregatesRequest;

typedef struct {
  GpufmtOutcome outcome;
  int64_t       naggregates;
  const void   *aggregates; /* on the backend: [nrows] the aggregate of each row, numbered as PETSc's agg does; -1: none */
  const void   *turns;      /* on the backend, a byte a row: agg has the rows of an aggregate in the order of these, and of rows; NULL: of rows */
  int64_t       rounds;
  char          summary[256];
} GpufmtAggregatesAnswer;

/* What ranks do between exchanges that find aggregates together; petsc_gpufmt/coarsening/parallel_aggregates.py says which these are. JOIN_BEYOND is
   for distance 2. */
enum { GPUFMT_STEP_LOOK, GPUFMT_STEP_DECIDE, GPUFMT_STEP_NUMBER, GPUFMT_STEP_JOIN_NEXT, GPUFMT_STEP_JOIN_BEYOND, GPUFMT_NUM_STEPS };

/* aggregates of the rows of a square pattern that lie on several ranks, the same ones on any number of them */
typedef struct {
  GpufmtPlace   place;
  GpufmtOperand own;                 /* the columns that are rows of this rank, square */
  GpufmtOperand others;              /* the other columns, which are ghosts; rowptr NULL: there are none */
  const void   *ghosts;              /* host: [others.ncols] their numbers as rows */
  int64_t       first;               /* number of the first row of this rank */
  int32_t       distance, symmetric; /* as in GpufmtAggregatesRequest */
} GpufmtParallelAggregatesRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    steps[GPUFMT_NUM_STEPS];
  void         *words, *nearest, *numbers; /* on the backend: [own.nrows + others.ncols], as many bytes each as an index; what ranks exchange, and in
                                              the end the aggregates of rows, counted through all ranks, -1: none */
  const void   *counts;                    /* on the backend: [2] of 64 bits: undecided rows after each round, roots */
  int64_t       held[2];                   /* numbers of the patterns of `own` and `others` */
  uint64_t      asymmetry;                 /* the pattern of all ranks is not symmetric unless the sum of these is 0 */
  int32_t       applies;                   /* 0: on this rank alone it is not, or an entry of the diagonal is lacking: there are no steps */
} GpufmtParallelAggregatesAnswer;

/* the tentative prolongator of aggregates */
typedef struct {
  GpufmtPlace place;
  int64_t     nnodes, naggregates;
  const void *aggregates; /* of an answer that is held, on the same backend: [nnodes] */
  const void *turns;      /* of the same answer */
  int32_t     block;      /* rows of a node */
  int32_t     nvectors;   /* columns of the near-null space, and of an aggregate */
  const void *near_null;  /* host: [nvectors][nnodes * block] column by column; NULL: the constant vector, block and nvectors are 1 */
} GpufmtTentativeRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    numeric; /* writes the values: RESULT */
  int64_t       nrows, ncols, nnz;
  const void   *rowptr, *colidx;  /* on the backend: [nrows + 1]; [nnz], sorted in each row */
  int64_t       held;             /* number of the pattern */
  const void   *coarse_near_null; /* on the backend: [nvectors][ncols] column by column, R of each aggregate */
  char          summary[256];
} GpufmtTentativeAnswer;

/* the nodes of a rank whose aggregates belong to other ranks */
typedef struct {
  GpufmtPlace place;
  int64_t     nnodes;
  const void *aggregates;         /* of an answer that is held, on the same backend: [nnodes] counted through all ranks; -1: none */
  int64_t     first, naggregates; /* those that belong to this rank */
} GpufmtElsewhereRequest;

typedef struct {
  GpufmtOutcome outcome;
  int64_t       count;
  const void   *nodes, *aggregates; /* host: [count] the nodes ascend */
} GpufmtElsewhereAnswer;

/* the rows of a rank of the tentative prolongator of all ranks */
typedef struct {
  GpufmtPlace            place;
  GpufmtElsewhereRequest own;        /* its place is not read */
  int64_t                nreceived;  /* nodes of other ranks that belong to aggregates of this one */
  const void            *received;   /* host: [nreceived] their aggregates among those of this rank */
  int64_t                nghosts;    /* aggregates of other ranks that nodes of this one belong to */
  const void            *ghosts;     /* host: [nghosts] ascending */
  int64_t                nlooked_at; /* rows of other ranks that are looked at with those of this one, one by one; -1: rows are not wanted so */
  int32_t                block, nvectors;
  const void            *near_null; /* host: [nvectors][(nnodes + nreceived) * block] as in GpufmtTentativeRequest */
} GpufmtParallelTentativeRequest;

/* a block of a prolongator */
typedef struct {
  int64_t     ncols, nnz;
  const void *rowptr, *colidx; /* on the backend: [nnodes * block + 1]; [nnz], sorted in each row */
  int64_t     held;            /* number of the pattern */
} GpufmtBlockAnswer;

typedef struct {
  GpufmtOutcome     outcome;
  GpufmtBlockAnswer blocks[2]; /* columns of aggregates of this rank, and of `ghosts` */
  int64_t           nghosts;
  const void       *ghosts;           /* host: those of the request */
  const void       *values;           /* on the backend: those of the first block, then block * nvectors for each node received */
  void             *elsewhere;        /* on the backend: room for the values of the second block, which other ranks have */
  GpufmtPlan        rows;             /* writes those of `numbers` and `tentative` that are of this rank, once `elsewhere` is filled */
  void             *numbers;          /* on the backend: [nnodes * block + nlooked_at] the aggregate of each row, counted through all ranks */
  void             *tentative;        /* on the backend: as many times [nvectors] */
  const void       *coarse_near_null; /* as in GpufmtTentativeAnswer, with the columns of this rank */
} GpufmtParallelTentativeAnswer;

/* one step of smoothing applied to the tentative prolongator P0 of aggregates: P0 + alpha D A P0, where D is a diagonal */
typedef struct {
  GpufmtPlace   place;
  GpufmtOperand matrix; /* A, square; its diagonal is there, or P has more entries than A P0 */
  int64_t       naggregates;
  const void   *aggregates;      /* as in GpufmtTentativeRequest, held as long as the plan is replayed: [matrix.nrows / block] */
  int32_t       block, nvectors; /* as there */
} GpufmtSmoothedRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    numeric; /* RESULT = P0 + ALPHA diag(X) A P0; A_VALUES: those of A; B_VALUES: those of P0 */
  int64_t       nrows, ncols, nnz;
  const void   *rowptr, *colidx; /* on the backend: [nrows + 1]; [nnz], sorted in each row */
  int64_t       held;            /* number of the pattern */
  int32_t       applies;         /* 0: a row of A is too long for it, there is no plan; the general product takes any */
  char          summary[256];
} GpufmtSmoothedAnswer;

/* the rows of a rank of the smoothed prolongator of all ranks */
typedef struct {
  GpufmtPlace   place;
  GpufmtOperand own, others;        /* the rows of A on this rank: columns that are rows of it, and others */
  int64_t       nlow;               /* columns of `others` that are rows of ranks before this one: the first ones */
  int64_t       first, naggregates; /* as in GpufmtElsewhereRequest */
  int64_t       nghosts;
  const void   *ghosts;              /* host: [nghosts] as in GpufmtParallelTentativeRequest */
  const void   *numbers, *tentative; /* of an answer that is held, for each row of this rank and then for each column of `others` */
  int32_t       nvectors;
} GpufmtParallelSmoothedRequest;

typedef struct {
  GpufmtOutcome     outcome;
  GpufmtBlockAnswer blocks[2];  /* columns of aggregates of this rank, and of `ghosts` */
  GpufmtPlan        numeric[2]; /* of each block: RESULT = P0 + ALPHA diag(X) A P0; A_VALUES, B_VALUES: those of `own` and `others` */
  int64_t           nghosts;
  const void       *ghosts;  /* host: [nghosts] aggregates of other ranks, ascending */
  int32_t           applies; /* as in GpufmtSmoothedAnswer */
  char              summary[256];
} GpufmtParallelSmoothedAnswer;

/* the vector with which PETSc begins to estimate eigenvalues: the rows of this rank */
typedef struct {
  GpufmtPlace place;
  int64_t     nrows, first; /* rows, and the number of the first among those of all ranks */
} GpufmtStartVectorRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    fill; /* writes RESULT */
} GpufmtStartVectorAnswer;
