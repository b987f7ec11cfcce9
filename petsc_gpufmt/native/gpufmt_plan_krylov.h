/* What Krylov solvers ask the planner for, beside what is in gpufmt_plan.h; mirrored in petsc_gpufmt/planning/krylov_abi.py. */
#pragma once
#include "gpufmt_plan.h"

/* as KSPNormType */
enum { GPUFMT_NORM_NONE, GPUFMT_NORM_PRECONDITIONED, GPUFMT_NORM_UNPRECONDITIONED, GPUFMT_NORM_NATURAL };

/* What ended the iterations: p.w is 0, no number, or of another sign; the norm or a scalar may have; there were as many as there may be; what is divided
   by is 0 or no number. From then on plans leave vectors and state as they are. */
enum { GPUFMT_STOP_NONE, GPUFMT_STOP_CURVATURE, GPUFMT_STOP_TEST, GPUFMT_STOP_COUNT, GPUFMT_STOP_BREAKDOWN };

enum { GPUFMT_KRYLOV_RECORDS = 256 }; /* iteration i has record i modulo their number */

enum { GPUFMT_CG_SUMS = 4 };

/* of one iteration; r.z and the norm are those after it */
typedef struct {
  double curvature, rz, norm;
} GpufmtCgRecord;

/* The state of conjugate gradients, on the backend. The library fills in all but the records before the first iteration. */
typedef struct {
  double         sums[GPUFMT_CG_SUMS]; /* p.w in two parts; r.z; z.z or r.r: of this rank, until those of all ranks replace them */
  double         curvature, rz, rz_before;
  double         limit, divergence; /* norms up to the one, and from the other on, end the iterations */
  int64_t        iteration, most;   /* how many have ended; the last */
  int64_t        stop, norm, alone; /* GPUFMT_STOP_...; GPUFMT_NORM_...; there are no other ranks */
  GpufmtCgRecord records[GPUFMT_KRYLOV_RECORDS];
} GpufmtCgState;

/* Steps of an iteration. z is in Z; if that is NULL, z = D r with a vector D, and z = r if there is none. */
enum {
  GPUFMT_CG_DIRECTION,            /* P from R, D, Z */
  GPUFMT_CG_CURVATURE,            /* sums[0] = P.W, sums[1] = 0 */
  GPUFMT_CG_UPDATE,               /* X and R from P, W */
  GPUFMT_CG_UPDATE_SUMS,          /* likewise, and the sums over R and D R, which end the iteration */
  GPUFMT_CG_FIRST_DOTS,           /* the sums over R, and D or Z */
  GPUFMT_CG_DOTS,                 /* likewise, and they end the iteration */
  GPUFMT_CG_END,                  /* the iteration ends after the sums of all ranks are there */
  GPUFMT_CG_UPDATE_OF_RANKS,      /* UPDATE, UPDATE_SUMS and DOTS that add up over ranks: P.W before they begin, the sums over R before they end. */
  GPUFMT_CG_UPDATE_SUMS_OF_RANKS, /* MESSAGES and ARRIVALS are those of the sums. A rank that has failed gives an ALPHA that is not 0, 64 bits, and no */
  GPUFMT_CG_DOTS_OF_RANKS,        /* vectors: what it sends ends the iterations of all. Where they have ended nothing is sent. */
  GPUFMT_NUM_CG_STEPS
};

/* The state of conjugate gradients of mixed precision, on the backend. The library fills in all but the sums. */
enum { GPUFMT_MIXED_SUMS = 2 };

typedef struct {
  double
    sums[GPUFMT_MIXED_SUMS]; /* the square of the norm; r.z of the inner system, without the factor: of this rank, until those of all replace them */
  double  factor;            /* of the right-hand side of the inner system */
  int64_t norm;              /* GPUFMT_NORM_... */
} GpufmtMixedState;

/* Steps of an outer iteration. The preconditioner is D, or there is none, and so is the scaling S: it is in Y. */
enum {
  GPUFMT_MIXED_NARROW,   /* the inner D from D */
  GPUFMT_MIXED_RESIDUAL, /* the inner R from Z - W, or from Z without W, and the sums */
  GPUFMT_MIXED_CORRECT,  /* X plus the inner X, which becomes 0 */
  GPUFMT_MIXED_WIDEN,    /* likewise, X is not read */
  GPUFMT_NUM_MIXED_STEPS
};

/* arrays of single precision of the inner method, [nrows] each */
enum { GPUFMT_MIXED_ARRAY_X, GPUFMT_MIXED_ARRAY_R, GPUFMT_MIXED_ARRAY_P, GPUFMT_MIXED_ARRAY_W, GPUFMT_MIXED_ARRAY_D, GPUFMT_NUM_MIXED_ARRAYS };

enum { GPUFMT_BCGS_SUMS = 6 };

/* of one iteration: what is there after it */
typedef struct {
  double norm, rho;
} GpufmtBcgsRecord;

/* The state of stabilised bi-conjugate gradients. The names of scalars are those of KSPBCGS; s has the place of r. */
typedef struct {
  double           sums[GPUFMT_BCGS_SUMS]; /* v.rp; t.s, t.t, s.s; r.r, r.rp: of this rank, until those of all ranks replace them */
  double           rho, rho_before, alpha, omega;
  double           limit, divergence; /* these, and the rest, as for conjugate gradients */
  int64_t          iteration, most, stop, norm, alone;
  GpufmtBcgsRecord records[GPUFMT_KRYLOV_RECORDS];
} GpufmtBcgsState;

/* Steps of an iteration. W has v, and for DOTS and UPDATE t; Y the shadow residual. With D, SHADOW and DOTS make v and t by it of what is in W. With D and Z,
   DIRECTION and HALF write to Z what the matrix is to multiply, D P and D R. */
enum {
  GPUFMT_BCGS_DIRECTION,       /* P from R, W */
  GPUFMT_BCGS_SHADOW,          /* sums[0] = W.Y */
  GPUFMT_BCGS_HALF,            /* R becomes s, by W; where sums[0] is 0 or no number, the iterations end */
  GPUFMT_BCGS_DOTS,            /* sums[1..3] over W, R */
  GPUFMT_BCGS_UPDATE,          /* X and R from P, W, and the sums over R and Y, which end the iteration; where t.t is 0, they are the last */
  GPUFMT_BCGS_END,             /* the iteration ends after the sums of all ranks are there */
  GPUFMT_BCGS_SHADOW_OF_RANKS, /* SHADOW, DOTS and UPDATE that add up over ranks before they end, with the slots that those of conjugate gradients have */
  GPUFMT_BCGS_DOTS_OF_RANKS,
  GPUFMT_BCGS_UPDATE_OF_RANKS,
  GPUFMT_NUM_BCGS_STEPS
};

/* Chebyshev's iteration has no state, and one step: Z = ALPHA U + BETA X + GAMMA D (B - W), row by row, where what is NULL is not there (D: is 1); Z may
   be U or X. With point blocks D has these one after another, each column by column. */
enum { GPUFMT_CHEBYSHEV_STEP, GPUFMT_NUM_CHEBYSHEV_STEPS };

enum { GPUFMT_MOST_POINT_BLOCK = 16 }; /* rows */

/* One iteration of GMRES, which makes a column of the Hessenberg matrix. What follows it are two times restart + 1 numbers: the products of the new vector
   with the basis, and the column above the diagonal and on it once it is rotated. */
typedef struct {
  double  norm;         /* of the new vector, before it is scaled */
  double  cosine, sine; /* of the rotation that ends the column; both are 0 where the column is */
  double  entry, next;  /* of the rotated right-hand side: that of this row, and what is in the next */
  double  residual;     /* the norm of the residual */
  int64_t happy;        /* there is no new vector: the space has all of the solution; entry, next and rotation are as before */
} GpufmtGmresColumn;

/* The state of a cycle of GMRES, on the backend. The library fills it in before the first iteration. In this order follow `restart` columns; restart + 1
   sums, the products of the newest vector with the basis, of this rank until those of all ranks replace them; as many addresses, of the basis; as many
   weights; as many addresses of what is added up with these. */
typedef struct {
  double  limit, divergence; /* residuals up to the one, and from the other on, end the iterations */
  double  haptol;
  double  square;          /* of the norm of the newest vector: of this rank, until that of all ranks replaces it */
  double  norm;            /* of the newest vector, by which it is still to be divided */
  double  next;            /* as in the last column */
  int64_t iteration, most; /* how many have ended; the last */
  int64_t stop;            /* GPUFMT_STOP_... */
  int64_t alone, flexible; /* there are no other ranks; breakdowns are those of KSPFGMRES */
  int64_t nterms;          /* that are added up */
} GpufmtGmresState;

/* Steps of an iteration, and how the solution is made. W is the newest vector of the basis, from UPDATE on the one after it. */
enum {
  GPUFMT_GMRES_SCALE,           /* W gets norm 1 */
  GPUFMT_GMRES_DOTS,            /* the sums over W, which is a product by now */
  GPUFMT_GMRES_UPDATE,          /* W less its parts along the basis, and `square`, which ends the iteration */
  GPUFMT_GMRES_END,             /* the iteration ends after the sums of all ranks are there */
  GPUFMT_GMRES_ADD,             /* X becomes X + the weighted sum */
  GPUFMT_GMRES_SET,             /* X becomes the weighted sum */
  GPUFMT_GMRES_UPDATE_OF_RANKS, /* UPDATE that adds up over ranks before it ends, with the slots that steps of conjugate gradients have for that */
  GPUFMT_NUM_GMRES_STEPS
};

/* what steps are asked for */
enum { GPUFMT_KRYLOV_CG, GPUFMT_KRYLOV_MIXED, GPUFMT_KRYLOV_BCGS, GPUFMT_KRYLOV_CHEBYSHEV, GPUFMT_KRYLOV_GMRES, GPUFMT_NUM_KRYLOV };

enum { GPUFMT_MOST_KRYLOV_STEPS = 10, GPUFMT_MOST_KRYLOV_SUMS = 8, GPUFMT_MOST_KRYLOV_ARRAYS = 8 };

typedef struct {
  GpufmtPlace place;
  int32_t     method;      /* GPUFMT_KRYLOV_... */
  int64_t     nrows;       /* of this rank */
  int64_t     restart;     /* iterations of a cycle of GMRES; else 0 */
  int64_t     point_block; /* rows of a block of D, for Chebyshev's iteration; 0: it is a diagonal */
} GpufmtKrylovRequest;

typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    steps[GPUFMT_MOST_KRYLOV_STEPS];   /* of the method, by their numbers */
  void         *state;                             /* on the backend; that of the method, NULL if it has none */
  void         *arrays[GPUFMT_MOST_KRYLOV_ARRAYS]; /* likewise */
} GpufmtKrylovAnswer;

/* Jacobi's preconditioner on vectors of any length */
typedef struct {
  GpufmtPlace place;
} GpufmtJacobiRequest;

/* ALPHA is the number of rows, an integer of 8 bytes */
typedef struct {
  GpufmtOutcome outcome;
  GpufmtPlan    reciprocals;  /* Z = 1 / X, 0 where X is; may be X itself */
  GpufmtPlan    products;     /* Z = D X, entry by entry; may be D or X */
  const void   *not_positive; /* on the backend: how many entries of X were not above 0 in the last `reciprocals`, a scalar */
} GpufmtJacobiAnswer;
