/* The smoothed prolongator of a level, as PCGAMGOptimizeProlongator_AGG() makes it. Where the aggregates are ours, the first step makes it from
   these; further ones, and the steps of other levels, take products of matrices. */
#include "gamg/gamg.h"

/* Slots get alpha and the vector, whatever memory it lies in. GpufmtGamgFactorsRestore() follows, also after a failure. */
PetscErrorCode GpufmtGamgFactorsGet(const GpufmtGamg *gamg, Vec diagonal, PetscReal alpha, void *slots[GPUFMT_NUM_SLOTS], GpufmtGamgFactors *f)
{
  PetscMemType memtype = PETSC_MEMTYPE_HOST;
  PetscInt     size;
  void        *stream;

  PetscFunctionBegin;
  GpufmtAlphaSet(slots, alpha);
  f->on_device = (PetscBool)(gamg->backend == GPUFMT_BACKEND_CUDA);
  if (f->on_device) PetscCall(VecGetArrayReadAndMemType(diagonal, &f->array, &memtype));
  else PetscCall(VecGetArrayRead(diagonal, &f->array));
  f->diagonal          = diagonal;
  slots[GPUFMT_SLOT_X] = (void *)f->array;
  if (!f->on_device || !PetscMemTypeHost(memtype)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecGetLocalSize(diagonal, &size));
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceReserve((size_t)size * sizeof(PetscScalar), &f->staged, &f->capacity));
  PetscCall(GpufmtDeviceUpload(f->staged, f->array, (size_t)size * sizeof(PetscScalar), stream));
  slots[GPUFMT_SLOT_X] = f->staged;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtGamgFactorsRestore(GpufmtGamgFactors *f)
{
  PetscFunctionBegin;
  if (f->diagonal && f->on_device) PetscCall(VecRestoreArrayReadAndMemType(f->diagonal, &f->array));
  else if (f->diagonal) PetscCall(VecRestoreArrayRead(f->diagonal, &f->array));
  PetscCall(GpufmtDeviceFree(&f->staged, &f->capacity));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* of a step that has read so many entries of A, and written so many of the prolongator */
PetscErrorCode GpufmtGamgLogFlops(const GpufmtGamg *gamg, int64_t nnz, int64_t written)
{
  const PetscLogDouble flops = 2.0 * (PetscLogDouble)nnz + 3.0 * (PetscLogDouble)written;

  PetscFunctionBegin;
  PetscCall(GpufmtLogFlops(gamg->backend, flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* RESULT = P0 + ALPHA diag(X) A P0 with X, ALPHA given in `slots`; P has the pattern */
static PetscErrorCode ComputeOnDevice(GpufmtGamg *gamg, Mat A, int64_t nnz, Mat P, const GpufmtSmoothedAnswer *answer, void *slots[GPUFMT_NUM_SLOTS])
{
  const GpufmtTentativeAnswer *tentative                      = &gamg->tentative;
  GpufmtDeviceValues          *values                         = GpufmtDeviceValuesOf(A, NULL);
  size_t                       capacity                       = 0;
  void                        *of_tentative[GPUFMT_NUM_SLOTS] = {NULL}, *buffer = NULL, *stream;
  PetscErrorCode               ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceReserve((size_t)tentative->nnz * sizeof(PetscScalar), &buffer, &capacity));
  of_tentative[GPUFMT_SLOT_RESULT] = slots[GPUFMT_SLOT_B_VALUES] = buffer;
  ierr                                                           = GpufmtReplay(&tentative->numeric, GPUFMT_BACKEND_CUDA, of_tentative, stream);
  if (!ierr) ierr = GpufmtDeviceValuesUpdate(values, A, nnz, stream);
  slots[GPUFMT_SLOT_A_VALUES] = values->array;
  if (!ierr) ierr = GpufmtGamgComputeValues(P, GPUFMT_BACKEND_CUDA, &answer->numeric, answer->nnz, slots);
  PetscCall(GpufmtDeviceFree(&buffer, &capacity));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ComputeOnHost(GpufmtGamg *gamg, Mat A, Mat P, const GpufmtSmoothedAnswer *answer, void *slots[GPUFMT_NUM_SLOTS])
{
  const GpufmtTentativeAnswer *tentative                      = &gamg->tentative;
  void                        *of_tentative[GPUFMT_NUM_SLOTS] = {NULL};
  const PetscScalar           *values;
  PetscScalar                 *values_of_tentative;
  PetscErrorCode               ierr;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(tentative->nnz, &values_of_tentative));
  of_tentative[GPUFMT_SLOT_RESULT] = values_of_tentative;
  PetscCall(GpufmtReplay(&tentative->numeric, GPUFMT_BACKEND_HOST, of_tentative, NULL));
  PetscCall(MatSeqAIJGetArrayRead(A, &values));
  slots[GPUFMT_SLOT_A_VALUES] = (void *)values;
  slots[GPUFMT_SLOT_B_VALUES] = values_of_tentative;
  ierr                        = GpufmtGamgComputeValues(P, GPUFMT_BACKEND_HOST, &answer->numeric, answer->nnz, slots);
  PetscCall(MatSeqAIJRestoreArrayRead(A, &values));
  PetscCall(PetscFree(values_of_tentative));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the values of P, which has the pattern; `diagonal`: the reciprocals of that of A */
static PetscErrorCode Compute(GpufmtGamg *gamg, Mat A, int64_t nnz, Vec diagonal, PetscReal alpha, Mat P, const GpufmtSmoothedAnswer *answer)
{
  void             *slots[GPUFMT_NUM_SLOTS] = {NULL};
  GpufmtGamgFactors factors                 = {NULL};
  PetscErrorCode    ierr;

  PetscFunctionBegin;
  ierr = GpufmtGamgFactorsGet(gamg, diagonal, alpha, slots, &factors);
  if (!ierr) ierr = factors.on_device ? ComputeOnDevice(gamg, A, nnz, P, answer, slots) : ComputeOnHost(gamg, A, P, answer, slots);
  PetscCall(GpufmtGamgFactorsRestore(&factors));
  PetscCall(ierr);
  PetscCall(GpufmtGamgLogFlops(gamg, nnz, answer->nnz));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* P, which has no entries yet, becomes P0 + alpha D A P0; false: the planner does not make it so */
static PetscErrorCode SmoothAggregates(PC pc, GpufmtGamg *gamg, Mat A, Vec diagonal, PetscReal alpha, Mat P, PetscBool *done)
{
  GpufmtSmoothedRequest request = {0};
  GpufmtSmoothedAnswer  answer  = {0};
  GpufmtPlannedPattern  pattern;
  PetscInt              block;
  PetscErrorCode        ierr;

  PetscFunctionBegin;
  PetscCall(MatGetBlockSize(A, &block));
  PetscCall(GpufmtOperandGet(A, gamg->backend, &request.matrix));
  request.naggregates = gamg->aggregates.naggregates;
  request.aggregates  = gamg->aggregates.aggregates;
  request.block       = (int32_t)block;
  request.nvectors    = (int32_t)GpufmtGamgOf(pc)->data_cell_cols;
  ierr                = GpufmtPlannerAsk(GPUFMT_ASK_SMOOTHED, gamg->backend, -1, A, &request.place, &answer.outcome, &gamg->smoothed_lease);
  PetscCall(GpufmtOperandRestore(A, &request.matrix));
  PetscCall(ierr);
  *done = (PetscBool)(answer.applies != 0);
  if (*done) {
    pattern = (GpufmtPlannedPattern){gamg->backend, answer.nrows, answer.ncols, answer.nnz, answer.rowptr, answer.colidx};
    ierr    = GpufmtGamgSetPattern(P, A, &pattern);
    if (!ierr) GpufmtPatternHold(P, gamg->backend, answer.held);
    if (!ierr) ierr = Compute(gamg, A, request.matrix.nnz, diagonal, alpha, P, &answer);
    if (!ierr) PetscCall(PetscInfo(pc, "level %" PetscInt_FMT ": %s\n", GpufmtGamgOf(pc)->current_level, answer.summary));
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The matrix P is replaced by P + alpha D A P, by agg's operations. Where there is a device, a rank may fail to scale alone, and others would wait for
   it in the sum. */
static PetscErrorCode SmoothByProduct(PC pc, Mat A, Vec diagonal, PetscReal alpha, Mat *P)
{
  const PetscLogEvent event  = petsc_gamg_setup_matmat_events[GpufmtGamgOf(pc)->current_level][2];
  Mat                 result = NULL;
  PetscErrorCode      ierr;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(event, 0, 0, 0, 0));
  ierr = MatMatMult(A, *P, MAT_INITIAL_MATRIX, PETSC_CURRENT, &result);
  PetscCall(PetscLogEventEnd(event, 0, 0, 0, 0));
  if (!ierr) ierr = MatProductClear(result);
  if (!ierr) ierr = MatDiagonalScale(result, diagonal, NULL);
  ierr = GpufmtGamgAgree(pc, ierr);
  if (!ierr) ierr = MatAYPX(result, alpha, *P, SUBSET_NONZERO_PATTERN);
  if (ierr) PetscCall(MatDestroy(&result));
  PetscCall(ierr);
  PetscCall(MatDestroy(P));
  *P = result;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the first step, where the aggregates are held */
static PetscErrorCode SmoothTentative(PC pc, GpufmtGamg *gamg, Mat A, Vec diagonal, PetscReal alpha, Mat *P)
{
  const PetscInt   number = GpufmtGamgOf(pc)->current_level;
  GpufmtGamgLevel *level  = &gamg->levels[number];
  PetscBool        done;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgCheckAggregates(gamg));
  if (GpufmtSeqData(A)) PetscCall(SmoothAggregates(pc, gamg, A, diagonal, alpha, *P, &done));
  else PetscCall(GpufmtGamgSmoothTogether(pc, gamg, A, diagonal, alpha, P, &done));
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrncpy(level->smoothing, "a row of the matrix is too long", sizeof(level->smoothing)));
  if (GpufmtSeqData(A)) PetscCall(GpufmtGamgFillTentative(gamg, A, *P));
  else PetscCall(GpufmtGamgFillTogether(pc, gamg, A, P));
  PetscCall(SmoothByProduct(pc, A, diagonal, alpha, P));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SmoothBy(PC pc, GpufmtGamg *gamg, Mat A, Vec diagonal, PetscReal emax, Mat *P)
{
  const PetscReal alpha       = -1.4 / emax; /* agg's number */
  PetscBool       has_entries = (PetscBool)!gamg->tentative_lease.token, positive;
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  ierr = MatGetDiagonal(A, diagonal);
  if (!ierr) ierr = GpufmtVectorReciprocals(diagonal, &positive);
  PetscCall(GpufmtGamgAgree(pc, ierr));
  for (PetscInt step = 0; step < GpufmtGamgAggOf(pc)->nsmooths; step++) {
    PetscCall(PetscLogEventBegin(petsc_gamg_setup_events[GAMG_OPTSM], 0, 0, 0, 0));
    if (has_entries) ierr = SmoothByProduct(pc, A, diagonal, alpha, P);
    else ierr = SmoothTentative(pc, gamg, A, diagonal, alpha, P);
    PetscCall(PetscLogEventEnd(petsc_gamg_setup_events[GAMG_OPTSM], 0, 0, 0, 0));
    PetscCall(ierr);
    has_entries = PETSC_TRUE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode EstimateAndSmooth(PC pc, GpufmtGamg *gamg, Mat A, Mat *P)
{
  const PetscInt level = GpufmtGamgOf(pc)->current_level;
  PC_MG         *mg    = (PC_MG *)pc->data;
  PetscReal      emin, emax;
  Vec            diagonal;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  mg->min_eigen_DinvA[level] = mg->max_eigen_DinvA[level] = 0;
  if (GpufmtGamgAggOf(pc)->nsmooths <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtGamgSendValues(pc, gamg, A, PETSC_TRUE));
  PetscCall(GpufmtGamgEstimate(pc, gamg, A, &emin, &emax));
  PetscCall(MatCreateVecs(A, &diagonal, NULL));
  ierr = SmoothBy(pc, gamg, A, diagonal, emax, P);
  PetscCall(VecDestroy(&diagonal));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* agg's own function, which filters prolongators besides; it replaces P, or leaves it in place when it fails */
static PetscErrorCode SmoothByAgg(PC pc, GpufmtGamg *gamg, Mat A, Mat *P)
{
  Mat            tentative = *P;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscObjectReference((PetscObject)tentative));
  ierr = (*gamg->agg.optprolongator)(pc, A, P);
  if (ierr && ((PetscObject)tentative)->refct == 1) *P = NULL; /* it was replaced */
  PetscCall(MatDestroy(&tentative));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A failure leaves nothing behind: PETSc's set-up would forget the prolongator, and the graph and the lists that it destroys next. */
PetscErrorCode PCGAMGOptimizeProlongator_Gpufmt(PC pc, Mat A, Mat *P)
{
  const PetscInt   number = GpufmtGamgOf(pc)->current_level;
  GpufmtGamg      *gamg;
  GpufmtGamgLevel *level;
  PetscErrorCode   ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtGamgGet(pc, &gamg));
  level = &gamg->levels[number];
  if (!GpufmtFormatFind(((PetscObject)A)->type_name) || GpufmtGamgIsFiltered(GpufmtGamgOf(pc))) ierr = SmoothByAgg(pc, gamg, A, P);
  else {
    PetscCall(PetscLogEventBegin(petsc_gamg_setup_events[GAMG_OPT], 0, 0, 0, 0));
    ierr = EstimateAndSmooth(pc, gamg, A, P);
    PetscCall(PetscLogEventEnd(petsc_gamg_setup_events[GAMG_OPT], 0, 0, 0, 0));
    if (!ierr) ierr = MatViewFromOptions(*P, NULL, "-pc_gamg_agg_view_prolongation");
  }
  PetscCall(GpufmtLeaseDrop(&gamg->tentative_lease));
  if (ierr) PetscCall(MatDestroy(P));
  PetscCall(ierr);
  if (level->smoothing[0])
    PetscCall(PetscInfo(pc, "level %" PetscInt_FMT ": the prolongator is smoothed by products of matrices, because %s\n", number, level->smoothing));
  gamg->graph                = NULL; /* destroyed next */
  gamg->lists                = NULL;
  gamg->prolongators[number] = *P;
  PetscFunctionReturn(PETSC_SUCCESS);
}
