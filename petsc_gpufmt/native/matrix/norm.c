/* Norms where the values of a matrix are, if these are in managed memory: sums are made there, and what is left of them comes to the host. */
#include "matrix/matrix.h"

/* replays a plan with the values of A, which stay what they are */
static PetscErrorCode Run(Mat A, const GpufmtScaleAndAdd *plan, void *slots[GPUFMT_NUM_SLOTS], PetscLogDouble flops)
{
  const PetscScalar *array;
  void              *stream;

  PetscFunctionBegin;
  if (plan->backend == GPUFMT_BACKEND_CUDA) {
    GpufmtDeviceValues *values = &((Mat_Gpufmt *)A->spptr)->arrays.values;

    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceValuesUpdate(values, A, (PetscCount)GpufmtEntries(A), stream));
    slots[GPUFMT_SLOT_A_VALUES] = values->array;
    PetscCall(GpufmtReplay(&plan->plan, GPUFMT_BACKEND_CUDA, slots, stream));
    PetscCall(PetscLogGpuFlops(flops));
    PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the host may write the values next */
  } else {
    PetscCall(MatSeqAIJGetArrayRead(A, &array));
    slots[GPUFMT_SLOT_A_VALUES] = (void *)array;
    PetscCall(GpufmtReplay(&plan->plan, GPUFMT_BACKEND_HOST, slots, NULL));
    PetscCall(PetscLogFlops(flops));
    PetscCall(MatSeqAIJRestoreArrayRead(A, &array));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int Kind(NormType type)
{
  return type == NORM_FROBENIUS ? GPUFMT_SUM_SQUARES : type == NORM_INFINITY ? GPUFMT_SUM_ROWS : GPUFMT_SUM_COLUMNS;
}

/* the plan of what a norm is made of, NULL if PETSc is to find it */
PetscErrorCode GpufmtNormPlan(Mat A, NormType type, const GpufmtScaleAndAdd **out)
{
  PetscBool ours = PETSC_FALSE;
  int       backend;

  PetscFunctionBegin;
  *out = NULL;
  if (type != NORM_1 && type != NORM_FROBENIUS && type != NORM_INFINITY) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtValuesPlace(A, &backend, &ours));
  if (ours) PetscCall(GpufmtScaleAndAddGet(A, backend, Kind(type), NULL, NULL, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The plan of column sums has as many indices as the matrix, and is wanted seldom: it goes. */
PetscErrorCode GpufmtNormDrop(Mat A, NormType type)
{
  PetscFunctionBegin;
  if (type == NORM_1) PetscCall(GpufmtLeaseDrop(&((Mat_Gpufmt *)A->spptr)->scale_and_add[GPUFMT_SUM_COLUMNS].lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the sum of the squares of all values */
PetscErrorCode GpufmtNormSquares(Mat A, const GpufmtScaleAndAdd *plan, PetscReal *sum)
{
  void          *slots[GPUFMT_NUM_SLOTS] = {NULL};
  PetscScalar    parts[GPUFMT_NORM_PARTS];
  GpufmtBuffer   numbers = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtBufferReserve(plan->backend, sizeof(parts), &numbers));
  slots[GPUFMT_SLOT_RESULT] = numbers.array;
  ierr                      = Run(A, plan, slots, 2.0 * GpufmtEntries(A));
  if (!ierr) ierr = GpufmtBufferToHost(&numbers, sizeof(parts), parts);
  PetscCall(GpufmtBufferFree(&numbers));
  PetscCall(ierr);
  *sum = 0.0;
  for (int k = 0; k < GPUFMT_NORM_PARTS; k++) *sum += PetscRealPart(parts[k]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Largest(int n, const Mat blocks[], const GpufmtScaleAndAdd *const plans[], const GpufmtBuffer *sums, const GpufmtBuffer *parts,
                              PetscReal *largest)
{
  PetscScalar host[GPUFMT_NORM_PARTS];

  PetscFunctionBegin;
  for (int k = 0; k < n; k++) {
    void *slots[GPUFMT_NUM_SLOTS] = {NULL};

    slots[GPUFMT_SLOT_RESULT] = sums->array;
    slots[GPUFMT_SLOT_Y]      = k ? sums->array : NULL;
    slots[GPUFMT_SLOT_Z]      = k == n - 1 ? parts->array : NULL;
    PetscCall(Run(blocks[k], plans[k], slots, GpufmtEntries(blocks[k])));
  }
  PetscCall(GpufmtBufferToHost(parts, sizeof(host), host));
  for (int k = 0; k < GPUFMT_NORM_PARTS; k++) *largest = PetscMax(*largest, PetscRealPart(host[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the largest sum of magnitudes in a row of all `n` blocks, or in a column of one */
PetscErrorCode GpufmtNormLargest(int n, const Mat blocks[], const GpufmtScaleAndAdd *const plans[], PetscInt nsums, PetscReal *largest)
{
  GpufmtBuffer   sums = {0}, parts = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *largest = 0.0;
  if (!nsums) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtBufferReserve(plans[0]->backend, (size_t)nsums * sizeof(PetscScalar), &sums));
  ierr = GpufmtBufferReserve(plans[0]->backend, GPUFMT_NORM_PARTS * sizeof(PetscScalar), &parts);
  if (!ierr) ierr = Largest(n, blocks, plans, &sums, &parts, largest);
  PetscCall(GpufmtBufferFree(&parts));
  PetscCall(GpufmtBufferFree(&sums));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the sums of magnitudes in all columns, on the host */
PetscErrorCode GpufmtNormColumnSums(Mat A, const GpufmtScaleAndAdd *plan, PetscScalar sums[])
{
  const size_t   bytes                   = (size_t)A->cmap->n * sizeof(PetscScalar);
  void          *slots[GPUFMT_NUM_SLOTS] = {NULL};
  GpufmtBuffer   numbers                 = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (!A->cmap->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtBufferReserve(plan->backend, bytes, &numbers));
  slots[GPUFMT_SLOT_RESULT] = numbers.array;
  ierr                      = Run(A, plan, slots, GpufmtEntries(A));
  if (!ierr) ierr = GpufmtBufferToHost(&numbers, bytes, sums);
  PetscCall(GpufmtBufferFree(&numbers));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatNorm_SeqAIJGpufmt(Mat A, NormType type, PetscReal *norm)
{
  const GpufmtScaleAndAdd *plan;

  PetscFunctionBegin;
  PetscCall(GpufmtNormPlan(A, type, &plan));
  if (!plan) PetscCall((*gpufmt_seq_parent->norm)(A, type, norm));
  else if (type == NORM_FROBENIUS) {
    PetscCall(GpufmtNormSquares(A, plan, norm));
    *norm = PetscSqrtReal(*norm);
  } else PetscCall(GpufmtNormLargest(1, &A, &plan, type == NORM_1 ? A->cmap->n : A->rmap->n, norm));
  if (plan) PetscCall(GpufmtNormDrop(A, type));
  PetscFunctionReturn(PETSC_SUCCESS);
}
