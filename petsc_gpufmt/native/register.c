/* Beginning and end: registration by -dll_append, by import petsc_gpufmt, or by PetscGpuFmtInitialize() from C and Fortran; PETSc ends, or Python. */
#include "petsc_gpufmt.h"
#include "gamg/gamg.h"
#include "halo/halo.h"
#include "ksp/ksp.h"
#include "parallel/parallel.h"

static PetscBool registered = PETSC_FALSE;

#define GPUFMT_FORMAT(name) \
  static PetscErrorCode MatCreate_Seq_##name(Mat A) \
  { \
    PetscFunctionBegin; \
    PetscCall(MatSetType(A, MATSEQAIJ)); \
    PetscCall(MatConvert_SeqAIJ_SeqAIJGpufmt(A, "seqaij" #name, MAT_INPLACE_MATRIX, &A)); \
    PetscFunctionReturn(PETSC_SUCCESS); \
  } \
  static PetscErrorCode MatCreate_MPI_##name(Mat A) \
  { \
    PetscFunctionBegin; \
    PetscCall(MatSetType(A, MATMPIAIJ)); \
    PetscCall(MatConvert_MPIAIJ_MPIAIJGpufmt(A, "mpiaij" #name, MAT_INPLACE_MATRIX, &A)); \
    PetscFunctionReturn(PETSC_SUCCESS); \
  }
#include "formats.def"

static PetscErrorCode Finalize(void)
{
  PetscFunctionBegin;
  GpufmtStartEnd();
  GpufmtKernelsEnd();
  GpufmtHaloThreadEnd();
  PetscCall(GpufmtLeasesForget(PETSC_TRUE)); /* matrices that the user leaked: their arrays must go while the device context lives */
  PetscCall(GpufmtArenasFree());
  PetscCall(GpufmtManagedForget());
  PetscCall(GpufmtDeviceTrim());
  GpufmtPlannerFreePool();
  PetscCall(GpufmtUploadFinalize());
  GpufmtParentsForget();
  PetscCall(GpufmtCitationsReset());
  registered = PETSC_FALSE; /* PETSc has dropped its list of types: a later PetscInitialize() needs a new registration */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The structs of PETSc's private headers are those of one minor release and of one configuration: a wheel from pip's cache may be of another. */
static PetscErrorCode CheckVersion(void)
{
  const int   built[] = {PETSC_VERSION_MAJOR, PETSC_VERSION_MINOR, 8 * (int)sizeof(PetscInt), 8 * (int)sizeof(PetscScalar), PetscDefined(HAVE_CUDA)};
  const char *cuda[] = {"without", "with"}, *scalars[] = {"real", "complex"};
  PetscInt    major, minor, subminor;
  PetscBool   has_cuda, known;
  PetscDataType scalar;
  size_t        index_bytes, scalar_bytes;

  PetscFunctionBegin;
  PetscCall(PetscGetVersionNumber(&major, &minor, &subminor, NULL));
  PetscCall(PetscDataTypeGetSize(PETSC_INT, &index_bytes));
  PetscCall(PetscDataTypeFromString("scalar", &scalar, &known));
  PetscCall(PetscDataTypeGetSize(scalar, &scalar_bytes));
  PetscCall(PetscHasExternalPackage("cuda", &has_cuda));
  PetscCheck(
    major == built[0] && minor == built[1] && 8 * (int)index_bytes == built[2] && 8 * (int)scalar_bytes == built[3] && (int)has_cuda == built[4] &&
      (scalar == PETSC_COMPLEX) == PetscDefined(USE_COMPLEX),
    PETSC_COMM_SELF, PETSC_ERR_SUP,
    "petsc_gpufmt was built for PETSc %d.%d with indices of %d bits, %s scalars of %d bits, %s CUDA, and this is PETSc %d.%d with %d, %s %d, %s: "
    "reinstall petsc_gpufmt with this PETSc, by pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps",
    built[0], built[1], built[2], scalars[PetscDefined(USE_COMPLEX)], built[3], cuda[built[4]], (int)major, (int)minor, 8 * (int)index_bytes,
    scalars[scalar == PETSC_COMPLEX], 8 * (int)scalar_bytes, cuda[has_cuda]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PetscGpuFmtInitialize(void)
{
  PetscClassId class_id;

  PetscFunctionBegin;
  if (registered) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CheckVersion());
  registered = PETSC_TRUE;
  GpufmtMatrixSetUp((GpufmtProductOps){.seq     = MatProductSetFromOptions_SeqAIJGpufmt,
                                       .mpi     = MatProductSetFromOptions_MPIAIJGpufmt,
                                       .anytype = MatProductSetFromOptions_Gpufmt});
#define GPUFMT_FORMAT(name) \
  PetscCall(MatRegister("seqaij" #name, MatCreate_Seq_##name)); \
  PetscCall(MatRegister("mpiaij" #name, MatCreate_MPI_##name)); \
  PetscCall(MatRegisterRootName("aij" #name, "seqaij" #name, "mpiaij" #name)); /* the first root name is the one PETSc answers with */ \
  PetscCall(MatRegisterRootName(#name, "seqaij" #name, "mpiaij" #name)); \
  PetscCall(MatSeqAIJRegister("seqaij" #name, MatConvert_SeqAIJ_SeqAIJGpufmt));
#include "formats.def"
  PetscCall(PetscClassIdRegister("Storage formats", &class_id));
  PetscCall(PetscLogEventRegister("GpufmtStart", class_id, &GPUFMT_Start));
  PetscCall(PetscLogEventRegister("GpufmtPlan", class_id, &GPUFMT_Plan));
  PetscCall(PetscLogEventRegister("GpufmtCompile", class_id, &GPUFMT_Compile));
  PetscCall(PetscLogEventRegister("GpufmtRefresh", class_id, &GPUFMT_Refresh));
  PetscCall(PetscLogEventRegister("GpufmtSymbolic", class_id, &GPUFMT_Symbolic));
  PetscCall(GpufmtInterpolationSetUp());
  PetscCall(GpufmtKspSetUp());
  PetscCall(GpufmtGamgSetUp());
  PetscCall(PetscRegisterFinalize(Finalize));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what -dll_append calls; the name follows from the file name libpetscgpufmt.so */
PETSC_EXTERN PetscErrorCode PetscDLLibraryRegister_petscgpufmt(void)
{
  return PetscGpuFmtInitialize();
}

/* called when Python ends: it frees all its arrays, so nothing of a plan may be touched from now on */
PETSC_EXTERN void GpufmtForgetPlanner(void)
{
  GpufmtPlannerEnd();
  (void)GpufmtLeasesForget(PETSC_FALSE);
}

/* Fortran, with the usual name manglings */
#if PetscDefined(HAVE_FORTRAN_CAPS)
  #define petscgpufmtinitialize_ PETSCGPUFMTINITIALIZE
#elif !PetscDefined(HAVE_FORTRAN_UNDERSCORE) && PetscDefined(HAVE_FORTRAN)
  #define petscgpufmtinitialize_ petscgpufmtinitialize
#endif
PETSC_EXTERN void petscgpufmtinitialize_(PetscErrorCode *ierr)
{
  *ierr = PetscGpuFmtInitialize();
}

/* For `import petsc_gpufmt`: where PETSc has not begun, PetscInitialize() is to load this library, with options from whoever calls it;
   PetscOptionsSetValue() may come before. petsc4py's handler of errors would keep the message to itself. Where a matrix has begun to start Python,
   the types are known. */
PETSC_EXTERN PetscErrorCode GpufmtRegister(const char library[])
{
  PetscErrorCode ierr;

  if (GpufmtStartIsHere()) return PETSC_SUCCESS;
  if (!PetscInitializeCalled) return PetscOptionsSetValue(NULL, "-dll_append", library);
  PetscFunctionBegin;
  PetscCall(PetscPushErrorHandler(PetscTraceBackErrorHandler, NULL));
  ierr = PetscGpuFmtInitialize();
  PetscCall(PetscPopErrorHandler());
  PetscFunctionReturn(ierr);
}
