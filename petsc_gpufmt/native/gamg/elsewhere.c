/* Nodes whose aggregates belong to other ranks: these are told which nodes of others they have, and get the near-null space there. */
#include "gamg/gamg.h"

PetscErrorCode GpufmtGamgElsewhereFree(GpufmtGamgElsewhere *e)
{
  PetscFunctionBegin;
  PetscCall(PetscLayoutDestroy(&e->layout));
  PetscCall(PetscSFDestroy(&e->asking));
  PetscCall(PetscSFDestroy(&e->sf));
  PetscCall(GpufmtLeaseDrop(&e->lease));
  PetscCall(PetscFree(e->ghosts));
  PetscCall(PetscFree2(e->nodes, e->places));
  PetscCall(PetscFree(e->received));
  PetscCall(PetscFree(e->sent));
  PetscCall(PetscFree(e->near_null));
  if (e->unit != MPI_DATATYPE_NULL) PetscCallMPI(MPI_Type_free(&e->unit));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* aggregates of other ranks that nodes of this one belong to */
static PetscErrorCode Find(const GpufmtGamg *gamg, Mat A, GpufmtGamgElsewhere *e)
{
  GpufmtElsewhereRequest request = GpufmtGamgOwnAggregates(gamg);
  PetscInt               n;

  PetscFunctionBegin;
  PetscCheck(GpufmtLeaseHolds(&gamg->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "The aggregates of PCGAMG are gone, because Python, which made them, has ended: set up before the interpreter exits");
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_ELSEWHERE, gamg->backend, -1, A, &request.place, &e->answer.outcome, &e->lease));
  PetscCall(PetscIntCast(e->answer.count, &n));
  PetscCall(PetscSFSetGraphLayout(e->asking, e->layout, n, NULL, PETSC_OWN_POINTER, (const PetscInt *)e->answer.aggregates));
  e->nghosts = n;
  PetscCall(PetscMalloc1(n, &e->ghosts));
  PetscCall(PetscArraycpy(e->ghosts, (const PetscInt *)e->answer.aggregates, n));
  PetscCall(PetscSortRemoveDupsInt(&e->nghosts, e->ghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Reserve(GpufmtGamgElsewhere *e, PetscInt naggregates, const PetscInt degrees[])
{
  PetscFunctionBegin;
  for (PetscInt a = 0; a < naggregates; a++) e->nreceived += degrees[a];
  PetscCall(PetscMalloc2(e->nreceived, &e->nodes, e->nreceived, &e->places));
  PetscCall(PetscMalloc1(e->nreceived, &e->received));
  for (PetscInt a = 0, k = 0; a < naggregates; a++)
    for (PetscInt d = 0; d < degrees[a]; d++) e->received[k++] = a;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Nodes that came for the aggregates, in an order that does not depend on who came first. */
static PetscErrorCode Sort(GpufmtGamgElsewhere *e, PetscLayout rows, PetscInt block, PetscInt naggregates, const PetscInt degrees[])
{
  PetscSFNode *remote;
  PetscInt     begin = 0;

  PetscFunctionBegin;
  for (PetscInt a = 0; a < naggregates; begin += degrees[a++])
    PetscCall(PetscSortIntWithArray(degrees[a], PetscSafePointerPlusOffset(e->nodes, begin), PetscSafePointerPlusOffset(e->places, begin)));
  PetscCall(PetscMalloc1(e->nreceived, &remote));
  for (PetscInt k = 0; k < e->nreceived; k++) {
    PetscMPIInt owner;

    PetscCall(PetscLayoutFindOwner(rows, e->nodes[k] * block, &owner));
    remote[k] = (PetscSFNode){.rank = owner, .index = e->places[k]};
  }
  PetscCall(PetscSFSetGraph(e->sf, (PetscInt)e->answer.count, e->nreceived, NULL, PETSC_OWN_POINTER, remote, PETSC_OWN_POINTER));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the nodes of other ranks whose aggregates belong to this one; collective */
static PetscErrorCode Receive(PC pc, const GpufmtGamg *gamg, Mat A, PetscInt block, GpufmtGamgElsewhere *e)
{
  const PetscInt  n = (PetscInt)e->answer.count, naggregates = e->layout->n, *degrees;
  const PetscInt *nodes   = (const PetscInt *)e->answer.nodes;
  PetscInt       *sent[2] = {NULL, NULL};
  PetscSF         one_by_one; /* a root for each node that belongs to an aggregate */
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(PetscSFComputeDegreeBegin(e->asking, &degrees));
  PetscCall(PetscSFComputeDegreeEnd(e->asking, &degrees));
  PetscCall(PetscSFGetMultiSF(e->asking, &one_by_one));
  ierr = Reserve(e, naggregates, degrees);
  if (!ierr) ierr = PetscMalloc2(n, &sent[0], n, &sent[1]);
  ierr = GpufmtGamgAgree(pc, ierr);
  for (PetscInt k = 0; k < n && !ierr; k++) {
    sent[0][k] = A->rmap->rstart / block + nodes[k];
    sent[1][k] = k;
  }
  for (int k = 0; k < 2 && !ierr; k++) {
    PetscInt *received = k ? e->places : e->nodes;

    ierr = PetscSFReduceBegin(one_by_one, MPIU_INT, sent[k], received, MPI_REPLACE);
    if (!ierr) ierr = PetscSFReduceEnd(one_by_one, MPIU_INT, sent[k], received, MPI_REPLACE);
  }
  PetscCall(PetscFree2(sent[0], sent[1]));
  PetscCall(ierr);
  PetscCall(GpufmtGamgAgree(pc, Sort(e, A->rmap, block, naggregates, degrees)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode NearNullReserve(const GpufmtGamg *gamg, const PC_GAMG *g, PetscInt block, GpufmtGamgElsewhere *e)
{
  const PetscInt   nvectors = g->data_cell_cols, nrows = gamg->nnodes * block, *nodes = (const PetscInt *)e->answer.nodes;
  PetscScalar     *sent;
  const PetscReal *data = g->data;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((PetscInt)e->answer.count * block * nvectors, &e->sent));
  PetscCall(PetscMalloc1(nvectors * (nrows + e->nreceived * block) + 1, &e->near_null)); /* NULL is for the constant vector */
  sent = e->sent;
  for (PetscInt k = 0; k < e->answer.count; k++)
    for (PetscInt i = 0; i < block; i++)
      for (PetscInt j = 0; j < nvectors; j++) *sent++ = data[j * nrows + nodes[k] * block + i];
  for (PetscInt j = 0; j < nvectors && nrows; j++)
    PetscCall(PetscArraycpy(e->near_null + j * (nrows + e->nreceived * block), data + j * nrows, nrows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the near-null space of all nodes of the aggregates of this rank; collective */
static PetscErrorCode NearNullReceive(PC pc, const GpufmtGamg *gamg, PetscInt block, GpufmtGamgElsewhere *e)
{
  const PC_GAMG *g        = GpufmtGamgOf(pc);
  const PetscInt nvectors = g->data_cell_cols, nrows = gamg->nnodes * block, stride = nrows + e->nreceived * block;
  PetscScalar   *received = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = NearNullReserve(gamg, g, block, e);
  if (!ierr) ierr = PetscMalloc1(e->nreceived * block * nvectors, &received);
  ierr = GpufmtGamgAgree(pc, ierr);
  if (!ierr) ierr = PetscSFBcastBegin(e->sf, e->unit, e->sent, received, MPI_REPLACE);
  if (!ierr) ierr = PetscSFBcastEnd(e->sf, e->unit, e->sent, received, MPI_REPLACE);
  for (PetscInt i = 0; i < e->nreceived * block && !ierr; i++)
    for (PetscInt j = 0; j < nvectors; j++) e->near_null[j * stride + nrows + i] = PetscRealPart(received[i * nvectors + j]);
  PetscCall(PetscFree(received));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what belongs to aggregates of other ranks, of all ranks; collective, and so are its errors. *e is zeros but for its type of MPI. */
PetscErrorCode GpufmtGamgElsewhereFind(PC pc, const GpufmtGamg *gamg, Mat A, GpufmtGamgElsewhere *e)
{
  PetscMPIInt entries;
  PetscInt    block;

  PetscFunctionBegin;
  PetscCall(MatGetBlockSize(A, &block));
  PetscCall(PetscMPIIntCast(block * GpufmtGamgOf(pc)->data_cell_cols, &entries));
  PetscCallMPI(MPI_Type_contiguous(entries, MPIU_SCALAR, &e->unit));
  PetscCallMPI(MPI_Type_commit(&e->unit));
  PetscCall(PetscLayoutCreateFromSizes(PetscObjectComm((PetscObject)A), (PetscInt)gamg->aggregates.naggregates, PETSC_DETERMINE, 1, &e->layout));
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &e->asking)); /* before anything can fail: PETSc numbers the objects of ranks */
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &e->sf));
  PetscCall(GpufmtGamgAgree(pc, Find(gamg, A, e)));
  PetscCall(Receive(pc, gamg, A, block, e));
  if (!GpufmtGamgIsConstant(pc, gamg)) PetscCall(NearNullReceive(pc, gamg, block, e));
  PetscFunctionReturn(PETSC_SUCCESS);
}
