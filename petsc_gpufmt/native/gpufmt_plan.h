/* The interface between the library and the planner: what is asked, and the plans that come back.
   Plain C, no PETSc types; mirrored field by field in petsc_gpufmt/planning/abi.py. What multigrid asks for is in gpufmt_plan_multigrid.h,
   what Krylov solvers ask for in gpufmt_plan_krylov.h. */
#pragma once
#include <stdint.h>

#define GPUFMT_ABI_VERSION 21

enum { GPUFMT_BACKEND_HOST, GPUFMT_BACKEND_CUDA, GPUFMT_NUM_BACKENDS };

/* what an argument word of a launch may be bound to; x, y, z as in z = y + A x, `values` the CSR values in the order of the pattern; those
   of the operands of a sparse product, and of its result; a scalar by value, in the first bytes of the word; the columns of the pattern; a byte
   for each row, and for each column, which is not 0 if it is meant; what is sent in a halo exchange, and what is waited for; vectors of Krylov solvers: the
   direction, the residual, the product of the direction, the diagonal of a preconditioner; further vectors of a smoothing step, and scalars by value; the
   second half of the first scalar, where it has 16 bytes */
enum {
  GPUFMT_SLOT_X,
  GPUFMT_SLOT_Y,
  GPUFMT_SLOT_Z,
  GPUFMT_SLOT_VALUES,
  GPUFMT_SLOT_A_VALUES,
  GPUFMT_SLOT_B_VALUES,
  GPUFMT_SLOT_C_VALUES,
  GPUFMT_SLOT_RESULT,
  GPUFMT_SLOT_ALPHA,
  GPUFMT_SLOT_COLIDX,
  GPUFMT_SLOT_ROWS,
  GPUFMT_SLOT_COLUMNS,
  GPUFMT_SLOT_MESSAGES,
  GPUFMT_SLOT_ARRIVALS,
  GPUFMT_SLOT_P,
  GPUFMT_SLOT_R,
  GPUFMT_SLOT_W,
  GPUFMT_SLOT_D,
  GPUFMT_SLOT_U,
  GPUFMT_SLOT_B,
  GPUFMT_SLOT_BETA,
  GPUFMT_SLOT_GAMMA,
  GPUFMT_SLOT_ALPHA_IMAG,
  GPUFMT_NUM_SLOTS
};

/* z = A x, z = y + A x, values into the format, z = diagonal of A, z = z + A x with z as y, too */
enum { GPUFMT_PLAN_MULT, GPUFMT_PLAN_MULTADD, GPUFMT_PLAN_REFRESH, GPUFMT_PLAN_DIAGONAL, GPUFMT_PLAN_ADD, GPUFMT_NUM_PLANS };

/* Products with what solvers want of each row: z = A x and RESULT[0] = x . A x; z = z + A x and RESULT[0] = y . A x; z = ALPHA u + BETA x +
   GAMMA d (b - A x), where u may be z, and what has the factor 0 is not read; z = z - GAMMA d A x. Each d by its row, 1 if it is NULL. The first and
   the third are of square matrices; the others are for an off-diagonal block. */
enum { GPUFMT_FUSED_MULT_DOT, GPUFMT_FUSED_ADD_DOT, GPUFMT_FUSED_SMOOTH, GPUFMT_FUSED_ADD_SMOOTH, GPUFMT_NUM_FUSED };

/* sparse products, with the operands in PETSc's order: A B, A^T B, A B^T, B^T A B, B A B^T, A B C, A^T B C */
enum {
  GPUFMT_PRODUCT_AB,
  GPUFMT_PRODUCT_ATB,
  GPUFMT_PRODUCT_ABT,
  GPUFMT_PRODUCT_PTAP,
  GPUFMT_PRODUCT_RART,
  GPUFMT_PRODUCT_ABC,
  GPUFMT_PRODUCT_ATBC,
  GPUFMT_NUM_PRODUCTS
};

/* changes of the values of a matrix in place: by a scalar, by one for each row, by one for each column; a multiple of another matrix is added,
   of the same pattern or of some entries of it; the diagonal is set, or added to; rows, or rows and columns, become zeros, in a matrix with the
   diagonal or in an off-diagonal block. And what norms are made of: sums of the squares of all values, and of the magnitudes in each row or column;
   and the values in single precision. */
enum {
  GPUFMT_SCALE,
  GPUFMT_SCALE_ROWS,
  GPUFMT_SCALE_COLUMNS,
  GPUFMT_ADD,
  GPUFMT_ADD_SUBSET,
  GPUFMT_SET_DIAGONAL,
  GPUFMT_ZERO_ROWS,
  GPUFMT_ZERO_ROWS_OFFDIAG,
  GPUFMT_SUM_SQUARES,
  GPUFMT_SUM_ROWS,
  GPUFMT_SUM_COLUMNS,
  GPUFMT_NARROW,
  GPUFMT_NUM_SCALE_AND_ADD
};

enum { GPUFMT_NORM_PARTS = 1024 }; /* that a sum of squares, or the largest of the sums, is left in */

/* values outside of the range of single precision: finite ones that become infinite; others than 0 that become 0 or subnormal */
enum { GPUFMT_TOO_LARGE, GPUFMT_TOO_SMALL, GPUFMT_NUM_OUTSIDE };

/* a host function of a plan; params[i] points to argument i, as for cuLaunchKernel() */
typedef void (*GpufmtHostFunction)(const uint32_t grid[3], const uint32_t block[3], void **params);

typedef struct {
  void          *function; /* CUfunction, or GpufmtHostFunction */
  uint32_t       grid[3], block[3];
  uint32_t       shared_bytes;
  int32_t        nwords, nparams;
  uint64_t      *words;  /* [nwords] one 8-byte word an argument, or one a member of it where it is a struct */
  const int32_t *slots;  /* [nwords] slot that fills the word before each replay, or -1 */
  void         **params; /* [nparams] params[i]: the first word of argument i */
} GpufmtLaunch;

typedef struct {
  int64_t       nlaunches;
  GpufmtLaunch *launches;
} GpufmtPlan;

/* what the planner is asked for, each with a request and an answer of its own */
enum {
  GPUFMT_ASK_STORE,
  GPUFMT_ASK_PRODUCT,
  GPUFMT_ASK_ENTRY_SUM,
  GPUFMT_ASK_UNION,
  GPUFMT_ASK_SCALE_AND_ADD,
  GPUFMT_ASK_AGGREGATES,
  GPUFMT_ASK_TENTATIVE,
  GPUFMT_ASK_COO,
  GPUFMT_ASK_SMOOTHED,
  GPUFMT_ASK_START_VECTOR,
  GPUFMT_ASK_PARALLEL_AGGREGATES,
  GPUFMT_ASK_ELSEWHERE,
  GPUFMT_ASK_PARALLEL_TENTATIVE,
  GPUFMT_ASK_GATHER,
  GPUFMT_ASK_GRAPH,
  GPUFMT_ASK_OUTSIDE,
  GPUFMT_ASK_PARALLEL_SMOOTHED,
  GPUFMT_ASK_PEER,
  GPUFMT_ASK_JACOBI,
  GPUFMT_ASK_KRYLOV,
  GPUFMT_ASK_LOOP,
  GPUFMT_ASK_FUSED,
  GPUFMT_ASK_LENGTHS,
  GPUFMT_NUM_ASKS
};

/* the head of every request: where plans are to run */
typedef struct {
  int32_t backend;
  int32_t device; /* CUDA device ordinal */
  int32_t index_bytes;
  int32_t scalar_bytes; /* PETSc's, or those of a copy in single precision */
  int32_t is_complex;   /* not 0: both parts of a scalar have these bytes together */
  void   *stream;
} GpufmtPlace;

typedef struct {
  GpufmtPlace place;
  const char *format;
  const char *options; /* "name=value;..." of the options that were set; "format.name=value;" for those of another format */
  int32_t     transposed;
  int64_t     nrows, ncols, nnz;    /* of the CSR block, not of its transpose */
  const void *rowptr, *colidx;      /* host CSR pattern: [nrows + 1], [nnz] */
  int64_t     held;                 /* number of this pattern on this backend: of the answer that made it; below 0: of the library; 0: it has none */
  int64_t     row_block, col_block; /* block sizes that the application has set, 1: none */
  int64_t     mults;                /* that this pattern has seen; not 0: an earlier answer asked for a new plan by `replan_after` */
} GpufmtStoreRequest;

/* the head of every answer; the library fills in an error before it asks, because a callback may fail before its first line */
typedef struct {
  int64_t token;       /* owner of all that the answer points to; 0: none */
  int32_t error;       /* a PETSc error code, 0: success */
  int32_t interrupted; /* by Ctrl-C, which the caller is to see */
  int32_t entering;    /* the callback could not catch Ctrl-C yet */
  char    message[1024];
} GpufmtOutcome;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    plans[GPUFMT_NUM_PLANS];
  int64_t       nonempty_rows, nstored, bytes_held;
  int64_t       replan_after; /* products after which to ask again with the same pattern; 0: never */
  int64_t       stored;       /* its number in a request for a fused plan */
  char          summary[256]; /* parameters in words, for MatView() */
  char          detail[4096]; /* lines for MatView() with ascii_info_detail */
} GpufmtStoreAnswer;

/* a plan that few need, of a matrix that is stored */
typedef struct {
  GpufmtPlace place;
  int64_t     stored; /* as in its answer */
  int32_t     fused;  /* GPUFMT_FUSED_... */
} GpufmtFusedRequest;

typedef struct {
  GpufmtOutcome outcome; /* its token owns what the sum is made in, and the stored matrix too */
  GpufmtPlan    plan;
  int32_t       offered; /* 0: the format does not offer it; a plan without launches has nothing to do */
} GpufmtFusedAnswer;

/* the pattern of one operand of a sparse product */
typedef struct {
  int64_t     nrows, ncols, nnz;
  const void *rowptr, *colidx; /* host: [nrows + 1], [nnz] */
  int64_t     held;            /* as in a request for a store */
} GpufmtOperand;

typedef struct {
  GpufmtPlace   place;
  int32_t       product;   /* GPUFMT_PRODUCT_... */
  int32_t       noperands; /* 2, or 3 for A B C and A^T B C */
  GpufmtOperand operands[3];
  const char   *options;   /* "name=value;..." of the options that were set */
  int32_t       described; /* whether bytes, summary and detail are wanted */
} GpufmtProductRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    numeric;                  /* values of the operands into those of the result */
  int64_t       nrows, ncols, nnz;        /* of the result */
  const void   *rowptr, *colidx;          /* on the backend: [nrows + 1]; [nnz], sorted in each row */
  int64_t       held;                     /* number of the result's pattern */
  int64_t       terms;                    /* products of two numbers that the numeric phase sums */
  int64_t       bytes_needed, bytes_held; /* taken at most while planning; kept for the numeric phase; if it was to be described, as below */
  char          summary[256];
  char          detail[4096];
} GpufmtProductAnswer;

/* Sums of entries: target t is the sum over e in [begins[t], begins[t + 1]) of entry index[e], where the entries of up to three arrays are
   counted through. */
typedef struct {
  GpufmtPlace place;
  int64_t     ntargets, nterms;
  const void *begins;   /* host: [ntargets + 1]; NULL: target t is entry index[t] */
  const void *index;    /* host: [nterms] */
  int64_t     sizes[3]; /* entries of the arrays */
} GpufmtEntrySumRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    sum; /* A_VALUES, B_VALUES and C_VALUES into RESULT */
} GpufmtEntrySumAnswer;

/* a matrix whose rows and columns lie somewhere in a sum */
typedef struct {
  GpufmtOperand pattern;             /* the columns of each row ascend */
  int64_t       first, last, shift;  /* columns first to last - 1 have the places first + shift, ... among those of the sum */
  const void   *places;              /* host: those of the other columns, ascending */
  const void   *targets;             /* host: [nrows] the row of the sum to which each row belongs, -1: to none; NULL: as follows */
  int64_t       first_row, last_row; /* rows first_row to last_row - 1 belong to rows 0, 1, ... of the sum, the others to none */
  int32_t       outside;             /* or the others do, and these to none */
} GpufmtSummandPattern;

/* the pattern of a sum of matrices */
typedef struct {
  GpufmtPlace          place;
  int64_t              nrows, ncols;
  int64_t              low, high; /* columns of part 0, the others are part 1 */
  int32_t              nsummands; /* 1 to 3 */
  GpufmtSummandPattern summands[3];
} GpufmtUnionRequest;

/* some columns of a sum */
typedef struct {
  int64_t     nnz, nterms;
  const void *rowptr; /* on the backend: [nrows + 1] */
  const void *colidx; /* on the backend: [nnz], sorted in each row; part 0 counts from `low`, part 1 the columns that occur in it */
  int64_t     held;   /* number of the pattern */
  int64_t     token;  /* owner of what `sum` points to; 0: none */
  GpufmtPlan  sum;    /* A_VALUES, B_VALUES and C_VALUES into RESULT */
} GpufmtUnionPartAnswer;

typedef struct {
  GpufmtOutcome         outcome; /* its token owns the patterns */
  GpufmtUnionPartAnswer parts[2];
  int64_t               nghosts;
  const void           *ghosts; /* host: [nghosts] the columns that occur in part 1, ascending */
} GpufmtUnionAnswer;

typedef struct {
  GpufmtPlace   place;
  int32_t       scale_and_add; /* GPUFMT_SCALE, ... */
  GpufmtOperand target;        /* whose values change */
  GpufmtOperand added;         /* for GPUFMT_ADD_SUBSET */
  const void   *columns;       /* host: [added.ncols] the number of each of its columns in `target`, -1: none; NULL: the same */
} GpufmtScaleAndAddRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    scale_and_add; /* RESULT in place; ALPHA: scalar; X: one for each row or column; A_VALUES: those that are added;
                                  GPUFMT_SET_DIAGONAL: X NULL: ALPHA in each row; Y: RESULT, if what is there is added, or NULL;
                                  GPUFMT_ZERO_ROWS: ROWS, COLUMNS or NULL, COLIDX, ALPHA: on the diagonal of the rows; Z or NULL: what is zeroed in
                                  columns goes there, times X, and ALPHA X in the rows; GPUFMT_ZERO_ROWS_OFFDIAG: likewise, but these keep theirs;
                                  GPUFMT_SUM_SQUARES: A_VALUES, RESULT: GPUFMT_NORM_PARTS; GPUFMT_SUM_ROWS, GPUFMT_SUM_COLUMNS: A_VALUES, RESULT;
                                  Y or NULL: what is added to, Z or NULL: GPUFMT_NORM_PARTS of which the largest is that of the sums;
                                  GPUFMT_NARROW: A_VALUES, RESULT: float; to Z, uint64_t[GPUFMT_NUM_OUTSIDE], are added how many leave its range */
  int32_t       applies;       /* 0: the entries that are added, or the diagonal, are not all in sorted rows of `target`, there is no plan */
  const void   *no_diagonal;   /* host: [nrows] bytes, not 0 where GPUFMT_ZERO_ROWS finds no entry of the diagonal; NULL: nowhere */
} GpufmtScaleAndAddAnswer;

/* the rows and columns of a matrix */
typedef struct {
  int64_t first_row, nrows, first_col, ncols;
} GpufmtCooBlock;

/* coordinates that do not lie in a block; one with a negative row or column lies nowhere */
typedef struct {
  GpufmtPlace    place;
  GpufmtCooBlock block;
  int64_t        nentries;
  const void    *rows, *cols; /* [nentries] each */
  int32_t        on_device;   /* not 0: both are in the memory of the place's device, else on the host */
} GpufmtOutsideRequest;

typedef struct {
  GpufmtOutcome outcome;
  int64_t       count;
  const void   *rows, *cols, *numbers; /* host: [count] in the order given: where they lie, and which they are */
  const void   *all_rows, *all_cols;   /* on the backend: [nentries] as given; nothing else has them there if they come from the host */
} GpufmtOutsideAnswer;

/* a matrix from coordinates: its pattern, and the sums of values that are given in their order */
typedef struct {
  GpufmtPlace    place;
  GpufmtCooBlock block;     /* of coordinates that are in the matrix: of all, but */
  int32_t        is_part;   /* not 0: those elsewhere are left out */
  int32_t        on_device; /* not 0: rows and columns are in the memory of the place's device, else on the host */
  int64_t        nentries;
  const void    *rows, *cols; /* [nentries] each; an entry with a negative row or column is left out */
  int64_t        nmore;
  const void    *more_rows, *more_cols; /* host: [nmore] likewise, of entries that follow */
  const void    *numbers;               /* host: [nentries + nmore] those of their values, ascending; NULL: 0, 1, 2, ... */
  int64_t        sizes[2];              /* values in A_VALUES, and those in B_VALUES, which are numbered after them */
} GpufmtCooRequest;

typedef struct {
  GpufmtOutcome outcome;         /* its token owns the pattern */
  int64_t       token;           /* owner of what `sum`, `begins` and `index` point to; 0: none */
  GpufmtPlan    sum;             /* A_VALUES and B_VALUES into RESULT; entries of one place are added in the order given */
  int64_t       nnz, nterms;     /* of the matrix, and how many given entries make these */
  const void   *rowptr, *colidx; /* on the backend: [nrows + 1]; [nnz], ascending in each row */
  const void   *begins, *index;  /* likewise, as in a request for sums; `index` NULL: entry t is value t */
  char          summary[256];
} GpufmtCooAnswer;

/* entries of an array that are gathered, as often as they are new: values of a matrix, or rows */
typedef struct {
  GpufmtPlace place;
  int64_t     nnz, nentries;
  const void *entries; /* host: [nentries] their numbers */
  const void *colidx;  /* on the backend, of a matrix: [nnz]; NULL: nobody wants their columns */
  void       *columns; /* host: [nentries] where these are written; else NULL */
} GpufmtGatherRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    gather; /* A_VALUES into RESULT, of ALPHA words of 32 bits each, an integer of 8 bytes */
} GpufmtGatherAnswer;

/* What a rank sends to another in each halo exchange through memory that both reach: entries [first, first + count) of all that it sends. It lies on
   the backend, for kernels; addresses in the memory of the other are those by which this rank reaches it. */
typedef struct {
  void       *target; /* in exchanges with even numbers; in others so many scalars further on */
  int64_t     stride;
  void       *flag;  /* 64 bits, becomes the number of the exchange after that */
  const void *index; /* [count] the entries of the vector, ascending; NULL: those from `first` on */
  int64_t     first, count;
  int64_t     done; /* blocks of threads, while the kernel runs; else 0 */
} GpufmtPeerMessage;

/* What a rank waits for, likewise on the backend. The ranks that send follow it, numbers of 64 bits. */
typedef struct {
  void        *flags; /* of 64 bits, that of rank r so many words further on */
  int64_t      spacing;
  int64_t      nneighbours, rank; /* that send; this one */
  int64_t      limit;             /* ticks of the device's clock, or nanoseconds on the host, after which a flag is given up; 0: none */
  void        *arrived;           /* in exchanges with even numbers; in others so many scalars further on */
  int64_t      stride, count;
  int64_t      nranks;
  void *const *failures; /* [nranks] words of 64 bits by which ranks see a failure where they wait */
  void        *failure;  /* that of this one */
  void        *report;   /* that which its host sees */
  void        *exchange; /* 64 bits: number of the last one, which launches that wait count */
} GpufmtPeerArrivals;

/* messages go to other ranks; what is waited for is there; sums that have arrived for what was sent are added; a few numbers are summed over ranks */
enum { GPUFMT_PEER_SEND, GPUFMT_PEER_WAIT, GPUFMT_PEER_ADD, GPUFMT_PEER_SUM, GPUFMT_NUM_PEER_STEPS };

enum { GPUFMT_MOST_SUMS = 8 }; /* numbers in one sum over ranks: of so many scalars is what arrives of each of them */

/* of all halo exchanges on a backend */
typedef struct {
  GpufmtPlace place;
} GpufmtPeerRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    steps[GPUFMT_NUM_PEER_STEPS];         /* one launch each; MESSAGES, ARRIVALS; X: where what is sent comes from; Z: what sums are added
                                                         to, or become, ALPHA numbers, 64 bits, for GPUFMT_PEER_SUM */
  int64_t       block_entries[GPUFMT_NUM_PEER_STEPS]; /* of a message that a block takes. The library sets the grid: blocks for the longest message,
                                                         times messages */
} GpufmtPeerAnswer;

/* lengths of rows of patterns of any size */
typedef struct {
  GpufmtPlace place;
} GpufmtLengthsRequest;

/* ALPHA is the number of rows, an integer of 8 bytes */
typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    lengths; /* Y[row] = Z[row] = X[row + 1] - X[row], all of them indices */
  const void   *seen;    /* [2] on the backend, of the last `lengths`: the longest row, and how many have entries */
} GpufmtLengthsAnswer;

/* loops in CUDA graphs */
typedef struct {
  GpufmtPlace place;
} GpufmtLoopRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    condition;    /* one launch, in the body of a loop of which ALPHA is the handle: it ends if the 64 bits at X are not 0; or none */
  char          why_not[256]; /* if there is none */
} GpufmtLoopAnswer;

/* The planner: callbacks into Python. What one of them raises goes no further; a plan that fails reports by its outcome. */
typedef struct {
  int32_t abi_version;
  /* heads of the structures of GPUFMT_ASK_...; calls GpufmtPlanEntered() as soon as it can catch Ctrl-C */
  void (*plan)(int32_t ask, const GpufmtPlace *request, GpufmtOutcome *answer);
  void (*release)(int64_t token);
  void (*release_all)(void);
  void (*free_pool)(void); /* returns cached device memory to the driver */
  /* imports and loads what the first plan of a format needs at that place; `format` NULL: a little of what later plans may need, until it answers
     that nothing is left. Calls nothing of PETSc. */
  int32_t (*prepare)(const GpufmtPlace *, const char *format);
  /* calls GpufmtKernelsName() for files of kernels that plans may need at that place, with a format first; block_size of the matrix, 1: none is known */
  void (*name_kernels)(const GpufmtPlace *, const char *format, int64_t block_size);
} GpufmtPlanner;
