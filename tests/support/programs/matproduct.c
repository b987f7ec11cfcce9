/* Sparse products by MatProductCreate(), -product AB, AtB, ABt, PtAP, RARt or ABC, of matrices of -mat_type, which then become ones of
   -retype. Prints the errors against products of type aij, and how many symbolic phases there were of ours. */
#include <petscmat.h>

#define N 12

/* entries (i, j) where (3 i + 5 j + shift) mod 4 is 0, of values that `seed` changes */
static PetscErrorCode Fill(Mat A, PetscInt shift, PetscInt seed)
{
  PetscFunctionBeginUser;
  for (PetscInt i = 0; i < N; i++)
    for (PetscInt j = 0; j < N; j++)
      if ((3 * i + 5 * j + shift) % 4 == 0) PetscCall(MatSetValue(A, i, j, 1.0 + (7 * i + j * seed) % 5, INSERT_VALUES));
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create(Mat *A, PetscInt shift, PetscInt seed)
{
  PetscFunctionBeginUser;
  PetscCall(MatCreate(PETSC_COMM_SELF, A));
  PetscCall(MatSetSizes(*A, N, N, N, N));
  PetscCall(MatSetFromOptions(*A));
  PetscCall(MatSetUp(*A));
  PetscCall(Fill(*A, shift, seed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Start(Mat operands[3], MatProductType type, const char algorithm[], const char prefix[], Mat *C)
{
  PetscFunctionBeginUser;
  PetscCall(MatProductCreate(operands[0], operands[1], type == MATPRODUCT_ABC ? operands[2] : NULL, C));
  PetscCall(MatSetOptionsPrefix(*C, prefix));
  PetscCall(MatProductSetType(*C, type));
  if (algorithm[0]) PetscCall(MatProductSetAlgorithm(*C, algorithm));
  PetscCall(MatProductSetFromOptions(*C));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* against the product of type aij, whose options have another prefix */
static PetscErrorCode Report(const char what[], Mat operands[3], MatProductType type, Mat C)
{
  Mat       plain[3], D, E;
  PetscReal error;

  PetscFunctionBeginUser;
  for (int k = 0; k < 3; k++) PetscCall(MatConvert(operands[k], MATSEQAIJ, MAT_INITIAL_MATRIX, &plain[k]));
  PetscCall(Start(plain, type, "", "reference_", &D));
  PetscCall(MatProductSymbolic(D));
  PetscCall(MatProductNumeric(D));
  PetscCall(MatConvert(C, MATSEQAIJ, MAT_INITIAL_MATRIX, &E));
  PetscCall(MatAXPY(E, -1.0, D, DIFFERENT_NONZERO_PATTERN));
  PetscCall(MatNorm(E, NORM_INFINITY, &error));
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "%s %g\n", what, (double)error));
  PetscCall(MatDestroy(&D));
  PetscCall(MatDestroy(&E));
  for (int k = 0; k < 3; k++) PetscCall(MatDestroy(&plain[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode StructureOnly(Mat operands[3])
{
  Mat     G;
  MatType type;

  PetscFunctionBeginUser;
  PetscCall(MatProductCreate(operands[0], operands[1], NULL, &G));
  PetscCall(MatSetOption(G, MAT_STRUCTURE_ONLY, PETSC_TRUE));
  PetscCall(MatSetOptionsPrefix(G, "reference_"));
  PetscCall(MatProductSetType(G, MATPRODUCT_AB));
  PetscCall(MatProductSetFromOptions(G));
  PetscCall(MatProductSymbolic(G));
  PetscCall(MatGetType(G, &type));
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "structure only: %s\n", type));
  PetscCall(MatDestroy(&G));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  Mat                operands[3], others[3], C;
  MatProductType     type;
  PetscInt           product       = MATPRODUCT_AB;
  char               algorithm[64] = "", prefix[64] = "", retype[64] = MATSEQAIJ;
  PetscBool          structure_only = PETSC_FALSE;
  PetscLogEvent      event;
  PetscEventPerfInfo info;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
  PetscCall(PetscLogDefaultBegin());
  PetscCall(PetscOptionsGetEList(NULL, NULL, "-product", MatProductTypes, (PetscInt)MATPRODUCT_ABC + 1, &product, NULL));
  type = (MatProductType)product;
  PetscCall(PetscOptionsGetString(NULL, NULL, "-algorithm", algorithm, sizeof(algorithm), NULL));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-prefix", prefix, sizeof(prefix), NULL));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-retype", retype, sizeof(retype), NULL));
  PetscCall(PetscOptionsGetBool(NULL, NULL, "-structure_only", &structure_only, NULL));
  for (PetscInt k = 0; k < 3; k++) {
    PetscCall(Create(&operands[k], k, 1));
    PetscCall(Create(&others[k], k, 3));
  }
  if (structure_only) PetscCall(StructureOnly(operands));
  PetscCall(Start(operands, type, algorithm, prefix, &C));
  PetscCall(MatProductSymbolic(C));
  PetscCall(MatProductNumeric(C));
  PetscCall(Report("first", operands, type, C));
  PetscCall(Fill(operands[0], 0, 2));
  PetscCall(MatProductNumeric(C));
  PetscCall(Report("changed", operands, type, C));
  PetscCall(MatProductReplaceMats(others[0], others[1], type == MATPRODUCT_ABC ? others[2] : NULL, C));
  PetscCall(MatProductNumeric(C));
  PetscCall(Report("replaced", others, type, C));
  for (int k = 0; k < 3; k++) {
    PetscCall(MatConvert(operands[k], MATSEQAIJ, MAT_INPLACE_MATRIX, &operands[k]));
    PetscCall(MatConvert(operands[k], retype, MAT_INPLACE_MATRIX, &operands[k]));
  }
  PetscCall(MatProductReplaceMats(operands[0], operands[1], type == MATPRODUCT_ABC ? operands[2] : NULL, C));
  PetscCall(MatProductNumeric(C));
  PetscCall(Report("retyped", operands, type, C));
  PetscCall(MatProductReplaceMats(others[0], others[1], type == MATPRODUCT_ABC ? others[2] : NULL, C));
  PetscCall(MatProductNumeric(C));
  PetscCall(Report("returned", others, type, C));
  PetscCall(MatProductClear(C));
  PetscCall(MatScale(C, 0.5));
  PetscCall(MatScale(C, 2.0));
  PetscCall(Report("cleared", others, type, C));
  PetscCall(MatDestroy(&C));
  for (int k = 0; k < 3; k++) {
    PetscCall(MatDestroy(&operands[k]));
    PetscCall(MatDestroy(&others[k]));
  }
  PetscCall(PetscLogEventGetId("GpufmtSymbolic", &event));
  PetscCall(PetscLogEventGetPerfInfo(PETSC_DETERMINE, event, &info));
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "symbolic phases %d\n", info.count));
  PetscCall(PetscFinalize());
  return 0;
}
