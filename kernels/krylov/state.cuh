// What the states of Krylov methods have in common, and what their kernels get of a method.
#pragma once
#include "krylov/rows.cuh"

// GPUFMT_STOP_... of native/gpufmt_plan_krylov.h
enum { GOES_ON, STOPPED_BY_CURVATURE, STOPPED_BY_TEST, STOPPED_BY_COUNT, STOPPED_BY_BREAKDOWN };
// of KSPNormType
enum { NORM_NONE, NORM_PRECONDITIONED, NORM_UNPRECONDITIONED, NORM_NATURAL };

constexpr int RECORDS = 256;

struct State; // that of the method

struct Method {
  State *__restrict__ state;
  scalar_t *__restrict__ parts; // [gridDim.x] of each sum that a kernel makes
  unsigned *__restrict__ ticket;
  offset_t nrows;
};
