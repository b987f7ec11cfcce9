/* One line about the stored format under MatView ::ascii_info and ::ascii_info_detail. */
#include "matrix/matrix.h"

/* what rank 0 says about its part; each line is marked, so that it can be found and left out */
static PetscErrorCode ViewLines(PetscViewer viewer, const char text[])
{
  PetscFunctionBegin;
  while (*text) {
    const size_t length = strcspn(text, "\n");

    PetscCall(PetscViewerASCIIPrintf(viewer, "    storage: %.*s\n", (int)length, text));
    text += length + (text[length] == '\n');
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* one line about the copy in single precision, where there is one; collective */
static PetscErrorCode ViewLow(Mat A, const Mat blocks[2], PetscViewer viewer)
{
  const Mat_Gpufmt *gpufmt = (const Mat_Gpufmt *)A->spptr;
  double            sums[] = {0, 0}; /* stores, bytes */

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    const Mat_Gpufmt *of_block = blocks[k] ? (const Mat_Gpufmt *)blocks[k]->spptr : NULL;

    for (int b = 0; of_block && b < GPUFMT_NUM_BACKENDS; b++) {
      const GpufmtStore *store = &of_block->low.stores[b];

      if (!GpufmtLeaseHolds(&store->lease)) continue;
      sums[0] += 1;
      sums[1] += (double)store->answer.bytes_held;
    }
  }
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, PetscObjectComm((PetscObject)A)));
  if (sums[0] > 0)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  storage: copy in single precision: %.0f bytes, format %s%s\n", sums[1], gpufmt->format->name,
                                     gpufmt->low.scaling[GPUFMT_BACKEND_HOST] || gpufmt->low.scaling[GPUFMT_BACKEND_CUDA]
                                       ? ", scaled by powers of two"
                                       : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A is the matrix that the user sees; its blocks are `diag` and, in parallel, `offdiag` */
PetscErrorCode GpufmtViewStorage(Mat A, Mat diag, Mat offdiag, PetscViewer viewer)
{
  const GpufmtFormat *format  = ((Mat_Gpufmt *)A->spptr)->format;
  const GpufmtHalo    halo    = ((Mat_Gpufmt *)A->spptr)->halo;
  const char         *summary = NULL, *detail = NULL;
  PetscLogDouble      sums[5] = {0}; /* nonzeros, stored, bytes, blocks stored on the host, on the device */
  PetscBool           ascii;
  PetscViewerFormat   viewer_format;
  Mat                 blocks[2] = {diag, offdiag};

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &ascii));
  if (!ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerGetFormat(viewer, &viewer_format));
  if (viewer_format != PETSC_VIEWER_ASCII_INFO && viewer_format != PETSC_VIEWER_ASCII_INFO_DETAIL) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < 2; k++) {
    Mat_Gpufmt *gpufmt  = blocks[k] ? (Mat_Gpufmt *)blocks[k]->spptr : NULL;
    PetscBool   counted = PETSC_FALSE; /* further stores of a block hold the same entries again */

    if (!gpufmt) continue; /* not assembled yet */
    for (int b = 0; b < GPUFMT_NUM_BACKENDS; b++)
      for (int t = 0; t < 2; t++) {
        const GpufmtStore *store = &gpufmt->stores[b][t];
        MatInfo            info;

        if (!GpufmtLeaseHolds(&store->lease)) continue;
        PetscCall(MatGetInfo(blocks[k], MAT_LOCAL, &info));
        if (!summary) {
          summary = store->answer.summary;
          detail  = store->answer.detail;
        }
        if (!counted) {
          sums[0] += info.nz_used;
          sums[1] += (PetscLogDouble)store->answer.nstored;
          counted = PETSC_TRUE;
        }
        sums[2] += (PetscLogDouble)store->answer.bytes_held;
        sums[3 + b] += 1;
      }
  }
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, 5, MPI_DOUBLE, MPI_SUM, PetscObjectComm((PetscObject)A)));
  if (sums[3] + sums[4] == 0) PetscCall(PetscViewerASCIIPrintf(viewer, "  storage: %s, not built yet (no product so far)\n", format->name));
  else
    PetscCall(PetscViewerASCIIPrintf(viewer, "  storage: %s on %s, %s, nonzeros=%.0f, stored=%.0f, fill ratio=%.4f, %.3f MB\n", format->name,
                                     sums[4] > 0 ? (sums[3] > 0 ? "device and host" : "device") : "host", summary ? summary : "empty on rank 0",
                                     sums[0], sums[1], sums[1] > 0 ? 1 - sums[0] / sums[1] : 0.0, sums[2] / 1e6));
  PetscCall(ViewLow(A, blocks, viewer));
  if (viewer_format == PETSC_VIEWER_ASCII_INFO_DETAIL && detail) PetscCall(ViewLines(viewer, detail));
  if (viewer_format == PETSC_VIEWER_ASCII_INFO_DETAIL && halo)
    PetscCall(PetscViewerASCIIPrintf(viewer, "    storage: halo exchange in mode %s\n", halo->mode->name));
  PetscFunctionReturn(PETSC_SUCCESS);
}
