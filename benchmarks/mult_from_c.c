static char help[] = "Times MatMult() called from C, one rank. Prints one line of JSON.\n\
  -stencil <7 or 27>, -n <points>: stencil on n^3 grid points (default 7, 50)\n\
  -calls <number>: calls in a row without waiting for the device (default 200)\n\
  -batches <number>: such sequences, of which the median is taken (default 25)\n\
  -mat_type, -dll_append and every other option of PETSc.\n\n";

#include <petscmat.h>
#include <petscdevice.h>
#include <petsctime.h>

typedef struct {
  Mat          A;
  Vec          x, z;
  PetscScalar *expected; /* z computed with the assembly */
  PetscReal   *bound;    /* largest rounding error of each entry of z */
} Product;

/* deterministic numbers in [-0.5, 0.5) without a pattern that could hide a misplaced value */
static PetscReal Scramble(PetscInt64 key)
{
  PetscInt64 bits = (key * 2654435761LL + 40503LL) % 1000003LL;

  return (PetscReal)(bits * bits % 1000003LL) / 1000003.0 - 0.5;
}

static PetscErrorCode AddEntry(Product *p, PetscInt row, PetscInt column, PetscInt *count, PetscInt columns[], PetscScalar values[])
{
  const PetscReal a = Scramble(31LL * row + column), x = Scramble(column);

  PetscFunctionBeginUser;
  columns[*count] = column;
  values[*count]  = a;
  (*count)++;
  p->expected[row] += a * x;
  p->bound[row] += PetscAbsReal(a * x);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Assemble(Product *p, PetscInt stencil, PetscInt n)
{
  const PetscInt size = n * n * n;

  PetscFunctionBeginUser;
  PetscCall(PetscCalloc2(size, &p->expected, size, &p->bound));
  PetscCall(MatCreate(PETSC_COMM_SELF, &p->A));
  PetscCall(MatSetSizes(p->A, size, size, size, size));
  PetscCall(MatSetFromOptions(p->A));
  PetscCall(MatSeqAIJSetPreallocation(p->A, stencil, NULL));
  PetscCall(MatSeqSELLSetPreallocation(p->A, stencil, NULL));
  for (PetscInt row = 0; row < size; row++) {
    const PetscInt i = row % n, j = row / n % n, k = row / (n * n);
    PetscInt       columns[27], count = 0;
    PetscScalar    values[27];

    for (PetscInt dk = -1; dk <= 1; dk++)
      for (PetscInt dj = -1; dj <= 1; dj++)
        for (PetscInt di = -1; di <= 1; di++) {
          const PetscBool inside = (PetscBool)(i + di >= 0 && i + di < n && j + dj >= 0 && j + dj < n && k + dk >= 0 && k + dk < n);

          if (inside && (stencil == 27 || di * di + dj * dj + dk * dk <= 1)) PetscCall(AddEntry(p, row, row + (dk * n + dj) * n + di, &count, columns, values));
        }
    p->bound[row] *= (count + 2) * PETSC_MACHINE_EPSILON;
    PetscCall(MatSetValues(p->A, 1, &row, count, columns, values, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(p->A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(p->A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatCreateVecs(p->A, &p->x, &p->z));
  for (PetscInt row = 0; row < size; row++) PetscCall(VecSetValue(p->x, row, Scramble(row), INSERT_VALUES));
  PetscCall(VecAssemblyBegin(p->x));
  PetscCall(VecAssemblyEnd(p->x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the largest error of z as a share of its bound; more than 1 is wrong */
static PetscErrorCode Check(Product *p, PetscReal *worst)
{
  const PetscScalar *z;
  PetscInt           size;

  PetscFunctionBeginUser;
  PetscCall(VecSet(p->z, PETSC_INFINITY));
  PetscCall(MatMult(p->A, p->x, p->z));
  PetscCall(VecGetLocalSize(p->z, &size));
  PetscCall(VecGetArrayRead(p->z, &z));
  *worst = 0;
  for (PetscInt row = 0; row < size; row++) *worst = PetscMax(*worst, PetscAbsScalar(z[row] - p->expected[row]) / p->bound[row]);
  PetscCall(VecRestoreArrayRead(p->z, &z));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* seconds a call: until it returns, and with the wait for the device after the last one */
static PetscErrorCode Measure(Product *p, PetscInt calls, PetscInt batches, PetscReal *host, PetscReal *back_to_back)
{
  PetscDeviceContext context;
  PetscReal         *returned, *finished;

  PetscFunctionBeginUser;
  PetscCall(PetscDeviceContextGetCurrentContext(&context));
  PetscCall(PetscMalloc2(batches, &returned, batches, &finished));
  for (PetscInt batch = -1; batch < batches; batch++) { /* the first one warms up */
    PetscLogDouble start, after_calls, after_wait;

    PetscCall(PetscDeviceContextSynchronize(context));
    PetscCall(PetscTime(&start));
    for (PetscInt call = 0; call < calls; call++) PetscCall(MatMult(p->A, p->x, p->z));
    PetscCall(PetscTime(&after_calls));
    PetscCall(PetscDeviceContextSynchronize(context));
    PetscCall(PetscTime(&after_wait));
    if (batch < 0) continue;
    returned[batch] = (after_calls - start) / calls;
    finished[batch] = (after_wait - start) / calls;
  }
  PetscCall(PetscSortReal(batches, returned));
  PetscCall(PetscSortReal(batches, finished));
  *host         = returned[batches / 2];
  *back_to_back = finished[batches / 2];
  PetscCall(PetscFree2(returned, finished));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  Product   p;
  PetscInt  stencil = 7, n = 50, calls = 200, batches = 25;
  PetscReal host, back_to_back, worst;
  MatType   mat_type;
  VecType   vec_type;
  MatInfo   info;

  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-stencil", &stencil, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-calls", &calls, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-batches", &batches, NULL));
  PetscCheck(stencil == 7 || stencil == 27, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "-stencil %" PetscInt_FMT ": choose 7 or 27", stencil);
  PetscCheck(n > 0 && n <= 1000 && calls > 0 && batches > 0, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "-n must be 1 to 1000, -calls and -batches positive");
  PetscCall(Assemble(&p, stencil, n));
  PetscCall(Check(&p, &worst));
  PetscCall(Measure(&p, calls, batches, &host, &back_to_back));
  PetscCall(MatGetType(p.A, &mat_type));
  PetscCall(VecGetType(p.x, &vec_type));
  PetscCall(MatGetInfo(p.A, MAT_LOCAL, &info));
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "{\"matrix\": \"%" PetscInt_FMT "-point %" PetscInt_FMT "^3\", \"nnz\": %.0f, \"mat_type\": \"%s\", \"vec_type\": \"%s\", \"calls\": %" PetscInt_FMT ", \"host_seconds\": %.4e, \"back_to_back_seconds\": %.4e, \"error_over_bound\": %.4e}\n", stencil, n, info.nz_used, mat_type, vec_type, calls, (double)host, (double)back_to_back, (double)worst));
  PetscCheck(worst <= 1, PETSC_COMM_SELF, PETSC_ERR_PLIB, "The product is wrong: its error is %g times the bound of rounding", (double)worst);
  PetscCall(PetscFree2(p.expected, p.bound));
  PetscCall(VecDestroy(&p.x));
  PetscCall(VecDestroy(&p.z));
  PetscCall(MatDestroy(&p.A));
  PetscCall(PetscFinalize());
  return 0;
}
