/* Coordinates of a parallel matrix on their way to the blocks: mpi_coo_exchange.c and mpi_coo_pattern.c. */
#pragma once
#include "matrix/matrix.h"

typedef struct {
  PetscInt row, column;
} GpufmtCooPair;

/* entries that one rank sends another, which are neighbours among those that it sends */
typedef struct {
  PetscInt first, count;
} GpufmtCooParcel;

/* those outside of the diagonal block, and those of other ranks in rows of this one */
typedef struct {
  GpufmtCooBlock      block; /* the diagonal one */
  PetscMPIInt         rank;
  GpufmtOutsideAnswer outside;
  GpufmtLease         lease;  /* of it, and of all coordinates on the backend */
  PetscMPIInt        *owners; /* [outside.count] -1: left out */
  PetscInt            nsent, nreceived;
  GpufmtCooPair      *sent, *received;
  PetscCount         *sent_places;    /* their numbers */
  PetscInt           *rows, *columns; /* that were received */
  PetscMPIInt         nto, nfrom, *to, *from;
  GpufmtCooParcel    *parcels, *arriving;
  PetscSF             forward; /* from `sent` of all ranks to `received` */
} GpufmtCooExchange;

/* mpi_coo_exchange.c */
GPUFMT_HIDDEN PetscBool      GpufmtCooIgnoresOthers(Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooExchangeRun(Mat, int backend, PetscCount, const PetscInt rows[], const PetscInt columns[], GpufmtCooExchange *,
                                                  PetscSF *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooExchangeFree(GpufmtCooExchange *);
