/* Values of a level's matrix that the host has assembled: they go to the device while aggregates are found, which are made of the pattern. */
#include "gamg/gamg.h"

/* A, or the blocks of a parallel matrix; the second one is NULL if there is none */
PetscErrorCode GpufmtGamgBlocks(Mat A, Mat blocks[2])
{
  PetscBool parallel;

  PetscFunctionBegin;
  blocks[0] = A;
  blocks[1] = NULL;
  PetscCall(PetscStrbeginswith(((PetscObject)A)->type_name, MATMPIAIJ, &parallel));
  if (parallel) PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Send(Mat A, PetscBool now)
{
  Mat        blocks[2], ours[2];
  PetscCount counts[2];
  void      *stream;
  int        n = 0;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtGamgBlocks(A, blocks));
  for (int k = 0; k < 2; k++) {
    if (!blocks[k] || !GpufmtArraysOf(blocks[k])) continue;
    ours[n]     = blocks[k];
    counts[n++] = (PetscCount)GpufmtEntries(blocks[k]);
  }
  if (!now) PetscCall(GpufmtDeviceValuesBegin(n, ours, counts, stream));
  for (int k = 0; k < n && now; k++) PetscCall(GpufmtDeviceValuesUpdate(&GpufmtArraysOf(ours[k])->values, ours[k], counts[k], stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Begins to send the values of the current level, if they will be wanted on the device. `now`: they are there when this returns. That is before stores are
   made, which would else send them and keep none: smoothing and the next level's matrix want them. One rank may fail alone. */
PetscErrorCode GpufmtGamgSendValues(PC pc, const GpufmtGamg *gamg, Mat A, PetscBool now)
{
  PetscFunctionBegin;
  if (GpufmtGamgAggOf(pc)->nsmooths > 0 && gamg->levels[GpufmtGamgOf(pc)->current_level].ours && gamg->backend == GPUFMT_BACKEND_CUDA)
    PetscCall(GpufmtGamgAgree(pc, Send(A, now)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
