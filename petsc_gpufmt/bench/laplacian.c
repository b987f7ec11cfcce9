static char help
  [] = "The Laplacian of a cube by a stencil of 7 or 27 points, from values at coordinates. Prints one line of JSON with the seconds of its steps.\n\
  -n <points>: in each direction (default 16)\n\
  -stencil <7 or 27> (default 7)\n\
  -new_values <times>: new values, and a product with them, so often (default 0)\n\
  -set_ups <times>: so many solvers are set up and solve, one after another (default 0)\n\
  -mat_type, -vec_type, -ksp_type, -pc_type, -dll_append and every other option of PETSc.\n\n";

#include <petscksp.h>
#include <petsctime.h>
#include <stdlib.h>

enum { MOST_STEPS = 64, NAME_LENGTH = 32 };

static struct {
  char   name[NAME_LENGTH];
  double seconds;
} steps[MOST_STEPS];
static int nsteps = 0;

static PetscErrorCode AddStep(const char *name, PetscInt number, double seconds)
{
  PetscFunctionBeginUser;
  PetscCheck(nsteps < MOST_STEPS, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE, "There are more than %d steps: choose fewer -set_ups", MOST_STEPS);
  if (number) PetscCall(PetscSNPrintf(steps[nsteps].name, NAME_LENGTH, "%s%" PetscInt_FMT, name, number));
  else PetscCall(PetscStrncpy(steps[nsteps].name, name, NAME_LENGTH));
  steps[nsteps++].seconds = seconds;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double Now(void)
{
  PetscLogDouble seconds;

  PetscCallContinue(PetscTime(&seconds));
  return seconds;
}

/* Entries of rows first <= i < last, row by row in the order of their columns: how many there are, and where arrays are given, what they are.
   Adds the squares of the sums of rows to `squares`. */
static PetscCount Entries(PetscInt n, PetscInt stencil, const PetscInt range[2], PetscInt rows[], PetscInt columns[], PetscScalar values[],
                          double *squares)
{
  PetscCount count = 0;

  for (PetscInt i = range[0]; i < range[1]; i++) {
    const PetscInt at[3] = {i % n, i / n % n, i / n / n};
    PetscInt       sum   = stencil;

    for (PetscInt z = -1; z <= 1; z++) {
      for (PetscInt y = -1; y <= 1; y++) {
        for (PetscInt x = -1; x <= 1; x++) {
          const PetscInt distance = PetscAbsInt(x) + PetscAbsInt(y) + PetscAbsInt(z);

          if (stencil == 7 && distance > 1) continue;
          if (at[0] + x < 0 || at[0] + x >= n || at[1] + y < 0 || at[1] + y >= n || at[2] + z < 0 || at[2] + z >= n) continue;
          sum--;
          if (rows) {
            rows[count]    = i;
            columns[count] = i + x + n * (y + n * z);
            values[count]  = distance ? -1.0 : (PetscScalar)(stencil - 1);
          }
          count++;
        }
      }
    }
    *squares += (double)(sum * sum);
  }
  return count;
}

/* A with its pattern, and its values in a vector; `norm` is that of A 1 */
static PetscErrorCode Assemble(Mat A, PetscInt n, PetscInt stencil, Vec *values, double *norm)
{
  double       squares = 0.0, unused = 0.0, start;
  PetscInt     range[2], nvalues, *rows, *columns;
  PetscScalar *array;
  PetscCount   count;

  PetscFunctionBeginUser;
  PetscCall(MatGetOwnershipRange(A, &range[0], &range[1]));
  count = Entries(n, stencil, range, NULL, NULL, NULL, &unused);
  PetscCall(PetscIntCast(count, &nvalues));
  PetscCall(PetscMalloc2(count, &rows, count, &columns));
  PetscCall(VecCreate(PETSC_COMM_WORLD, values));
  PetscCall(VecSetSizes(*values, nvalues, PETSC_DETERMINE));
  PetscCall(VecSetFromOptions(*values));
  PetscCall(VecGetArrayWrite(*values, &array));
  (void)Entries(n, stencil, range, rows, columns, array, &squares);
  PetscCall(VecRestoreArrayWrite(*values, &array));
  start = Now();
  PetscCall(MatSetPreallocationCOO(A, count, rows, columns));
  PetscCall(AddStep("coordinates", 0, Now() - start));
  PetscCall(PetscFree2(rows, columns));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &squares, 1, MPI_DOUBLE, MPI_SUM, PETSC_COMM_WORLD));
  *norm = PetscSqrtReal((PetscReal)squares);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What was queued on a device until here is over. A dot product, since a norm is remembered, and scaled with its vector. */
static PetscErrorCode Await(Vec v)
{
  PetscScalar unused;

  PetscFunctionBeginUser;
  PetscCall(VecDot(v, v, &unused));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetValues(Mat A, Vec values)
{
  const PetscScalar *array;
  PetscMemType       where;

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayReadAndMemType(values, &array, &where));
  PetscCall(MatSetValuesCOO(A, array, INSERT_VALUES));
  PetscCall(VecRestoreArrayReadAndMemType(values, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = A x and its norm, for which a device is waited for */
static PetscErrorCode Multiply(Mat A, Vec x, Vec y, double expected)
{
  PetscReal norm;

  PetscFunctionBeginUser;
  PetscCall(MatMult(A, x, y));
  PetscCall(VecNorm(y, NORM_2, &norm));
  PetscCheck(PetscAbsReal(norm - (PetscReal)expected) < 1e-4 * expected, PETSC_COMM_WORLD, PETSC_ERR_PLIB,
             "The product is wrong: its norm is %g instead of %g", (double)norm, expected);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int Compare(const void *a, const void *b)
{
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double Median(double seconds[], PetscInt n)
{
  qsort(seconds, (size_t)n, sizeof(*seconds), Compare);
  return (seconds[(n - 1) / 2] + seconds[n / 2]) / 2;
}

/* Values twice as large and half as large in turn, each time with two products: what the first takes beyond the second is for the values. */
static PetscErrorCode ChangeValues(Mat A, Vec values, Vec x, Vec y, PetscInt times, double norm)
{
  double *changed, *unchanged, start;

  PetscFunctionBeginUser;
  PetscCall(PetscMalloc2(times, &changed, times, &unchanged));
  for (PetscInt k = 0; k < times; k++) {
    const double expected = k % 2 ? norm : 2.0 * norm;

    PetscCall(VecScale(values, k % 2 ? 0.5 : 2.0));
    PetscCall(Await(values));
    start = Now();
    PetscCall(SetValues(A, values));
    PetscCall(Multiply(A, x, y, expected));
    changed[k] = Now() - start;
    start      = Now();
    PetscCall(Multiply(A, x, y, expected));
    unchanged[k] = Now() - start;
  }
  PetscCall(AddStep("values_and_mult", 0, Median(changed, times)));
  PetscCall(AddStep("mult", 0, Median(unchanged, times)));
  PetscCall(PetscFree2(changed, unchanged));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode AddEvent(const char *event, const char *name, PetscInt number, PetscLogStage stage)
{
  PetscEventPerfInfo info;
  PetscLogEvent      id;

  PetscFunctionBeginUser;
  PetscCall(PetscLogEventGetId(event, &id));
  PetscCall(PetscLogEventGetPerfInfo(stage, id, &info)); /* 0 without -log_view */
  PetscCall(AddStep(name, number, info.time));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a solver of its own, in a stage of its own */
static PetscErrorCode SetUpAndSolve(Mat A, Vec b, Vec x, PetscInt number)
{
  char          name[NAME_LENGTH];
  PetscLogStage stage;
  double        start;
  KSP           ksp;

  PetscFunctionBeginUser;
  PetscCall(PetscSNPrintf(name, sizeof(name), "set-up %" PetscInt_FMT, number));
  PetscCall(PetscLogStageRegister(name, &stage));
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetFromOptions(ksp));
  PetscCall(PetscLogStagePush(stage));
  start = Now();
  PetscCall(KSPSetUp(ksp));
  PetscCall(Await(b));
  PetscCall(AddStep("set_up", number, Now() - start));
  start = Now();
  PetscCall(KSPSolve(ksp, b, x));
  PetscCall(Await(x));
  PetscCall(AddStep("solve", number, Now() - start));
  PetscCall(PetscLogStagePop());
  PetscCall(AddEvent("MatPtAPSymbolic", "symbolic", number, stage));
  PetscCall(AddEvent("MatPtAPNumeric", "numeric", number, stage));
  PetscCall(KSPDestroy(&ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  PetscInt    n = 16, stencil = 7, new_values = 0, set_ups = 0;
  PetscMPIInt rank;
  double      norm, start;
  Vec         values, x, y;
  Mat         A;

  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-stencil", &stencil, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-new_values", &new_values, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-set_ups", &set_ups, NULL));
  PetscCheck(n > 0, PETSC_COMM_WORLD, PETSC_ERR_ARG_OUTOFRANGE, "-n %" PetscInt_FMT ": give at least 1", n);
  PetscCheck(new_values >= 0, PETSC_COMM_WORLD, PETSC_ERR_ARG_OUTOFRANGE, "-new_values %" PetscInt_FMT ": not below 0", new_values);
  PetscCheck(stencil == 7 || stencil == 27, PETSC_COMM_WORLD, PETSC_ERR_ARG_OUTOFRANGE, "-stencil %" PetscInt_FMT ": choose 7 or 27", stencil);
  PetscCall(MatCreate(PETSC_COMM_WORLD, &A));
  PetscCall(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, n * n * n, n * n * n));
  PetscCall(MatSetFromOptions(A));
  PetscCall(Assemble(A, n, stencil, &values, &norm));
  PetscCall(MatCreateVecs(A, &x, &y));
  PetscCall(VecSet(x, 1.0));
  start = Now();
  PetscCall(SetValues(A, values));
  PetscCall(Multiply(A, x, y, norm));
  PetscCall(AddStep("first_product", 0, Now() - start));
  if (new_values) PetscCall(ChangeValues(A, values, x, y, new_values, norm));
  for (PetscInt k = 1; k <= set_ups; k++) {
    PetscCall(VecSet(x, 0.0));
    PetscCall(SetUpAndSolve(A, y, x, k));
  }
  PetscCall(VecDestroy(&values));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&y));
  PetscCall(MatDestroy(&A));
  PetscCall(PetscFinalize());
  for (int k = 0; k < nsteps && !rank; k++) printf("%s\"%s\": %.6f%s", k ? ", " : "{", steps[k].name, steps[k].seconds, k == nsteps - 1 ? "}\n" : "");
  return 0;
}
