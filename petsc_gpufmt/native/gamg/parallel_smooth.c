/* The first smoothing step of a parallel matrix, where the aggregates are ours: ranks exchange the rows of the tentative prolongator that others look
   at, and each makes its rows of the smoothed one. */
#include "gamg/gamg.h"

/* the rows of A on this rank */
typedef struct {
  Mat             blocks[2];
  int64_t         nnz[2];
  const PetscInt *ghosts;
} Rows;

static PetscErrorCode RowsFind(const GpufmtGamg *gamg, Mat A, Rows *rows)
{
  void *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &rows->blocks[0], &rows->blocks[1], &rows->ghosts));
  if (gamg->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtReplay(&gamg->parallel_tentative.rows, gamg->backend, slots, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What ranks have in the tentative prolongator goes to those where these rows are ghosts; collective, and what has failed on this rank is *own. */
static PetscErrorCode Exchange(const GpufmtGamg *gamg, PetscInt nvectors, PetscErrorCode *own)
{
  const GpufmtGhostArray arrays[] = {
    {gamg->parallel_tentative.numbers,   GPUFMT_GAMG_NUMBER_WORDS          },
    {gamg->parallel_tentative.tentative, nvectors * GPUFMT_GAMG_VALUE_WORDS}
  };

  return GpufmtGhostsExchange(gamg->ghosts, 2, arrays, own);
}

static PetscErrorCode Ask(GpufmtGamg *gamg, Mat A, PetscInt nvectors, Rows *rows, GpufmtParallelSmoothedAnswer **answer)
{
  const GpufmtParallelTentativeAnswer *tentative   = &gamg->parallel_tentative;
  GpufmtParallelSmoothedRequest        request     = {0};
  GpufmtOperand *const                 operands[2] = {&request.own, &request.others};
  PetscErrorCode                       ierr        = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(PetscNew(answer));
  for (int k = 0; k < 2 && !ierr; k++) {
    ierr         = GpufmtOperandGet(rows->blocks[k], gamg->backend, operands[k]);
    rows->nnz[k] = operands[k]->nnz;
  }
  while (request.nlow < request.others.ncols && rows->ghosts[request.nlow] < A->rmap->rstart) request.nlow++;
  request.first       = gamg->first;
  request.naggregates = gamg->aggregates.naggregates;
  request.nghosts     = tentative->nghosts;
  request.ghosts      = tentative->ghosts;
  request.numbers     = tentative->numbers;
  request.tentative   = tentative->tentative;
  request.nvectors    = (int32_t)nvectors;
  if (!ierr) ierr = GpufmtPlannerAsk(GPUFMT_ASK_PARALLEL_SMOOTHED, gamg->backend, -1, A, &request.place, &(*answer)->outcome, &gamg->smoothed_lease);
  for (int k = 0; k < 2; k++)
    if (operands[k]->rowptr) PetscCall(GpufmtOperandRestore(rows->blocks[k], operands[k]));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the values of both blocks of P by those of both blocks of A, which are in `slots` with all else */
static PetscErrorCode ComputeBlocks(const GpufmtGamg *gamg, Mat P, const GpufmtParallelSmoothedAnswer *answer, void *slots[GPUFMT_NUM_SLOTS])
{
  Mat   blocks[2];
  void *stream = NULL;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(P, &blocks[0], &blocks[1], NULL));
  if (gamg->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  for (int k = 0; k < 2; k++) {
    const int64_t nnz = answer->blocks[k].nnz;

    PetscCall(GpufmtGamgBlockWrite(blocks[k], gamg->backend, nnz, &slots[GPUFMT_SLOT_RESULT]));
    PetscCall(GpufmtReplay(&answer->numeric[k], gamg->backend, slots, stream));
    PetscCall(GpufmtGamgBlockWritten(blocks[k], gamg->backend, nnz, &slots[GPUFMT_SLOT_RESULT]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ComputeOnDevice(const GpufmtGamg *gamg, const Rows *rows, Mat P, const GpufmtParallelSmoothedAnswer *answer,
                                      void *slots[GPUFMT_NUM_SLOTS])
{
  void *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  for (int k = 0; k < 2; k++) {
    GpufmtDeviceValues *values = GpufmtDeviceValuesOf(rows->blocks[k], NULL);

    PetscCall(GpufmtDeviceValuesUpdate(values, rows->blocks[k], rows->nnz[k], stream));
    slots[k ? GPUFMT_SLOT_B_VALUES : GPUFMT_SLOT_A_VALUES] = values->array;
  }
  PetscCall(ComputeBlocks(gamg, P, answer, slots));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ComputeOnHost(const GpufmtGamg *gamg, const Rows *rows, Mat P, const GpufmtParallelSmoothedAnswer *answer,
                                    void *slots[GPUFMT_NUM_SLOTS])
{
  const PetscScalar *values[2];
  PetscErrorCode     ierr;

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) PetscCall(MatSeqAIJGetArrayRead(rows->blocks[k], &values[k]));
  slots[GPUFMT_SLOT_A_VALUES] = (void *)values[0];
  slots[GPUFMT_SLOT_B_VALUES] = (void *)values[1];
  ierr                        = ComputeBlocks(gamg, P, answer, slots);
  for (int k = 0; k < 2; k++) PetscCall(MatSeqAIJRestoreArrayRead(rows->blocks[k], &values[k]));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Compute(const GpufmtGamg *gamg, const Rows *rows, Vec diagonal, PetscReal alpha, Mat P,
                              const GpufmtParallelSmoothedAnswer *answer)
{
  void             *slots[GPUFMT_NUM_SLOTS] = {NULL};
  GpufmtGamgFactors factors                 = {NULL};
  PetscErrorCode    ierr;

  PetscFunctionBegin;
  ierr = GpufmtGamgFactorsGet(gamg, diagonal, alpha, slots, &factors);
  if (!ierr)
    ierr = gamg->backend == GPUFMT_BACKEND_CUDA ? ComputeOnDevice(gamg, rows, P, answer, slots) : ComputeOnHost(gamg, rows, P, answer, slots);
  PetscCall(GpufmtGamgFactorsRestore(&factors));
  PetscCall(ierr);
  PetscCall(GpufmtGamgLogFlops(gamg, rows->nnz[0] + rows->nnz[1], answer->blocks[0].nnz + answer->blocks[1].nnz));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Smooth(PC pc, GpufmtGamg *gamg, Mat A, Vec diagonal, PetscReal alpha, Rows *rows, GpufmtParallelSmoothedAnswer **answer, Mat *P,
                             PetscBool *done)
{
  const PetscInt nvectors = GpufmtGamgOf(pc)->data_cell_cols;
  int            too_long;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGhostsUpdate(pc, gamg, A));
  ierr = RowsFind(gamg, A, rows);
  PetscCall(Exchange(gamg, nvectors, &ierr));
  PetscCall(GpufmtGamgAgree(pc, ierr)); /* what others have of this rank is nothing then */
  ierr     = Ask(gamg, A, nvectors, rows, answer);
  too_long = ierr || !(*answer)->applies;
  PetscCall(GpufmtAgree((PetscObject)pc, "The set-up of PCGAMG", ierr, 1, &too_long));
  *done = (PetscBool)!too_long;
  if (too_long) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatDestroy(P));
  PetscCall(GpufmtGamgFromBlocks(pc, gamg, A, (*answer)->nghosts, (*answer)->ghosts, (*answer)->blocks, P));
  PetscCall(GpufmtGamgAgree(pc, Compute(gamg, rows, diagonal, alpha, *P, *answer)));
  PetscCall(PetscObjectStateIncrease((PetscObject)*P));
  PetscCall(PetscInfo(pc, "level %" PetscInt_FMT ": %s\n", GpufmtGamgOf(pc)->current_level, (*answer)->summary));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* *P, which has no entries, is replaced by P0 + alpha D A P0; false: the planner does not make it so on all ranks. Collective, and so are its
   errors. */
PetscErrorCode GpufmtGamgSmoothTogether(PC pc, GpufmtGamg *gamg, Mat A, Vec diagonal, PetscReal alpha, Mat *P, PetscBool *done)
{
  GpufmtParallelSmoothedAnswer *answer = NULL;
  Rows                          rows   = {0};
  PetscErrorCode                ierr;

  PetscFunctionBegin;
  ierr = Smooth(pc, gamg, A, diagonal, alpha, &rows, &answer, P, done);
  PetscCall(PetscFree(answer));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
