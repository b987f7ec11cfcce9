/* Iterations that are queued before anyone knows whether they are needed: some of them as one launch of a graph, or all in a loop that ends by itself;
   and the states that they leave. */
#include "ksp/ksp.h"

/* ---- what a user sets ---- */

/* the options of a type, -ksp_<name>_... */
PetscErrorCode GpufmtKspOptions(KSP ksp, PetscOptionItems PetscOptionsObject, const char name[], PetscBool may_record)
{
  GpufmtKsp *own;
  char       check[64], graph[64];

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &own));
  if (own->parent.setfromoptions) PetscCall((*own->parent.setfromoptions)(ksp, PetscOptionsObject));
  PetscCall(PetscSNPrintf(check, sizeof(check), "-ksp_%s_check", name));
  PetscCall(PetscSNPrintf(graph, sizeof(graph), "-ksp_%s_graph", name));
  PetscOptionsHeadBegin(PetscOptionsObject, "Options of solvers of petsc_gpufmt");
  PetscCall(
    PetscOptionsBoundedInt(check, "Iterations between two looks at the norm; 0: as many as seem right", NULL, own->check, &own->check, NULL, 0));
  if (may_record)
    PetscCall(PetscOptionsBool(graph, "Record iterations, where that can be, and launch several at once", NULL, own->graphs, &own->graphs, NULL));
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- graphs ---- */

/* Whether iterations can be recorded in the solve that begins: they are wanted to be, products of the matrix and sums over ranks can, on all ranks.
   Collective. */
PetscErrorCode GpufmtKspRecordReady(KSP ksp, GpufmtKsp *own, Mat A, PetscBool wanted)
{
  PetscMPIInt nranks;
  PetscBool   ours;

  PetscFunctionBegin;
  own->record = own->record_dots = PETSC_FALSE;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &nranks));
  ours   = (PetscBool)(GpufmtFormatFind(((PetscObject)A)->type_name) != NULL);
  wanted = (PetscBool)(wanted && own->graphs); /* on this rank */
  if (!ours || (nranks > 1 ? !GpufmtKspSumsAreLaunched(own) : !wanted)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtRecordReady(A, own->backend, wanted, &own->record, &own->record_dots));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what a graph depends on besides plans: vectors, and products of A, of which it has a multiple of `unit` */
static PetscErrorCode KeysGet(const GpufmtKspQueue *q, const void *keys[GPUFMT_GRAPH_KEYS], PetscInt *unit)
{
  PetscFunctionBegin;
  PetscCall(PetscArrayzero(keys, GPUFMT_GRAPH_KEYS));
  PetscCall(GpufmtRecordKeys(q->A, keys, unit));
  for (PetscInt k = 0; k < q->nvectors; k++)
    if (q->vectors[k].vec) PetscCall(GpufmtKspArrayLook(q->own->backend, q->vectors[k].vec, (const PetscScalar **)&keys[GPUFMT_RECORD_KEYS + k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode IsGood(const GpufmtKspQueue *q, PetscInt *unit, PetscBool *good)
{
  const void *keys[GPUFMT_GRAPH_KEYS];

  PetscFunctionBegin;
  PetscCall(KeysGet(q, keys, unit));
  PetscCall(PetscArraycmp(q->own->keys, keys, GPUFMT_GRAPH_KEYS, good));
  *good = (PetscBool)(*good && GpufmtGraphIsCurrent(q->own->graph));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Records so many iterations, which a launch repeats so often, or until the word `stop` is set. What the method keeps for the end of the solve is an error
   here: nothing of it is launched. */
static PetscErrorCode Record(GpufmtKsp *own, PetscErrorCode (*iterate)(void *), void *method, PetscInt n, int repeats, const void *stop)
{
  PetscErrorCode ierr   = PETSC_SUCCESS;
  void          *stream = NULL;

  PetscFunctionBegin;
  PetscCall(GpufmtGraphDestroy(&own->graph));
  PetscCall(GpufmtGraphCreate(own->backend, &own->graph));
  own->recording = PETSC_TRUE;
  own->nrecorded = 0;
  for (PetscInt k = 0; !ierr && k < n; k++) ierr = (*iterate)(method);
  own->recording = PETSC_FALSE;
  if (!ierr) ierr = own->failed;
  if (!ierr && own->backend == GPUFMT_BACKEND_CUDA) ierr = GpufmtDeviceGet(NULL, &stream);
  if (!ierr) ierr = GpufmtGraphInstantiate(own->graph, repeats, stop, stream);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RecordQueue(const GpufmtKspQueue *q)
{
  PetscInt  unit = 1;
  PetscBool dots = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(GpufmtRecordUpdate(q->A, q->own->backend, &dots));
  if (!dots) q->own->record_dots = PETSC_FALSE;
  PetscCall(KeysGet(q, q->own->keys, &unit));
  PetscCall(Record(q->own, q->iterate, q->method, unit, (int)(GPUFMT_GRAPH_ITERATIONS / unit), NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A graph that is good for the iterations that follow, of which there are *n at first: one may be queued by itself before. A rank may fail alone. */
static PetscErrorCode GraphGet(const GpufmtKspQueue *q, PetscInt *n, PetscInt *unit)
{
  PetscBool good = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(IsGood(q, unit, &good));
  if (!good && *unit > 1 && *n > GPUFMT_GRAPH_ITERATIONS && GpufmtGraphIsCurrent(q->own->graph)) { /* after an odd number it may be */
    PetscCall((*q->iterate)(q->method));
    --*n;
    PetscCall(IsGood(q, unit, &good));
  }
  if (!good) PetscCall(RecordQueue(q));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GraphsLaunch(const GpufmtKspQueue *q, PetscInt ngraphs, PetscInt unit)
{
  GpufmtKsp *own    = q->own;
  void      *stream = NULL;

  PetscFunctionBegin;
  if (own->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtRecordLaunched(q->A, own->backend, ngraphs * (GPUFMT_GRAPH_ITERATIONS / unit) * own->nrecorded));
  for (PetscInt k = 0; k < ngraphs; k++) PetscCall(GpufmtGraphLaunch(own->graph, stream));
  for (PetscInt k = 0; k < q->nvectors; k++)
    if (q->vectors[k].vec && q->vectors[k].access != GPUFMT_READ) PetscCall(GpufmtKspArrayChanged(own->backend, q->vectors[k].vec));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Queues so many iterations. Where all that they do can be recorded, several are launched together; a rank that fails in that queues them one by one, as
   others expect them, with sums that are no numbers. */
PetscErrorCode GpufmtKspIterate(const GpufmtKspQueue *q, PetscInt n)
{
  GpufmtKsp     *own = q->own;
  PetscErrorCode ierr;
  PetscInt       unit = 1;

  PetscFunctionBegin;
  if (own->record && !own->failed && n >= GPUFMT_GRAPH_ITERATIONS) {
    ierr = GraphGet(q, &n, &unit);
    if (!ierr) {
      PetscCall(GraphsLaunch(q, n / GPUFMT_GRAPH_ITERATIONS, unit));
      n %= GPUFMT_GRAPH_ITERATIONS;
    } else {
      own->record = PETSC_FALSE;
      PetscCall(GpufmtGraphDestroy(&own->graph));
      PetscCall(GpufmtKspKeep(q->ksp, own, ierr));
    }
  }
  for (PetscInt k = 0; k < n; k++) PetscCall((*q->iterate)(q->method));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* own->graph becomes one whose launch is a multiple of n iterations until the word `stop` of the state is set, if GpufmtGraphLoops(). It is recorded anew
   unless plans and `keys`, all else that it depends on, are those of before. A rank may fail alone. */
PetscErrorCode GpufmtKspLoopGet(GpufmtKsp *own, const void *const keys[GPUFMT_GRAPH_KEYS], PetscErrorCode (*iterate)(void *), void *method,
                                PetscInt n, const void *stop)
{
  PetscErrorCode ierr;
  PetscBool      good;

  PetscFunctionBegin;
  PetscCall(PetscArraycmp(own->keys, keys, GPUFMT_GRAPH_KEYS, &good));
  if (good && GpufmtGraphIsCurrent(own->graph)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscInfo(NULL, "Iterations are recorded in a graph\n"));
  PetscCall(PetscArraycpy(own->keys, keys, GPUFMT_GRAPH_KEYS));
  ierr = Record(own, iterate, method, n, 1, stop);
  if (ierr) PetscCall(GpufmtGraphDestroy(&own->graph));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- states ---- */

/* What states of so many bytes are copied to, which are as many on all ranks. Collective: a rank that lacked it later would fail alone. */
PetscErrorCode GpufmtKspStatesReserve(KSP ksp, GpufmtKsp *own, size_t bytes)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (own->readback.bytes == bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtReadbackDestroy(&own->readback));
  ierr = GpufmtAgree((PetscObject)ksp, "The beginning of a solve", GpufmtReadbackCreate(own->backend, bytes, &own->readback), 0, NULL);
  if (ierr) PetscCall(GpufmtReadbackDestroy(&own->readback));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a state as what is queued so far will leave it */
PetscErrorCode GpufmtKspStateQueue(GpufmtKsp *own, const void *state)
{
  void *stream = NULL;

  PetscFunctionBegin;
  if (own->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtReadbackQueue(&own->readback, state, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the oldest that was queued */
PetscErrorCode GpufmtKspStateTake(GpufmtKsp *own, void *state)
{
  const void *host;

  PetscFunctionBegin;
  PetscCall(GpufmtReadbackTake(&own->readback, &host));
  PetscCall(PetscMemcpy(state, host, own->readback.bytes));
  if (own->sums) PetscCall(GpufmtSumsCheck(own->sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* nobody wants those that are queued */
PetscErrorCode GpufmtKspStatesDrop(GpufmtKsp *own)
{
  const void *host;

  PetscFunctionBegin;
  while (own->readback.ntaken < own->readback.nqueued) PetscCall(GpufmtReadbackTake(&own->readback, &host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtKspQueueClear(GpufmtKsp *own)
{
  PetscFunctionBegin;
  PetscCall(GpufmtGraphDestroy(&own->graph));
  PetscCall(GpufmtReadbackDestroy(&own->readback));
  PetscCall(GpufmtSumsDestroy(&own->sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}
