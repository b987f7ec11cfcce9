static char help[] = "Poisson's equation -div(grad u) = f in the unit square, u = 0 on its boundary, five-point differences.\n\
  -n <points>: interior points in each direction (default 64); every other option is PETSc's, for example\n\
  mpiexec -n 2 ./poisson2d -n 200 -mat_type pjds -ksp_type cg -pc_type gamg -ksp_view\n\n";

#include <petscksp.h>
#if defined(USE_PETSC_GPUFMT)
  #include <petsc_gpufmt.h>
#endif

/* The matrix, scaled by h^2: 4 on the diagonal, -1 for each neighbour inside the square. */
static PetscErrorCode AssembleMatrix(PetscInt n, Mat *A)
{
  PetscInt first, last;

  PetscFunctionBeginUser;
  PetscCall(MatCreate(PETSC_COMM_WORLD, A));
  PetscCall(MatSetSizes(*A, PETSC_DECIDE, PETSC_DECIDE, n * n, n * n));
  PetscCall(MatSetFromOptions(*A));
  PetscCall(MatSetUp(*A));
  PetscCall(MatGetOwnershipRange(*A, &first, &last));
  for (PetscInt row = first; row < last; row++) {
    const PetscInt i = row % n, j    = row / n;
    PetscInt       columns[5], count = 0;
    PetscScalar    values[5];

    columns[count]  = row;
    values[count++] = 4.0;
    if (i > 0) columns[count] = row - 1, values[count++] = -1.0;
    if (i < n - 1) columns[count] = row + 1, values[count++] = -1.0;
    if (j > 0) columns[count] = row - n, values[count++] = -1.0;
    if (j < n - 1) columns[count] = row + n, values[count++] = -1.0;
    PetscCall(MatSetValues(*A, 1, &row, count, columns, values, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(*A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The solution sin(pi x) sin(pi y) at the grid points. */
static PetscErrorCode FillSolution(PetscInt n, Vec u)
{
  PetscInt     first, last;
  PetscScalar *values;

  PetscFunctionBeginUser;
  PetscCall(VecGetOwnershipRange(u, &first, &last));
  PetscCall(VecGetArrayWrite(u, &values));
  for (PetscInt row = first; row < last; row++) {
    const PetscReal x = (PetscReal)(row % n + 1) / (PetscReal)(n + 1), y = (PetscReal)(row / n + 1) / (PetscReal)(n + 1);

    values[row - first] = PetscSinReal(PETSC_PI * x) * PetscSinReal(PETSC_PI * y);
  }
  PetscCall(VecRestoreArrayWrite(u, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  PetscInt  n = 64, iterations;
  PetscReal error;
  Mat       A;
  Vec       u, b, x;
  KSP       ksp;
  MatType   type;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
#if defined(USE_PETSC_GPUFMT)
  PetscCall(PetscGpuFmtInitialize());
#endif
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCheck(n > 0, PETSC_COMM_WORLD, PETSC_ERR_ARG_OUTOFRANGE, "-n %" PetscInt_FMT " must be positive", n);

  PetscCall(AssembleMatrix(n, &A));
  PetscCall(MatCreateVecs(A, &x, &b));
  PetscCall(VecDuplicate(x, &u));
  PetscCall(FillSolution(n, u));
  /* h^2 f, with f = 2 pi^2 u */
  PetscCall(VecAXPBY(b, 2.0 * PETSC_PI * PETSC_PI / ((PetscReal)(n + 1) * (PetscReal)(n + 1)), 0.0, u));

  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_CURRENT, PETSC_CURRENT, PETSC_CURRENT));
  PetscCall(KSPSetErrorIfNotConverged(ksp, PETSC_TRUE));
  PetscCall(KSPSetFromOptions(ksp));
  PetscCall(KSPSolve(ksp, b, x));

  PetscCall(KSPGetIterationNumber(ksp, &iterations));
  PetscCall(MatGetType(A, &type));
  PetscCall(VecAXPY(x, -1.0, u));
  PetscCall(VecNorm(x, NORM_INFINITY, &error));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "matrix type %s, iterations %" PetscInt_FMT ", error %.6e\n", type, iterations, (double)error));

  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&u));
  PetscCall(VecDestroy(&b));
  PetscCall(VecDestroy(&x));
  PetscCall(MatDestroy(&A));
  PetscCall(PetscFinalize());
  return 0;
}
