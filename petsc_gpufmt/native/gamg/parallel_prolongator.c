/* The tentative prolongator of aggregates that ranks have found together. The rank of an aggregate gets the near-null space of all its nodes,
   factors it, and sends back what the nodes of other ranks have in the prolongator. */
#include "gamg/gamg.h"

/* nodes of this rank whose aggregates belong to others, and nodes of others whose aggregates belong to this one */
typedef struct {
  PetscLayout           layout;     /* of aggregates */
  PetscSF               asking, sf; /* from the former to their aggregates; a leaf for each of the latter, whose roots are the former */
  GpufmtLease           lease;      /* of `answer` */
  GpufmtElsewhereAnswer answer;     /* the former */
  PetscInt             *ghosts;     /* their aggregates, ascending */
  PetscInt              nghosts;
  PetscInt             *nodes, *places; /* the latter, in the order of their aggregates, then of theirs; where their ranks have them in `answer` */
  PetscInt             *received;       /* their aggregates among those of this rank */
  PetscInt              nreceived;
  PetscScalar          *sent;      /* the near-null space of the former, node by node */
  PetscReal            *near_null; /* of the nodes of this rank, then of the latter, vector by vector */
  MPI_Datatype          unit;      /* what a node has in the prolongator */
} Elsewhere;

static PetscErrorCode ElsewhereFree(Elsewhere *e)
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

static GpufmtElsewhereRequest RequestOf(const GpufmtGamg *gamg)
{
  return (GpufmtElsewhereRequest){.nnodes      = gamg->nnodes,
                                  .aggregates  = gamg->aggregates.aggregates,
                                  .first       = gamg->first,
                                  .naggregates = gamg->aggregates.naggregates};
}

/* aggregates of other ranks that nodes of this one belong to */
static PetscErrorCode Find(const GpufmtGamg *gamg, Mat A, Elsewhere *e)
{
  GpufmtElsewhereRequest request = RequestOf(gamg);
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

static PetscErrorCode Reserve(Elsewhere *e, PetscInt naggregates, const PetscInt degrees[])
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
static PetscErrorCode Sort(Elsewhere *e, PetscLayout rows, PetscInt block, PetscInt naggregates, const PetscInt degrees[])
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
static PetscErrorCode Receive(PC pc, const GpufmtGamg *gamg, Mat A, PetscInt block, Elsewhere *e)
{
  const PetscInt  n = (PetscInt)e->answer.count, naggregates = e->layout->n, *degrees;
  const PetscInt *nodes = (const PetscInt *)e->answer.nodes;
  PetscInt       *sent[2];
  PetscSF         one_by_one; /* a root for each node that belongs to an aggregate */
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(PetscSFComputeDegreeBegin(e->asking, &degrees));
  PetscCall(PetscSFComputeDegreeEnd(e->asking, &degrees));
  PetscCall(PetscSFGetMultiSF(e->asking, &one_by_one));
  ierr = Reserve(e, naggregates, degrees);
  if (!ierr) ierr = PetscMalloc2(n, &sent[0], n, &sent[1]);
  PetscCall(GpufmtGamgAgree(pc, ierr));
  for (PetscInt k = 0; k < n; k++) {
    sent[0][k] = A->rmap->rstart / block + nodes[k];
    sent[1][k] = k;
  }
  for (int k = 0; k < 2; k++) {
    PetscInt *received = k ? e->places : e->nodes;

    PetscCall(PetscSFReduceBegin(one_by_one, MPIU_INT, sent[k], received, MPI_REPLACE));
    PetscCall(PetscSFReduceEnd(one_by_one, MPIU_INT, sent[k], received, MPI_REPLACE));
  }
  PetscCall(PetscFree2(sent[0], sent[1]));
  PetscCall(GpufmtGamgAgree(pc, Sort(e, A->rmap, block, naggregates, degrees)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode NearNullReserve(const GpufmtGamg *gamg, const PC_GAMG *g, PetscInt block, Elsewhere *e)
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
static PetscErrorCode NearNullReceive(PC pc, const GpufmtGamg *gamg, PetscInt block, Elsewhere *e)
{
  const PC_GAMG *g        = GpufmtGamgOf(pc);
  const PetscInt nvectors = g->data_cell_cols, nrows = gamg->nnodes * block, stride = nrows + e->nreceived * block;
  PetscScalar   *received = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = NearNullReserve(gamg, g, block, e);
  if (!ierr) ierr = PetscMalloc1(e->nreceived * block * nvectors, &received);
  PetscCall(GpufmtGamgAgree(pc, ierr));
  PetscCall(PetscSFBcastBegin(e->sf, e->unit, e->sent, received, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(e->sf, e->unit, e->sent, received, MPI_REPLACE));
  for (PetscInt i = 0; i < e->nreceived * block; i++)
    for (PetscInt j = 0; j < nvectors; j++) e->near_null[j * stride + nrows + i] = PetscRealPart(received[i * nvectors + j]);
  PetscCall(PetscFree(received));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the matrix ---- */

/* what this rank has of the prolongator until it is one */
typedef struct {
  GpufmtParallelTentativeAnswer answer;
  GpufmtLease                   lease;
  Mat                           blocks[2];
  GpufmtManaged                *managed[2]; /* the arrays that they are to get */
  PetscInt                     *garray;
} Pieces;

static PetscErrorCode Plan(const GpufmtGamg *gamg, Mat A, PetscInt block, PetscInt nvectors, const Elsewhere *e, Pieces *p)
{
  GpufmtParallelTentativeRequest request = {0};

  PetscFunctionBegin;
  request.own       = RequestOf(gamg);
  request.nreceived = e->nreceived;
  request.received  = e->received;
  request.nghosts   = e->nghosts;
  request.ghosts    = e->ghosts;
  request.block     = (int32_t)block;
  request.nvectors  = (int32_t)nvectors;
  request.near_null = e->near_null;
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_PARALLEL_TENTATIVE, gamg->backend, -1, A, &request.place, &p->answer.outcome, &p->lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A block with its pattern, or without entries if it is to have managed arrays: the parallel matrix sets options that these must not see. */
static PetscErrorCode BlockCreate(Mat A, int backend, PetscInt col_block, const GpufmtBlockAnswer *answer, Mat *block, GpufmtManaged **managed)
{
  const GpufmtPlannedPattern pattern = {backend, A->rmap->n, answer->ncols, answer->nnz, answer->rowptr, answer->colidx};
  PetscInt                   ncols, row_block;
  MatType                    type;
  Mat                        diag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  PetscCall(MatGetType(diag, &type));
  PetscCall(MatGetBlockSize(A, &row_block));
  PetscCall(PetscIntCast(answer->ncols, &ncols));
  PetscCall(MatCreate(PETSC_COMM_SELF, block));
  PetscCall(MatSetSizes(*block, A->rmap->n, ncols, A->rmap->n, ncols));
  PetscCall(MatSetBlockSizes(*block, row_block, col_block));
  PetscCall(MatSetType(*block, type));
  PetscCall(GpufmtResultManaged(*block, &pattern, managed));
  if (!*managed) PetscCall(GpufmtResultSetPattern(*block, &pattern, NULL));
  else {
    PetscCall(MatDestroy(block));
    PetscCall(GpufmtCreateEmpty(type, A->rmap->n, ncols, row_block, col_block, block));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BlocksCreate(const GpufmtGamg *gamg, Mat A, PetscInt nvectors, const Elsewhere *e, Pieces *p)
{
  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) PetscCall(BlockCreate(A, gamg->backend, k ? 1 : nvectors, &p->answer.blocks[k], &p->blocks[k], &p->managed[k]));
  PetscCall(PetscMalloc1(e->nghosts * nvectors, &p->garray));
  for (PetscInt k = 0; k < e->nghosts * nvectors; k++) p->garray[k] = e->ghosts[k / nvectors] * nvectors + k % nvectors;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BlocksManage(const GpufmtGamg *gamg, Mat P, Pieces *p)
{
  Mat blocks[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(P, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++) {
    if (!p->managed[k]) continue;
    PetscCall(GpufmtManagedAdopt(blocks[k], p->managed[k]));
    PetscCall(GpufmtManagedSettle((PetscBool)(gamg->backend == GPUFMT_BACKEND_CUDA)));
    PetscCall((*gpufmt_seq_parent->setoption)(blocks[k], MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* P from its blocks, without values; collective */
static PetscErrorCode FromBlocks(PC pc, const GpufmtGamg *gamg, Mat A, PetscInt nvectors, Pieces *p, Mat *P)
{
  Mat       blocks[2] = {p->blocks[0], p->blocks[1]};
  PetscInt *garray    = p->garray;

  PetscFunctionBegin;
  p->blocks[0] = p->blocks[1] = NULL; /* P takes them */
  p->garray                   = NULL;
  PetscCall(
    MatCreateMPIAIJWithSeqAIJ(PetscObjectComm((PetscObject)A), A->rmap->N, (PetscInt)gamg->total * nvectors, blocks[0], blocks[1], garray, P));
  PetscCall(MatConvert(*P, ((PetscObject)A)->type_name, MAT_INPLACE_MATRIX, P));
#if PetscDefined(HAVE_DEVICE)
  PetscCall(MatBindToCPU(*P, A->boundtocpu));
  if (A->boundtocpu) PetscCall(MatSetBindingPropagates(*P, PETSC_TRUE));
#endif
  PetscCall(MatSetOption(*P, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
  PetscCall(GpufmtGamgAgree(pc, BlocksManage(gamg, *P, p)));
  PetscCall(MatAssemblyBegin(*P, MAT_FINAL_ASSEMBLY)); /* before there are values on the device that it could take for older than those on the host */
  PetscCall(MatAssemblyEnd(*P, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the values of a block are written; ValuesEnd() follows */
static PetscErrorCode ValuesBegin(Mat block, int backend, const GpufmtBlockAnswer *answer, PetscScalar **values)
{
  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceValuesWrite(GpufmtDeviceValuesOf(block, NULL), block, answer->nnz, (void **)values));
  else PetscCall(MatSeqAIJGetArrayWrite(block, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ValuesEnd(Mat block, int backend, const GpufmtBlockAnswer *answer, PetscScalar **values)
{
  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) {
    GpufmtDeviceValues *computed = GpufmtDeviceValuesOf(block, NULL);
    void               *stream;

    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceValuesComputed(computed, block, answer->nnz, stream));
    computed->computed = PETSC_FALSE; /* no MatProductNumeric() of this matrix goes on to raise its state */
  } else {
    PetscCall(MatSeqAIJRestoreArrayWrite(block, values));
    PetscCall(PetscObjectStateIncrease((PetscObject)block));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the values of the first block are copied, and those of the other come from where they were computed; collective */
static PetscErrorCode Values(PC pc, const GpufmtGamg *gamg, const Elsewhere *e, const Pieces *p, Mat P)
{
  const GpufmtParallelTentativeAnswer *answer    = &p->answer;
  const PetscBool                      on_device = (PetscBool)(gamg->backend == GPUFMT_BACKEND_CUDA);
  const PetscMemType                   place     = on_device ? PETSC_MEMTYPE_CUDA : PETSC_MEMTYPE_HOST;
  const size_t                         bytes     = (size_t)answer->blocks[0].nnz * sizeof(PetscScalar);
  const PetscScalar                   *computed  = PetscSafePointerPlusOffset((const PetscScalar *)answer->values, answer->blocks[0].nnz);
  PetscScalar                         *values[2] = {NULL, NULL};
  void                                *stream    = NULL;
  PetscErrorCode                       ierr      = PETSC_SUCCESS;
  Mat                                  blocks[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(P, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2 && !ierr; k++) ierr = ValuesBegin(blocks[k], gamg->backend, &answer->blocks[k], &values[k]);
  if (!ierr && on_device) ierr = GpufmtDeviceGet(NULL, &stream);
  if (!ierr && bytes) ierr = on_device ? GpufmtDeviceCopy(values[0], answer->values, bytes, stream) : PetscMemcpy(values[0], answer->values, bytes);
  PetscCall(GpufmtGamgAgree(pc, ierr));
  PetscCall(PetscSFReduceWithMemTypeBegin(e->sf, e->unit, place, computed, place, values[1], MPI_REPLACE));
  PetscCall(PetscSFReduceEnd(e->sf, e->unit, computed, values[1], MPI_REPLACE));
  for (int k = 0; k < 2 && !ierr; k++) ierr = ValuesEnd(blocks[k], gamg->backend, &answer->blocks[k], &values[k]);
  PetscCall(GpufmtGamgAgree(pc, ierr));
  PetscCall(PetscObjectStateIncrease((PetscObject)P));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create(PC pc, GpufmtGamg *gamg, Mat A, Elsewhere *e, Pieces *p, Mat *P)
{
  PC_GAMG       *g        = GpufmtGamgOf(pc);
  const PetscInt nvectors = g->data_cell_cols;
  PetscErrorCode ierr;
  PetscMPIInt    entries;
  PetscInt       block;

  PetscFunctionBegin;
  PetscCall(MatGetBlockSize(A, &block));
  PetscCall(PetscMPIIntCast(block * nvectors, &entries));
  PetscCallMPI(MPI_Type_contiguous(entries, MPIU_SCALAR, &e->unit));
  PetscCallMPI(MPI_Type_commit(&e->unit));
  PetscCall(PetscLayoutCreateFromSizes(PetscObjectComm((PetscObject)A), (PetscInt)gamg->aggregates.naggregates, PETSC_DETERMINE, 1, &e->layout));
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &e->asking)); /* before anything can fail, as in GpufmtGamgAggregateTogether() */
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &e->sf));
  PetscCall(GpufmtGamgAgree(pc, Find(gamg, A, e)));
  PetscCall(Receive(pc, gamg, A, block, e));
  if (!GpufmtGamgIsConstant(pc, gamg)) PetscCall(NearNullReceive(pc, gamg, block, e));
  ierr = Plan(gamg, A, block, nvectors, e, p);
  if (!ierr) ierr = BlocksCreate(gamg, A, nvectors, e, p);
  PetscCall(GpufmtGamgAgree(pc, ierr));
  PetscCall(FromBlocks(pc, gamg, A, nvectors, p, P));
  PetscCall(Values(pc, gamg, e, p, *P));
  PetscCall(GpufmtGamgAgree(pc, GpufmtGamgReplaceNearNull(g, gamg->backend, p->answer.blocks[0].ncols, p->answer.coarse_near_null)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The prolongator of a parallel matrix, and the near-null space of the coarse level. Collective, and so are its errors. */
PetscErrorCode GpufmtGamgProlongatorTogether(PC pc, GpufmtGamg *gamg, GpufmtGamgLevel *level, Mat A, Mat *P)
{
  Elsewhere      elsewhere = {.unit = MPI_DATATYPE_NULL};
  Pieces         pieces    = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (GpufmtGamgAggOf(pc)->nsmooths > 0) PetscCall(PetscStrncpy(level->smoothing, "the matrix is a parallel one", sizeof(level->smoothing)));
  ierr = Create(pc, gamg, A, &elsewhere, &pieces, P);
  PetscCall(ElsewhereFree(&elsewhere));
  PetscCall(GpufmtLeaseDrop(&pieces.lease));
  for (int k = 0; k < 2; k++) {
    PetscCall(GpufmtManagedRelease(&pieces.managed[k])); /* the block has its own reference */
    PetscCall(MatDestroy(&pieces.blocks[k]));
  }
  PetscCall(PetscFree(pieces.garray));
  if (ierr) PetscCall(MatDestroy(P));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
