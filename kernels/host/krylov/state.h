/* What the states of Krylov methods have in common, and what their functions get of a method: see kernels/krylov/state.cuh. */
#pragma once
#include "common/host.h"

/* GPUFMT_STOP_... of native/gpufmt_plan_krylov.h, and those of KSPNormType */
enum { GOES_ON, STOPPED_BY_CURVATURE, STOPPED_BY_TEST, STOPPED_BY_COUNT, STOPPED_BY_BREAKDOWN };
enum { NORM_NONE, NORM_PRECONDITIONED, NORM_UNPRECONDITIONED, NORM_NATURAL };

enum { RECORDS = 256 };

typedef struct State State; /* that of the method */

typedef struct {
  State    *state;
  scalar_t *parts;
  unsigned *ticket;
  offset_t  nrows;
} Method;
