/* The halo exchange of a parallel matrix: entries of x that lie on other ranks come to the ghost vector, and sums go back from there. */
#pragma once
#include <petscsf.h>
#include "memory/memory.h"

typedef struct _GpufmtHalo *GpufmtHalo;

#define GPUFMT_HALO_TIMEOUT "-mat_halo_timeout"
enum { GPUFMT_HALO_SECONDS = 3600 }; /* its default */

/* how entries are exchanged; what a mode leaves out is NULL */
typedef struct {
  const char *name;
  PetscErrorCode (*create)(GpufmtHalo, Mat, PetscErrorCode own); /* makes `data`, on this rank; `own`: what failed before, with no exchange then */
  PetscErrorCode (*destroy)(GpufmtHalo);                         /* of `data`, which may be NULL; not collective */
  PetscErrorCode (*begin)(GpufmtHalo, Vec x);                    /* x does not change until the end */
  PetscErrorCode (*end)(GpufmtHalo, Vec x, Vec *ghost);
  PetscErrorCode (*begin_back)(GpufmtHalo);    /* halo->ghost has sums for other ranks; NULL: transposed products are PETSc's */
  PetscErrorCode (*end_back)(GpufmtHalo, Vec); /* where received ones are added, rank by rank */
} GpufmtHaloMode;

/* Who sends what: rank to[k] gets the entries of x at indices[to_begins[k]], ..., ascending, and rank from[k] sends those of the ghost vector from
   from_begins[k] on, which belong to it in this order. These are arrays of the scatter. */
typedef struct {
  PetscMPIInt        nto, nfrom;
  const PetscMPIInt *to, *from; /* ascending */
  const PetscInt    *to_begins, *indices, *from_begins;
} GpufmtHaloLinks;

struct _GpufmtHalo {
  const GpufmtHaloMode *mode;
  Vec                   ghost;        /* PETSc's */
  VecScatter            scatter;      /* likewise, from x to the ghost vector */
  size_t                scalar_bytes; /* of an entry: PetscScalar, or float */
  PetscInt              nx, nghosts;
  GpufmtHaloLinks       links; /* unless the mode is that of a scatter */
  void                 *data;  /* of the mode */
  PetscErrorCode        own;   /* what has failed on this rank alone in an exchange that goes on: its product fails in the end */
};

/* what PETSc has made for products of a parallel matrix */
typedef struct {
  Vec        ghost;
  VecScatter scatter;
} GpufmtHaloParts;

/* memory of each rank that all ranks of a communicator reach */
typedef struct _GpufmtArena *GpufmtArena;

enum { GPUFMT_ARENA_ALIGNMENT = 256, GPUFMT_FLAG_BYTES = 64 /* bytes; flags of several ranks are in cache lines of their own */ };

/* a part of it, of this rank */
typedef struct {
  GpufmtArena arena; /* NULL: none */
  int64_t     generation;
  PetscBool   used; /* before, by another exchange */
  int64_t     chunk, offset;
} GpufmtPiece;

/* A rank takes a piece of an arena; `missing` becomes units of memory for which there is no room. */
typedef PetscErrorCode (*GpufmtTakePiece)(void *context, GpufmtArena, int *missing);

/* entries that go from this rank, and to it, in exchanges through memory of other ranks: 0 direct, 1 back */
enum { GPUFMT_DIRECT, GPUFMT_BACK };

/* the data of the mode `peer` */
typedef struct {
  GpufmtArena arena;
  GpufmtPiece piece;
  int         backend;
  size_t      scalar_bytes; /* of an entry */
  double      limit;        /* seconds */
  uint64_t    exchange;     /* number of the last one; with recorded ones, which are even in number, it is odd or even as that in memory */
  PetscBool   open;         /* it has begun, and not ended */
  PetscBool   beside;       /* PETSc's stream */
  void       *stream;       /* that it ran on */
  PetscMPIInt nmessages;    /* to so many neighbours, who send as many */
  int64_t     longest[2];   /* of the messages */
  void       *messages[2];  /* on the backend: GpufmtPeerMessage, GpufmtPeerArrivals */
  void       *arrivals[2];
  void       *places[2]; /* where entries arrive, in exchanges with even and odd numbers */
  Vec         ghosts[2]; /* vectors there; NULL where entries are no PetscScalar */
  void       *staged;    /* a copy on the device of a vector that is on the host */
  size_t      capacity;  /* of it, in bytes */
} GpufmtPeer;

/* a few numbers, summed over the ranks of a matrix */
typedef struct _GpufmtSums *GpufmtSums;

/* halo.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtHaloOptionsDeclare(PetscOptionItems);
GPUFMT_HIDDEN PetscErrorCode GpufmtHaloLimitGet(Mat, double *seconds);
GPUFMT_HIDDEN PetscErrorCode GpufmtHaloLinksAreKnown(VecScatter, PetscBool *known);
GPUFMT_HIDDEN PetscErrorCode GpufmtHaloLinksFind(VecScatter, GpufmtHaloLinks *);
GPUFMT_HIDDEN PetscErrorCode GpufmtHaloModeNamed(Mat, const GpufmtHaloMode **);
GPUFMT_HIDDEN PetscErrorCode GpufmtHaloIsLate(double limit, int waiting, int late);
GPUFMT_HIDDEN PetscErrorCode GpufmtHaloUpdate(Mat, const GpufmtHaloParts *, size_t scalar_bytes, GpufmtHalo *);
GPUFMT_HIDDEN PetscErrorCode GpufmtHaloDestroy(GpufmtHalo *);

/* arena.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtArenaFind(MPI_Comm, int backend, GpufmtArena *);
GPUFMT_HIDDEN PetscErrorCode GpufmtArenaMake(MPI_Comm, int backend);
GPUFMT_HIDDEN const char    *GpufmtArenaWhyNot(GpufmtArena);
GPUFMT_HIDDEN PetscErrorCode GpufmtArenaGrow(GpufmtArena, size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtArenaTake(GpufmtArena, size_t bytes, GpufmtPiece *);
GPUFMT_HIDDEN PetscErrorCode GpufmtArenaRelease(GpufmtPiece *);
GPUFMT_HIDDEN void          *GpufmtArenaAddress(GpufmtArena, PetscMPIInt rank, int64_t chunk, int64_t offset);
GPUFMT_HIDDEN void          *GpufmtPieceAddress(const GpufmtPiece *);
GPUFMT_HIDDEN GpufmtBeside  *GpufmtArenaBeside(GpufmtArena);
GPUFMT_HIDDEN void           GpufmtArenaWords(GpufmtArena, void *const **failures, void **report);
GPUFMT_HIDDEN PetscErrorCode GpufmtArenaCheck(GpufmtArena, double limit);
GPUFMT_HIDDEN PetscErrorCode GpufmtArenasFree(void);

/* pieces.c */
GPUFMT_HIDDEN size_t         GpufmtPieceAligned(size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtPieceTake(GpufmtArena, int backend, size_t bytes, size_t nflags, GpufmtPiece *, int *missing);
GPUFMT_HIDDEN PetscErrorCode GpufmtPiecesMake(Mat, const char what[], PetscBool named, PetscErrorCode own, GpufmtTakePiece, void *context,
                                              const char **why_not);
GPUFMT_HIDDEN PetscErrorCode GpufmtArrivalsBegin(const GpufmtPiece *, int backend, PetscMPIInt rank, PetscMPIInt nranks, double limit,
                                                 const void *failures, GpufmtPeerArrivals *);
GPUFMT_HIDDEN PetscErrorCode GpufmtTablesSend(int backend, void *there, const void *tables, size_t bytes, void *stream);

/* peer_setup.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtPeerCreate(GpufmtHalo, Mat, PetscBool named, PetscErrorCode own, const char **why_not);
GPUFMT_HIDDEN PetscErrorCode GpufmtPeerDestroy(GpufmtHalo);

/* thread.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtHaloThreadHold(int *held);
GPUFMT_HIDDEN void           GpufmtHaloThreadRelease(int *held);
GPUFMT_HIDDEN void           GpufmtHaloThreadEnd(void);
GPUFMT_HIDDEN void           GpufmtHaloThreadDo(int (*)(void *), void *);
GPUFMT_HIDDEN int            GpufmtHaloThreadWait(void);

/* scatter.c, task.c */
GPUFMT_HIDDEN extern const GpufmtHaloMode gpufmt_halo_vector;
GPUFMT_HIDDEN extern const GpufmtHaloMode gpufmt_halo_overlap;
GPUFMT_HIDDEN extern const GpufmtHaloMode gpufmt_halo_task;

/* peer.c */
GPUFMT_HIDDEN PetscErrorCode              GpufmtPeerPlan(int backend, size_t scalar_bytes, Mat);
GPUFMT_HIDDEN PetscErrorCode              GpufmtPeerStep(int backend, size_t scalar_bytes, int step, GpufmtPlan **, const GpufmtLease **);
GPUFMT_HIDDEN PetscErrorCode              GpufmtPeerLaunch(const GpufmtPeer *, int step, int k, const void *x, void *z, const GpufmtPlan **,
                                                           void *slots[GPUFMT_NUM_SLOTS], const GpufmtLease **);
GPUFMT_HIDDEN PetscErrorCode              GpufmtPeerArrayBegin(GpufmtHalo, const void *x);
GPUFMT_HIDDEN PetscErrorCode              GpufmtPeerArrayEnd(GpufmtHalo, void **ghosts);
GPUFMT_HIDDEN extern const GpufmtHaloMode gpufmt_halo_peer;

/* sums.c; tests call the first of these by their names */
PETSC_EXTERN PetscErrorCode  GpufmtSumsCreate(Mat, GpufmtSums *, const char **why_not);
PETSC_EXTERN PetscErrorCode  GpufmtSumsDestroy(GpufmtSums *);
PETSC_EXTERN PetscErrorCode  GpufmtSumsRun(GpufmtSums, PetscInt n, PetscScalar *, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtSumsCheck(GpufmtSums);
GPUFMT_HIDDEN PetscBool      GpufmtSumsAreLaunched(GpufmtSums);
GPUFMT_HIDDEN void           GpufmtSumsTables(GpufmtSums, void **messages, void **arrivals);
GPUFMT_HIDDEN PetscErrorCode GpufmtSumsPlan(GpufmtSums, PetscInt n, PetscScalar *, const GpufmtPlan **, void *slots[GPUFMT_NUM_SLOTS],
                                            const GpufmtLease **);
