/* Sparse products of parallel matrices: sequential products, rows that ranks exchange, and sums of sequential matrices whose rows and columns
   lie in different places of a parallel one, found once, then replayed for new values. */
#pragma once
#include "product/product.h"

enum { GPUFMT_MAX_SUMMANDS = 3 };

/* Columns of rows, by their numbers in the parallel matrix, ascending: those that this rank owns, all or none of them, and others. */
typedef struct {
  PetscInt  first, nown;   /* first, first + 1, ... */
  PetscInt  nlow, nothers; /* of the others those before, and all */
  PetscInt *others;
} GpufmtColumns;

static inline PetscInt GpufmtColumn(const GpufmtColumns *columns, PetscInt k)
{
  if (k < columns->nlow) return columns->others[k];
  return k - columns->nlow < columns->nown ? columns->first + k - columns->nlow : columns->others[k - columns->nown];
}

typedef struct {
  Mat             matrix; /* its rows sorted by column */
  GpufmtColumns   columns;
  const PetscInt *targets;             /* row of the sum to which each row belongs, -1: to none; NULL: as follows */
  PetscInt        first_row, last_row; /* rows in this range belong to rows 0, 1, ..., and others to none */
  PetscBool       outside;             /* or those outside of it do, and those in it do not */
} GpufmtSummand;

/* where a summand finds its columns in a sum: columns first to last - 1 by a shift, the others each by its place */
typedef struct {
  PetscInt  first, last, shift;
  PetscInt *others;
} GpufmtPlaces;

/* some columns of a sum: its pattern, and the entries of the summands (counted through) that make each entry of it, in a fixed order */
typedef struct {
  PetscInt *rowptr, *colidx;
  PetscInt *begins; /* [nnz + 1]; NULL: each entry has one term */
  PetscInt *index;  /* [begins[nnz]] */
} GpufmtUnionPart;

/* the pattern of a sum */
typedef struct {
  PetscInt          nrows, ncols;
  GpufmtColumns     columns;                    /* those that this rank owns, and all others of the summands */
  PetscInt          low, high;                  /* places of those in part 0 */
  GpufmtUnionPart   parts[2];                   /* colidx are places in `columns` */
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

/* messages from a rank to others, one each, and from others to it; what goes to one rank, or comes from one, lies in one piece */
typedef struct {
  MPI_Comm     comm;
  PetscMPIInt  tag, nto, nfrom;
  PetscMPIInt *to, *from;               /* ranks */
  PetscInt    *to_begins, *from_begins; /* of the entries for each, and from each */
  MPI_Request *requests;
} GpufmtMessages;

/* exchanges of numbers of rows that other ranks look at */
typedef struct _GpufmtGhosts *GpufmtGhosts;

/* an array on the backend, with so many words of 32 bits for each row of this rank, and then for each of its ghosts */
typedef struct {
  void   *array;
  int64_t words;
} GpufmtGhostArray;

/* values of entries that messages bring */
typedef struct {
  GpufmtMessages messages;
  int            backend;
  PetscInt       nsent, ncome;
  PetscInt       first;   /* the entry from which on all are sent, unless they are gathered */
  PetscBool      gathers; /* by the plan */
  GpufmtLease    lease;
  GpufmtPlan     gather;
  PetscBool      staged;      /* messages go through the host */
  PetscScalar   *sent, *came; /* on the host */
  void          *packed;      /* what is sent, on the device */
  size_t         capacity;
  const void    *root; /* of an exchange under way: what it is taken from, and where it arrives */
  void          *leaf;
} GpufmtValueExchange;

/* Rows of a parallel matrix, those of this rank or those of others, as one sequential matrix with few columns. */
typedef struct {
  Mat                  matrix; /* on this rank, its columns numbered in the order of `columns` */
  GpufmtColumns        columns;
  PetscInt            *rows;     /* numbers in the parallel matrix of rows that were sent here; else NULL */
  GpufmtLease          pattern;  /* of its pattern with the planner, by the number of which it is held; may be none */
  GpufmtEntrySum      *sum;      /* its values from others of this rank; NULL if they come from other ranks, or are those of a matrix that is there */
  GpufmtValueExchange *exchange; /* its values from those of other ranks; else NULL */
} GpufmtRows;

/* what an operand was in the symbolic phase, on this rank */
typedef struct {
  PetscObjectId  id;
  GpufmtProduct *blocks; /* keeps the patterns of both blocks as a sequential product keeps those of its operands */
  uint64_t       ghosts; /* digest of the columns of the off-diagonal block */
} GpufmtParallelPattern;

/* likewise of the blocks of the result */
typedef struct {
  PetscObjectId    ids[2];
  PetscObjectState states[2]; /* of their nonzero patterns */
  uint64_t         rows;      /* digest of their row pointers */
} GpufmtResultPattern;

enum { GPUFMT_MAX_PARTS = 2 };

/* C->product->data of a product of parallel matrices */
typedef struct {
  MatProductType        type; /* AB, AtB or PtAP */
  int                   backend;
  PetscBool             planned; /* the planner makes the blocks of the result of parts: nothing on the host reads these */
  GpufmtParallelPattern operands[GPUFMT_MAX_OPERANDS];
  GpufmtResultPattern   result;
  Mat                   second;        /* made operand: B^T, or B C; else NULL */
  GpufmtRows            local, remote; /* rows of the second operand */
  Mat                   parts[GPUFMT_MAX_PARTS];
  int                   nparts;
  GpufmtRows            sent, received; /* rows of the result that another rank owns */
  GpufmtEntrySum       *sums[2];        /* that make the blocks of the result */
} GpufmtParallelProduct;

/* union.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionCreate(int backend, PetscBool planned, PetscInt nrows, PetscLayout columns, PetscBool splits,
                                               PetscInt nsummands, const GpufmtSummand[], GpufmtUnion *);
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionDestroy(GpufmtUnion *);

/* union_plan.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionPlan(int backend, PetscInt nsummands, const GpufmtSummand[], const GpufmtPlaces[], GpufmtUnion *);
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionManaged(int backend, const GpufmtUnion *, int k, PetscBool internal, GpufmtManaged **);
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionGhosts(const GpufmtUnion *, PetscInt *nghosts, PetscInt **ghosts);
GPUFMT_HIDDEN PetscErrorCode GpufmtUnionRelease(GpufmtUnion *);

/* entry_sum.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtEntrySumCreate(int backend, GpufmtUnion *, int k, GpufmtEntrySum **);
GPUFMT_HIDDEN PetscErrorCode GpufmtEntrySumReserve(GpufmtEntrySum *, Mat result);
GPUFMT_HIDDEN PetscErrorCode GpufmtEntrySumRun(GpufmtEntrySum *, const Mat summands[], Mat result, PetscBool internal);
GPUFMT_HIDDEN PetscErrorCode GpufmtEntrySumDestroy(GpufmtEntrySum **);

/* rows.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtCreateFromPattern(MatType, PetscInt nrows, PetscInt ncols, const PetscInt rowptr[], PetscInt colidx[],
                                                     PetscInt row_block, PetscInt col_block, Mat *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCreateManaged(MatType, int backend, const GpufmtUnion *, int k, PetscInt ncols, PetscInt row_block,
                                                 PetscInt col_block, PetscBool internal, Mat *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCreateInternal(MatType, int backend, PetscInt nrows, PetscInt ncols, const PetscInt rowptr[], PetscInt colidx[],
                                                  Mat *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsAddUp(MatType, int backend, PetscInt nrows, PetscLayout columns, PetscInt nsummands, const GpufmtSummand[],
                                             GpufmtRows *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsGetLocal(Mat parallel, MatType, int backend, GpufmtRows *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsUpdateLocal(Mat parallel, GpufmtRows *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsDestroy(GpufmtRows *);

/* columns.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtColumnsRead(Mat, int backend, PetscInt n, PetscInt first, const PetscInt entries[], PetscInt columns[],
                                               const PetscInt **scattered);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowptrRead(Mat, int backend, PetscInt first, PetscInt last, const PetscInt **rowptr, PetscInt **copy);
GPUFMT_HIDDEN PetscErrorCode GpufmtColumnsCompact(PetscInt nnz, PetscInt colidx[], PetscInt *ncols, PetscInt **columns);

/* exchange.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsGetRemote(Mat C, Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, MatType,
                                                 int backend, GpufmtRows *remote, PetscErrorCode *own);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsSend(Mat C, PetscLayout, const PetscInt rows[], const GpufmtRows *sent, MatType, int backend,
                                            GpufmtRows *received, PetscErrorCode *own);

/* messages.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtMessagesReserve(PetscMPIInt nto, PetscMPIInt nfrom, GpufmtMessages *);
GPUFMT_HIDDEN PetscErrorCode GpufmtMessagesExchange(const GpufmtMessages *, const PetscInt to_begins[], const PetscInt sent[],
                                                    const PetscInt from_begins[], PetscInt came[]);
GPUFMT_HIDDEN PetscErrorCode GpufmtMessagesExchangeEntries(const GpufmtMessages *, MPI_Datatype, size_t size, const void *sent, void *came);
GPUFMT_HIDDEN PetscErrorCode GpufmtMessagesFree(GpufmtMessages *);
GPUFMT_HIDDEN PetscErrorCode GpufmtValuesPrepare(Mat from, int backend, const PetscInt entries[], PetscInt columns[], GpufmtValueExchange *);
GPUFMT_HIDDEN PetscErrorCode GpufmtValuesBegin(GpufmtValueExchange *, Mat from, Mat to, PetscErrorCode *own);
GPUFMT_HIDDEN PetscErrorCode GpufmtValuesEnd(GpufmtValueExchange *, Mat from, Mat to, PetscErrorCode *own);
GPUFMT_HIDDEN PetscErrorCode GpufmtValuesDestroy(GpufmtValueExchange **);

/* ghosts.c; tests call these by their names */
PETSC_EXTERN PetscErrorCode GpufmtGhostsUpdate(Mat, int backend, PetscInt words, GpufmtGhosts *);
PETSC_EXTERN PetscErrorCode GpufmtGhostsExchange(GpufmtGhosts, int n, const GpufmtGhostArray[], PetscErrorCode *own);
PETSC_EXTERN PetscErrorCode GpufmtGhostsDestroy(GpufmtGhosts *);

/* pattern.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtFailTogether(Mat, PetscErrorCode);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelPatternRecord(Mat, GpufmtParallelPattern *);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultPatternBegin(const Mat blocks[2], GpufmtDigestion *);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultPatternEnd(const Mat blocks[2], GpufmtDigestion *, GpufmtResultPattern *);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelPatternsCheck(Mat C, GpufmtParallelPattern operands[], GpufmtResultPattern *);

/* parts.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtPartsCreate(Mat C, GpufmtParallelProduct *, Mat A);
GPUFMT_HIDDEN PetscErrorCode GpufmtPartsNumeric(GpufmtParallelProduct *, Mat A, PetscErrorCode *own);
GPUFMT_HIDDEN PetscInt       GpufmtPartsSummands(const GpufmtParallelProduct *, PetscBool to_be_sent, GpufmtSummand summands[]);

/* result.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtResultPlanned(Mat C, int backend, PetscBool *planned);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultCreate(Mat C, GpufmtParallelProduct *, Mat A, Mat B, MatType, PetscErrorCode own);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultNumeric(Mat C, GpufmtParallelProduct *, PetscErrorCode own);

/* product.c */
GPUFMT_HIDDEN PetscErrorCode MatProductSetFromOptions_MPIAIJGpufmt(Mat);
