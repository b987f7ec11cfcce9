/* Aggregates in the order of a hash of the numbers of rows, which ranks find together: steps of a plan, and exchanges between them. What is found
   on one rank alone, a failure above all, is agreed on before anyone acts on it. */
#include "gamg/gamg.h"

/* Looks at all rows, and decisions, between two exchanges. An exchange takes longer than some of them, and who decides by what ghosts were earlier
   only decides later: the roots are the same. */
enum { DECISIONS = 4 };

/* the rows of the graph on this rank */
typedef struct {
  Mat             blocks[2]; /* the second is NULL where one rank has a matrix of its own */
  const PetscInt *rowptr[2], *colidx[2], *ghosts;
} Rows;

/* A rank that fails alone must not leave the others waiting for it. Collective. */
PetscErrorCode GpufmtGamgAgree(PC pc, PetscErrorCode own)
{
  return GpufmtAgree((PetscObject)pc, "The set-up of PCGAMG", own, 0, NULL);
}

static PetscErrorCode RowsFind(Mat G, Rows *rows)
{
  PetscBool parallel;

  PetscFunctionBegin;
  PetscCall(PetscStrbeginswith(((PetscObject)G)->type_name, MATMPIAIJ, &parallel));
  rows->blocks[0] = G;
  if (parallel) PetscCall(MatMPIAIJGetSeqAIJ(G, &rows->blocks[0], &rows->blocks[1], &rows->ghosts));
  for (int k = 0; k < 2 && rows->blocks[k]; k++) PetscCall(GpufmtPatternGet(rows->blocks[k], &rows->rowptr[k], &rows->colidx[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static GpufmtOperand OperandOf(const Rows *rows, int k, int backend)
{
  const Mat      block = rows->blocks[k];
  const PetscInt nrows = block ? block->rmap->n : 0, *rowptr = rows->rowptr[k];

  if (!rowptr) return (GpufmtOperand){0};
  return (GpufmtOperand){.nrows  = nrows,
                         .ncols  = block->cmap->n,
                         .nnz    = rowptr[nrows],
                         .rowptr = rowptr,
                         .colidx = rows->colidx[k],
                         .held   = GpufmtPatternHeld(block, backend)};
}

static PetscErrorCode Ask(GpufmtGamg *gamg, const GpufmtGamgLevel *level, Mat G, Rows *rows, GpufmtParallelAggregatesAnswer **out)
{
  GpufmtParallelAggregatesRequest request = {0};
  GpufmtParallelAggregatesAnswer *answer;

  PetscFunctionBegin;
  PetscCall(PetscNew(out));
  answer = *out;
  PetscCall(RowsFind(G, rows));
  request.own       = OperandOf(rows, 0, gamg->backend);
  request.others    = OperandOf(rows, 1, gamg->backend);
  request.ghosts    = rows->ghosts;
  request.first     = G->rmap->rstart;
  request.distance  = level->distance;
  request.symmetric = level->symmetric;
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_PARALLEL_AGGREGATES, gamg->backend, -1, G, &request.place, &answer->outcome, &gamg->lease));
  for (int k = 0; k < 2 && rows->blocks[k] && answer->applies; k++) GpufmtPatternHold(rows->blocks[k], gamg->backend, answer->held[k]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where the graph is, and what is known of it: -mat_bind_below looks at the rows of each rank, and a rank without rows lacks what others are given.
   Collective. */
static PetscErrorCode AgreeOnGraph(PC pc, GpufmtGamg *gamg, GpufmtGamgLevel *level)
{
  int known[3] = {gamg->backend == GPUFMT_BACKEND_CUDA, level->symmetric, gamg->constant};

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, known, 3, MPI_INT, MPI_MIN, PetscObjectComm((PetscObject)pc)));
  gamg->backend    = known[0] ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;
  level->symmetric = (PetscBool)known[1];
  gamg->constant   = (PetscBool)known[2];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether the pattern of all ranks is symmetric with a complete diagonal; collective */
static PetscErrorCode AgreeOnSymmetry(PC pc, const GpufmtParallelAggregatesAnswer *answer, PetscBool *symmetric)
{
  uint64_t sums[2] = {answer->asymmetry, !answer->applies}; /* the first modulo 2^64 */

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_UINT64_T, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  *symmetric = (PetscBool)(!sums[0] && !sums[1]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Exchanges for what ranks find together: two numbers for each row of G, the matrix or its graph, or a row of the tentative prolongator. Collective, and
   so are its errors. */
PetscErrorCode GpufmtGamgGhostsUpdate(PC pc, GpufmtGamg *gamg, Mat G)
{
  const PetscInt of_tentative = GPUFMT_GAMG_NUMBER_WORDS + GpufmtGamgOf(pc)->data_cell_cols * GPUFMT_GAMG_VALUE_WORDS;

  PetscFunctionBegin;
  PetscCall(GpufmtGhostsUpdate(G, gamg->backend, PetscMax(2 * GPUFMT_GAMG_NUMBER_WORDS, of_tentative), &gamg->ghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the entries of ghosts in one or two arrays of numbers, from the ranks that have these rows; collective */
static PetscErrorCode Exchange(const GpufmtGamg *gamg, int n, void *first, void *second, PetscErrorCode *own)
{
  const GpufmtGhostArray arrays[] = {
    {first,  GPUFMT_GAMG_NUMBER_WORDS},
    {second, GPUFMT_GAMG_NUMBER_WORDS}
  };

  return GpufmtGhostsExchange(gamg->ghosts, n, arrays, own);
}

/* one step on this rank; `before`: roots of the ranks before it, for the step that numbers them */
static PetscErrorCode Run(const GpufmtGamg *gamg, const GpufmtParallelAggregatesAnswer *answer, int step, int64_t before)
{
  void *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;

  PetscFunctionBegin;
  PetscCheck(GpufmtLeaseHolds(&gamg->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "The aggregates of PCGAMG are gone, because Python, which made them, has ended: set up before the interpreter exits");
  slots[GPUFMT_SLOT_ALPHA] = (void *)(uintptr_t)before;
  if (gamg->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtReplay(&answer->steps[step], gamg->backend, slots, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* At distance 2: what is next to the rows of this rank, and to its ghosts. A rank that has failed takes part in the exchange. Collective. */
static PetscErrorCode LookTogether(const GpufmtGamg *gamg, int distance, const GpufmtParallelAggregatesAnswer *answer, PetscErrorCode *own)
{
  PetscFunctionBegin;
  if (distance != 2) PetscFunctionReturn(PETSC_SUCCESS);
  if (!*own) *own = Run(gamg, answer, GPUFMT_STEP_LOOK, 0);
  PetscCall(Exchange(gamg, 1, answer->nearest, NULL, own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Decides on rows of all ranks; `own` is what has failed on this rank so far. A rank that fails takes part in the exchanges until all know of it.
   *undecided: rows of all ranks that are left; *nroots: roots of this rank so far. Collective. */
static PetscErrorCode Round(PC pc, const GpufmtGamg *gamg, int distance, const GpufmtParallelAggregatesAnswer *answer, PetscErrorCode own,
                            int64_t *undecided, int64_t *nroots)
{
  int64_t counts[2] = {0, 0}, sums[2];

  PetscFunctionBegin;
  for (int k = 0; k < DECISIONS; k++) {
    if (!own) own = Run(gamg, answer, GPUFMT_STEP_LOOK, 0);
    if (!own) own = Run(gamg, answer, GPUFMT_STEP_DECIDE, 0);
  }
  PetscCall(Exchange(gamg, distance == 2 ? 2 : 1, answer->words, answer->nearest, &own));
  if (!own) own = GpufmtCopyToHost(gamg->backend, counts, answer->counts, sizeof(counts));
  sums[0] = counts[0];
  sums[1] = own != PETSC_SUCCESS;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_INT64_T, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  if (sums[1]) PetscCall(GpufmtGamgAgree(pc, own));
  *undecided = sums[0];
  *nroots    = counts[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the number of the aggregate of each row, once it is decided on all of them; collective */
static PetscErrorCode Number(PC pc, const GpufmtGamg *gamg, int distance, const GpufmtParallelAggregatesAnswer *answer)
{
  PetscErrorCode own = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(LookTogether(gamg, distance, answer, &own));
  if (!own) own = Run(gamg, answer, GPUFMT_STEP_NUMBER, gamg->first);
  PetscCall(Exchange(gamg, 1, answer->numbers, NULL, &own));
  if (!own) own = Run(gamg, answer, GPUFMT_STEP_JOIN_NEXT, 0);
  if (distance == 2) {
    PetscCall(Exchange(gamg, 1, answer->numbers, NULL, &own));
    if (!own) own = Run(gamg, answer, GPUFMT_STEP_JOIN_BEYOND, 0);
  }
  PetscCall(GpufmtGamgAgree(pc, own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Rounds(PC pc, GpufmtGamg *gamg, const GpufmtGamgLevel *level, Mat G, const GpufmtParallelAggregatesAnswer *answer)
{
  GpufmtAggregatesAnswer *found     = &gamg->aggregates;
  const MPI_Comm          comm      = PetscObjectComm((PetscObject)pc);
  int64_t                 undecided = 1;
  PetscMPIInt             nranks;
  PetscErrorCode          own       = PETSC_SUCCESS;
  char                    ranks[32] = "";

  PetscFunctionBegin;
  PetscCall(Exchange(gamg, 1, answer->words, NULL, &own));
  PetscCall(LookTogether(gamg, level->distance, answer, &own));
  while (undecided) {
    PetscCall(Round(pc, gamg, level->distance, answer, own, &undecided, &found->naggregates));
    found->rounds++;
  }
  gamg->first = 0;
  PetscCallMPI(MPI_Exscan(&found->naggregates, &gamg->first, 1, MPI_INT64_T, MPI_SUM, comm));
  PetscCallMPI(MPIU_Allreduce(&found->naggregates, &gamg->total, 1, MPI_INT64_T, MPI_SUM, comm));
  PetscCall(Number(pc, gamg, level->distance, answer));
  found->aggregates = answer->numbers;
  PetscCallMPI(MPI_Comm_size(comm, &nranks));
  if (nranks > 1) PetscCall(PetscSNPrintf(ranks, sizeof(ranks), " on %d ranks", nranks));
  PetscCall(PetscSNPrintf(found->summary, sizeof(found->summary),
                          "%" PetscInt64_FMT " aggregates of %" PetscInt_FMT " rows%s at distance %d in the order of a hash, in %" PetscInt64_FMT
                          " rounds",
                          (PetscInt64)gamg->total, G->rmap->N, ranks, level->distance, (PetscInt64)found->rounds));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The aggregates of the rows of G on all ranks, if they are found: if its pattern is symmetric and has all entries of the diagonal.
   Collective, and so are its errors. */
PetscErrorCode GpufmtGamgAggregateTogether(PC pc, GpufmtGamg *gamg, GpufmtGamgLevel *level, Mat G, PetscBool *found)
{
  GpufmtParallelAggregatesAnswer *answer = NULL;
  Rows                            rows   = {0};
  PetscErrorCode                  ierr;

  PetscFunctionBegin;
  *found           = PETSC_FALSE;
  gamg->aggregates = (GpufmtAggregatesAnswer){0};
  gamg->nnodes     = G->rmap->n;
  ierr             = AgreeOnGraph(pc, gamg, level);
  if (!ierr) ierr = GpufmtGamgAgree(pc, Ask(gamg, level, G, &rows, &answer));
  for (int k = 0; k < 2; k++)
    if (rows.rowptr[k]) PetscCall(GpufmtPatternRestore(rows.blocks[k], &rows.rowptr[k], &rows.colidx[k]));
  if (!ierr) ierr = AgreeOnSymmetry(pc, answer, found);
  if (!ierr && *found) ierr = GpufmtGamgGhostsUpdate(pc, gamg, G);
  if (!ierr && *found) ierr = Rounds(pc, gamg, level, G, answer);
  else PetscCall(GpufmtLeaseDrop(&gamg->lease));
  PetscCall(PetscFree(answer));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
