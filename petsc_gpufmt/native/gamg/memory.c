/* What a level takes of memory, for -info. */
#include "gamg/gamg.h"

static const double megabyte = 1e6;

/* bytes of this rank's part of a matrix of ours, as CSR */
static PetscErrorCode CsrBytes(Mat A, double *bytes)
{
  MatInfo info;

  PetscFunctionBegin;
  PetscCall(MatGetInfo(A, MAT_LOCAL, &info));
  *bytes = (double)(A->rmap->n + 1) * sizeof(PetscInt) + info.nz_used * (sizeof(PetscInt) + sizeof(PetscScalar));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* bytes of the formats in which it is stored so far */
static PetscErrorCode StoredBytes(Mat A, double *bytes)
{
  Mat blocks[2];

  PetscFunctionBegin;
  *bytes = 0;
  PetscCall(GpufmtGamgBlocks(A, blocks));
  for (int k = 0; k < 2; k++) {
    const Mat_Gpufmt *gpufmt = blocks[k] ? GpufmtSeqData(blocks[k]) : NULL;

    for (int b = 0; gpufmt && b < GPUFMT_NUM_BACKENDS; b++)
      for (int t = 0; t < 2; t++)
        if (GpufmtLeaseHolds(&gpufmt->stores[b][t].lease)) *bytes += (double)gpufmt->stores[b][t].answer.bytes_held;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A level from the finest: its matrix, its prolongator, and the matrix of the next level, which is their product. */
PetscErrorCode GpufmtGamgTellMemory(PC pc, PetscInt number, Mat A, Mat P, Mat coarse)
{
  const Mat            matrices[3]  = {A, P, coarse};
  char                 product[120] = "";
  double               csr[3], stored;
  const GpufmtProduct *galerkin;
  PetscBool            told;

  PetscFunctionBegin;
  PetscCall(PetscInfoEnabled(PC_CLASSID, &told));
  if (!told || !GpufmtFormatFind(((PetscObject)A)->type_name)) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < 3; k++) PetscCall(CsrBytes(matrices[k], &csr[k]));
  PetscCall(StoredBytes(A, &stored));
  galerkin = GpufmtProductOf(coarse);
  if (galerkin)
    PetscCall(PetscSNPrintf(product, sizeof(product), "; the product takes %.3f MB at most as predicted, and keeps %.3f MB",
                            (double)galerkin->answer.bytes_needed / megabyte, (double)galerkin->answer.bytes_held / megabyte));
  PetscCall(PetscInfo(pc,
                      "level %" PetscInt_FMT
                      ": the matrix takes %.3f MB as CSR and %.3f MB as stored so far, the prolongator %.3f MB, the next matrix %.3f MB%s\n",
                      number, csr[0] / megabyte, stored / megabyte, csr[1] / megabyte, csr[2] / megabyte, product));
  PetscFunctionReturn(PETSC_SUCCESS);
}
