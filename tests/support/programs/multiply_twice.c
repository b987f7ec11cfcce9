/* Multiplies a matrix of -mat_type with whatever Python is named by the environment, then with the one that the library was
   installed for. Prints the two error codes and the norm of the product. */
#include <petscmat.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
  Mat            A;
  Vec            x, z;
  PetscReal      norm;
  PetscErrorCode first, second;

  PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
  PetscCall(MatCreate(PETSC_COMM_SELF, &A));
  PetscCall(MatSetSizes(A, 16, 16, 16, 16));
  PetscCall(MatSetFromOptions(A));
  PetscCall(MatSetUp(A));
  for (PetscInt i = 0; i < 16; i++) PetscCall(MatSetValue(A, i, i, 3, INSERT_VALUES));
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatCreateVecs(A, &x, &z));
  PetscCall(VecSet(x, 1));
  first = MatMult(A, x, z);
  unsetenv("PETSC_GPUFMT_PYTHON");
  unsetenv("PYTHONHOME");
  second = MatMult(A, x, z);
  PetscCall(VecNorm(z, NORM_2, &norm));
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "first %d second %d norm %g\n", (int)first, (int)second, (double)norm));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&z));
  PetscCall(MatDestroy(&A));
  PetscCall(PetscFinalize());
  return 0;
}
