/* How many iterations are queued before the host looks at what came out, and when it looks. */
#include "ksp/ksp.h"

/* whether iterations may be queued that follow one whose outcome is not known; on the host nobody waits */
static PetscBool MayRunAhead(const GpufmtKspQueue *q)
{
  return (PetscBool)(!q->own->watched && (q->own->check || q->own->backend == GPUFMT_BACKEND_CUDA));
}

/* n, or half of the iterations that are left if the norm goes on to fall as in `done` iterations, less those that are `ahead`, where these are fewer. */
PetscInt GpufmtKspHalfway(PetscInt n, PetscInt done, PetscReal first, PetscReal norm, PetscReal limit, PetscInt ahead)
{
  if (!(limit > 0 && norm > limit && norm < first)) return n;
  return (PetscInt)PetscMin((PetscReal)n, 1 + done * PetscLogReal(norm / limit) / PetscLogReal(first / norm) / 2 - ahead);
}

/* How many to queue next: about half of those that seem to be left, and not many more than the last time. None, or fewer: what is on its way is enough. */
static PetscInt IterationsAhead(const GpufmtKspQueue *q)
{
  const KSP      ksp  = q->ksp;
  const PetscInt most = GPUFMT_KRYLOV_RECORDS / 4; /* records of two looks that are ahead are there, and those of the last */
  const PetscInt done = q->before + q->i;          /* rnorm is of the iteration before i */
  PetscInt       n = PetscMin(most, 2 * q->ahead), left = PetscMax(1, ksp->max_it) - q->before; /* who watches may allow more */

  if (!MayRunAhead(q)) n = 1;
  else if (q->own->check) n = PetscMin(most, q->own->check);
  else if (done && ksp->normtype != KSP_NORM_NONE) n = GpufmtKspHalfway(n, done, ksp->rnorm0, ksp->rnorm, ksp->ttol, q->queued - q->i);
  if (q->cycle) left = PetscMin(left, q->cycle);
  return PetscMin(q->nlooks ? n : PetscMax(1, n), left - q->queued);
}

static PetscErrorCode Queue(GpufmtKspQueue *q, PetscInt n)
{
  PetscFunctionBegin;
  PetscCall(GpufmtKspIterate(q, n));
  if (q->state != q->own->plans.state) PetscCall(GpufmtKspStateQueue(q->own, q->own->plans.state));
  q->ahead = n;
  q->queued += n;
  q->nlooks++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* how many iterations have left a record, or the state in which they ended */
static PetscInt RecordsRead(const GpufmtKspQueue *q)
{
  return (PetscInt)(*q->iteration + (*q->stop == GPUFMT_STOP_CURVATURE || *q->stop == GPUFMT_STOP_BREAKDOWN));
}

/* Iterations are queued until the record of i is there, and more while it is on its way. Where this rank goes on although plans have stopped, they go on
   too. */
PetscErrorCode GpufmtKspFetch(GpufmtKspQueue *q)
{
  const char *type = ((PetscObject)q->ksp)->type_name;

  PetscFunctionBegin;
  if (RecordsRead(q) > q->i) PetscFunctionReturn(PETSC_SUCCESS);
  if (*q->stop) {
    const int64_t none = GPUFMT_STOP_NONE;
    char         *stop = (char *)q->own->plans.state + ((const char *)q->stop - (const char *)q->state);

    PetscCall(GpufmtKspStatesDrop(q->own));
    PetscCall(GpufmtCopyToBackend(q->own->backend, stop, &none, sizeof(none)));
    q->queued = q->i;
    q->nlooks = 0;
    q->ahead  = 0; /* it may stop again at once */
  }
  do {
    const int most = MayRunAhead(q) ? 2 : 1;

    for (PetscInt n; q->nlooks < most && (n = IterationsAhead(q)) > 0;) PetscCall(Queue(q, n));
    PetscCheck(q->nlooks, PETSC_COMM_SELF, PETSC_ERR_PLIB, "Iteration %" PetscInt_FMT " of type %s has left no record", q->i, type);
    if (q->state != q->own->plans.state) PetscCall(GpufmtKspStateTake(q->own, q->state));
    q->nlooks--;
  } while (RecordsRead(q) <= q->i && !*q->stop);
  PetscCheck(RecordsRead(q) > q->i, PETSC_COMM_SELF, PETSC_ERR_PLIB, "Plans of type %s stopped before iteration %" PetscInt_FMT, type, q->i);
  PetscFunctionReturn(PETSC_SUCCESS);
}
