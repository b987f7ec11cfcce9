/* Values given in the order of coordinates to a parallel matrix: those of rows of other ranks are sent there, and each block adds up its own values
   and those that arrive. */
#include "matrix/matrix.h"
#include <petscsf.h>

static PetscErrorCode (*parent_preallocation)(Mat, PetscCount, PetscInt[], PetscInt[]) = NULL;
static PetscErrorCode (*parent_values)(Mat, const PetscScalar[], InsertMode)           = NULL;

/* The options that new blocks are to get, on all ranks the same: those of the old ones, which are known if these were of ours. Else new nonzeros are
   taken where there were blocks before. The matrix keeps them: a preallocation that fails may leave blocks on some ranks. And whether the planner sorts
   on all ranks. */
static PetscErrorCode OptionsOfBlocks(Mat A, PetscBool *ours)
{
  GpufmtOptionsSet *options = &((Mat_Gpufmt *)A->spptr)->options;
  Mat               diag;
  enum { THERE, THEIRS };
  int flags[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  flags[THERE]  = diag != NULL;
  flags[THEIRS] = !*ours;
  PetscCall(GpufmtAgree((PetscObject)A, "Assembly from coordinates", PETSC_SUCCESS, 2, flags));
  if (diag && GpufmtSeqData(diag) && GpufmtSeqData(diag)->options.count) *options = GpufmtSeqData(diag)->options;
  if (!flags[THERE] && !GpufmtOptionsOnNewNonzeros(options)) GpufmtOptionsRemember(options, MAT_NEW_NONZERO_LOCATION_ERR, PETSC_TRUE);
  *ours = (PetscBool)!flags[THEIRS];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BlocksTakeOptions(Mat A)
{
  Mat blocks[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++)
    if (GpufmtSeqData(blocks[k])) GpufmtSeqData(blocks[k])->options = ((Mat_Gpufmt *)A->spptr)->options;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc sorts on the host, with one core. In the end it gives the blocks their type, on each rank alone. */
static PetscErrorCode SortByParent(Mat A, PetscCount count, PetscInt rows[], PetscInt columns[])
{
  PetscInt      *copies[2];
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = GpufmtCooAgree(A, GpufmtCooToHost(count, rows, columns, copies));
  if (!ierr) ierr = GpufmtCooAgree(A, (*parent_preallocation)(A, count, copies[0] ? copies[0] : rows, copies[1] ? copies[1] : columns));
  for (int k = 0; k < 2; k++) PetscCall(PetscFree(copies[k]));
  PetscCall(ierr);
  PetscCall(GpufmtParallelSumsForget(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatSetPreallocationCOO_MPIAIJGpufmt(Mat A, PetscCount count, PetscInt rows[], PetscInt columns[])
{
  PetscBool ours;
  int       backend;

  PetscFunctionBegin;
  PetscCall(GpufmtCooSortPlace(A, count, rows, columns, &backend, &ours));
  PetscCall(OptionsOfBlocks(A, &ours));
  if (ours) PetscCall(GpufmtParallelCooAssemble(A, backend, count, rows, columns));
  else PetscCall(SortByParent(A, count, rows, columns));
  PetscCall(BlocksTakeOptions(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where values come from and go to on this rank */
typedef struct {
  GpufmtParallelSums *sums;
  PetscObjectId       id; /* of the coordinates */
  Mat                 blocks[2];
  GpufmtCooValues     values;
  GpufmtManaged      *managed[2]; /* arrays that the blocks are to get */
  void               *sent, *received;
} Parts;

static PetscErrorCode Find(Mat A, const PetscScalar given[], Parts *p)
{
  PetscFunctionBegin;
  PetscCall(GpufmtParallelSumsGet(A, &p->sums, &p->id));
  PetscCall(MatMPIAIJGetSeqAIJ(A, &p->blocks[0], &p->blocks[1], NULL));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtCooCheck(p->blocks[k], p->sums->nnz[k]));
  PetscCall(GpufmtCooPlace(A, given, p->sums->count, &p->values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* room for what is sent and what arrives, and the former in it */
static PetscErrorCode Pack(Mat A, Parts *p)
{
  Mat_Gpufmt               *gpufmt                  = (Mat_Gpufmt *)A->spptr;
  const GpufmtParallelSums *sums                    = p->sums;
  void                     *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;

  PetscFunctionBegin;
  if (p->values.backend == GPUFMT_BACKEND_CUDA) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceReserve((size_t)sums->nsent * sizeof(PetscScalar), &gpufmt->scratch[GPUFMT_SLOT_RESULT],
                                  &gpufmt->scratch_bytes[GPUFMT_SLOT_RESULT]));
    PetscCall(GpufmtDeviceReserve((size_t)sums->nreceived * sizeof(PetscScalar), &gpufmt->scratch[GPUFMT_SLOT_B_VALUES],
                                  &gpufmt->scratch_bytes[GPUFMT_SLOT_B_VALUES]));
    p->sent     = gpufmt->scratch[GPUFMT_SLOT_RESULT];
    p->received = gpufmt->scratch[GPUFMT_SLOT_B_VALUES];
  } else {
    p->sent     = sums->sent_values;
    p->received = sums->received_values;
  }
  slots[GPUFMT_SLOT_A_VALUES] = (void *)p->values.array;
  slots[GPUFMT_SLOT_RESULT]   = p->sent;
  PetscCall(GpufmtReplay(&sums->sent.plan, p->values.backend, slots, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* managed arrays for a block that has had none for these coordinates */
static PetscErrorCode Reserve(const Parts *p, int k, InsertMode mode, GpufmtManaged **managed)
{
  GpufmtCooSum *known = &GpufmtSeqData(p->blocks[k])->coo;

  PetscFunctionBegin;
  if (known->id != p->id) known->entered = PETSC_FALSE;
  known->id = p->id;
  PetscCall(GpufmtCooReserve(p->blocks[k], p->values.backend, mode, managed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* all that may fail on one rank alone */
static PetscErrorCode Prepare(Mat A, const PetscScalar given[], InsertMode mode, Parts *p)
{
  PetscFunctionBegin;
  PetscCall(Find(A, given, p));
  if (!p->values.ours) {
    PetscCall(GpufmtParallelCooNote(A));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtParallelSumsPlan(A, p->values.backend, p->sums));
  for (int k = 0; k < 2; k++) PetscCall(Reserve(p, k, mode, &p->managed[k]));
  PetscCall(GpufmtCooStage(&p->values));
  PetscCall(Pack(A, p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Run(Parts *p, InsertMode mode)
{
  const PetscMemType place    = p->values.backend == GPUFMT_BACKEND_CUDA ? PETSC_MEMTYPE_CUDA : PETSC_MEMTYPE_HOST;
  PetscSF            exchange = p->sums->exchange;

  PetscFunctionBegin;
  PetscCall(PetscSFReduceWithMemTypeBegin(exchange, MPIU_SCALAR, place, p->sent, place, p->received, MPI_REPLACE));
  PetscCall(PetscSFReduceEnd(exchange, MPIU_SCALAR, p->sent, p->received, MPI_REPLACE));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtCooEnter(p->blocks[k], &p->managed[k]));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtCooRun(p->blocks[k], &p->sums->blocks[k], p->values.array, p->received, mode));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what fails on one rank fails on all; collective */
PetscErrorCode GpufmtCooAgree(Mat A, PetscErrorCode own)
{
  PetscFunctionBegin;
  PetscCall(GpufmtAgree((PetscObject)A, "Assembly from coordinates", own, 0, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Values change on all ranks or on none. Which function a rank takes is its own affair: both exchange in the same way. */
static PetscErrorCode MatSetValuesCOO_MPIAIJGpufmt(Mat A, const PetscScalar given[], InsertMode mode)
{
  Parts          parts = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = Prepare(A, given, mode, &parts);
  ierr = GpufmtCooAgree(A, ierr);
  if (!ierr) ierr = parts.values.ours ? Run(&parts, mode) : (*parent_values)(A, given, mode);
  for (int k = 0; k < 2; k++) PetscCall(GpufmtManagedRelease(&parts.managed[k]));
  PetscCall(GpufmtCooRelease(&parts.values));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* how many values MatSetValuesCOO() takes on this rank */
PetscErrorCode GpufmtParallelCooCount(Mat A, PetscCount *count)
{
  GpufmtParallelSums *sums;
  PetscObjectId       id;

  PetscFunctionBegin;
  PetscCall(GpufmtParallelSumsGet(A, &sums, &id));
  *count = sums->count;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* gives a matrix these functions, or the parent's */
PetscErrorCode GpufmtParallelCooSet(Mat A, PetscBool ours)
{
  PetscFunctionBegin;
  GpufmtComposeFunction(A, "MatSetPreallocationCOO_C", ours, MatSetPreallocationCOO_MPIAIJGpufmt, parent_preallocation);
  GpufmtComposeFunction(A, "MatSetValuesCOO_C", ours, MatSetValuesCOO_MPIAIJGpufmt, parent_values);
  PetscFunctionReturn(PETSC_SUCCESS);
}
