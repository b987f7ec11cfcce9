/* The diagonal: on the device where the vector and the matrix are there. One that has only arrays on the host is not stored for its diagonal
   alone. */
#include "matrix/matrix.h"

PetscErrorCode MatGetDiagonal_SeqAIJGpufmt(Mat A, Vec v)
{
  Mat_Gpufmt    *gpufmt = GpufmtSeqData(A);
  GpufmtStore   *store;
  GpufmtManaged *managed;
  void          *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream;
  PetscScalar   *array;
  PetscMemType   memtype   = PETSC_MEMTYPE_HOST;
  PetscBool      on_device = PETSC_FALSE;
  PetscErrorCode ierr      = PETSC_SUCCESS;

  PetscFunctionBegin;
#if PetscDefined(HAVE_CUDA)
  if (gpufmt && !A->boundtocpu && !v->boundtocpu && !A->factortype && A->rmap->n == v->map->n && GpufmtDeviceUsable())
    PetscCall(PetscObjectTypeCompareAny((PetscObject)v, &on_device, VECSEQCUDA, VECMPICUDA, VECCUDA, ""));
#endif
  if (on_device && !GpufmtLeaseHolds(&gpufmt->stores[GPUFMT_BACKEND_CUDA][0].lease)) { /* such as the graph in GAMG, which is never multiplied */
    PetscCall(GpufmtManagedOf(A, &managed));
    on_device = (PetscBool)(managed != NULL);
  }
  if (!on_device) {
    PetscCall((*gpufmt_seq_parent->getdiagonal)(A, v));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtStoreGet(A, gpufmt, GPUFMT_BACKEND_CUDA, PETSC_FALSE, &store));
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(VecGetArrayWriteAndMemType(v, &array, &memtype));
  slots[GPUFMT_SLOT_Z] = array;
  ierr = GpufmtReplay(&store->answer.plans[GPUFMT_PLAN_DIAGONAL], GPUFMT_BACKEND_CUDA, slots, stream); /* a failure leaves the vector usable */
  PetscCall(VecRestoreArrayWriteAndMemType(v, &array));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
