static char
  help[] = "The first products of a program, with the tridiagonal matrix (-1, 2, -1). Prints one line of JSON with the seconds of its steps.\n\
  -n <rows>: rows and columns (default 1000)\n\
  -assemble_for <seconds>: insert all entries again and again for so long before the first product (default 0)\n\
  -mat_type, -dll_append and every other option of PETSc.\n\
GPUFMT_BENCH_START in the environment: when the process was started, in seconds since 1970.\n\n";

#include <petscmat.h>
#include <stdlib.h>
#include <time.h>

enum { LOAD, INITIALIZE, CREATE, ASSEMBLE, VECTORS, MULT1, MULT2, FINALIZE, STEPS };

static const char *const names[STEPS] = {"load", "initialize", "create", "assemble", "vectors", "mult1", "mult2", "finalize"};

static double Now(void)
{
  struct timespec time;

  clock_gettime(CLOCK_REALTIME, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static PetscErrorCode Insert(Mat A)
{
  PetscInt n, first, last;

  PetscFunctionBeginUser;
  PetscCall(MatGetSize(A, &n, NULL));
  PetscCall(MatGetOwnershipRange(A, &first, &last));
  for (PetscInt i = first; i < last; i++) {
    const PetscScalar values[]  = {-1.0, 2.0, -1.0};
    const PetscInt    columns[] = {i - 1, i, i + 1}; /* -1 is left out */

    PetscCall(MatSetValues(A, 1, &i, i + 1 < n ? 3 : 2, columns, values, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = A x and its norm, for which a device is waited for; x is 1, so only the first and the last row give something */
static PetscErrorCode Multiply(Mat A, Vec x, Vec y)
{
  PetscReal norm, expected;
  PetscInt  n;

  PetscFunctionBeginUser;
  PetscCall(MatGetSize(A, &n, NULL));
  expected = n == 1 ? 2.0 : PetscSqrtReal(2.0);
  PetscCall(MatMult(A, x, y));
  PetscCall(VecNorm(y, NORM_2, &norm));
  PetscCheck(PetscAbsReal(norm - expected) < 1e-4, PETSC_COMM_WORLD, PETSC_ERR_PLIB, "The product is wrong: its norm is %g instead of %g",
             (double)norm, (double)expected);
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  const char *started = getenv("GPUFMT_BENCH_START");
  double      before, at[STEPS]; /* the end of each step */
  PetscInt    n            = 1000;
  PetscReal   assemble_for = 0.0;
  PetscMPIInt rank;
  Mat         A;
  Vec         x, y;

  at[LOAD] = Now();
  before   = started ? atof(started) : at[LOAD];
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  at[INITIALIZE] = Now();
  PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-assemble_for", &assemble_for, NULL));
  PetscCall(MatCreate(PETSC_COMM_WORLD, &A));
  PetscCall(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, n, n));
  PetscCall(MatSetFromOptions(A));
  PetscCall(MatSeqAIJSetPreallocation(A, 3, NULL));
  PetscCall(MatMPIAIJSetPreallocation(A, 3, NULL, 1, NULL));
  at[CREATE] = Now();
  do {
    PetscCall(Insert(A));
    at[ASSEMBLE] = Now();
  } while (at[ASSEMBLE] - at[CREATE] < (double)assemble_for);
  PetscCall(MatCreateVecs(A, &x, &y));
  PetscCall(VecSet(x, 1.0));
  at[VECTORS] = Now();
  PetscCall(Multiply(A, x, y));
  at[MULT1] = Now();
  PetscCall(Multiply(A, x, y));
  at[MULT2] = Now();
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&y));
  PetscCall(MatDestroy(&A));
  PetscCall(PetscFinalize());
  at[FINALIZE] = Now();
  for (int k = 0; k < STEPS && !rank; k++) {
    printf("%s\"%s\": %.6f%s", k ? ", " : "{", names[k], at[k] - before, k == STEPS - 1 ? "}\n" : "");
    before = at[k];
  }
  return 0;
}
