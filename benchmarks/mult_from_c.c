static char help[] = "Times MatMult() called from C, one rank. Prints one line of JSON.\n\
  -file <path>: in PETSc's binary form an AIJ matrix A, x, the right A x, and the error allowed in each of its entries\n\
  -types <type,...>: sequential types that the matrix is converted to, one after the other (default: none)\n\
  -calls <number>: calls in a row without waiting for the device (default 200)\n\
  -batches <number>: such sequences, of which the median is taken (default 25)\n\
  -dll_append and every other option of PETSc.\n\n";

#include <petscmat.h>
#include <petscdevice.h>
#include <petsctime.h>

enum { MAX_TYPES = 8 };

typedef struct {
  Mat A;
  Vec x, z;
  Vec expected; /* the right z */
  Vec bound;    /* largest rounding error of each entry of z */
} Product;

static PetscErrorCode Load(Product *p, const char path[])
{
  PetscViewer viewer;
  char       *types[MAX_TYPES];
  PetscInt    count = MAX_TYPES;

  PetscFunctionBeginUser;
  PetscCall(PetscViewerBinaryOpen(PETSC_COMM_SELF, path, FILE_MODE_READ, &viewer));
  PetscCall(MatCreate(PETSC_COMM_SELF, &p->A));
  PetscCall(MatSetType(p->A, MATSEQAIJ));
  PetscCall(MatLoad(p->A, viewer));
  PetscCall(MatCreateVecs(p->A, NULL, &p->expected)); /* before the conversion: these stay on the host */
  PetscCall(VecDuplicate(p->expected, &p->bound));
  PetscCall(PetscOptionsGetStringArray(NULL, NULL, "-types", types, &count, NULL));
  for (PetscInt k = 0; k < count; k++) {
    PetscCall(MatConvert(p->A, types[k], MAT_INPLACE_MATRIX, &p->A));
    PetscCall(PetscFree(types[k]));
  }
  PetscCall(MatSetFromOptions(p->A));
  PetscCall(MatCreateVecs(p->A, &p->x, &p->z));
  PetscCall(VecLoad(p->x, viewer));
  PetscCall(VecLoad(p->expected, viewer));
  PetscCall(VecLoad(p->bound, viewer));
  PetscCall(PetscViewerDestroy(&viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the largest error of z as a share of its bound; more than 1 is wrong */
static PetscErrorCode Check(Product *p, PetscReal *worst)
{
  const PetscScalar *z, *expected, *bound;
  PetscInt           size;

  PetscFunctionBeginUser;
  PetscCall(VecSet(p->z, PETSC_INFINITY));
  PetscCall(MatMult(p->A, p->x, p->z));
  PetscCall(VecGetLocalSize(p->z, &size));
  PetscCall(VecGetArrayRead(p->z, &z));
  PetscCall(VecGetArrayRead(p->expected, &expected));
  PetscCall(VecGetArrayRead(p->bound, &bound));
  *worst = 0;
  for (PetscInt row = 0; row < size; row++) {
    const PetscReal error = PetscAbsScalar(z[row] - expected[row]);
    const PetscReal share = error == 0 ? 0 : error / PetscRealPart(bound[row]);

    *worst = PetscMax(*worst, PetscIsInfOrNanReal(share) ? PETSC_MAX_REAL : share);
  }
  PetscCall(VecRestoreArrayRead(p->bound, &bound));
  PetscCall(VecRestoreArrayRead(p->expected, &expected));
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
  PetscInt  calls = 200, batches = 25, block_size;
  PetscReal host, back_to_back, worst;
  char      path[PETSC_MAX_PATH_LEN];
  PetscBool given;
  MatType   mat_type;
  VecType   vec_type;

  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-file", path, sizeof(path), &given));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-calls", &calls, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-batches", &batches, NULL));
  PetscCheck(given, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "Name the file with the matrix: -file <path>");
  PetscCheck(calls > 0 && batches > 0, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "-calls and -batches must be positive");
  PetscCall(Load(&p, path));
  PetscCall(Check(&p, &worst));
  PetscCall(Measure(&p, calls, batches, &host, &back_to_back));
  PetscCall(MatGetType(p.A, &mat_type));
  PetscCall(VecGetType(p.x, &vec_type));
  PetscCall(MatGetBlockSize(p.A, &block_size));
  PetscCall(PetscPrintf(PETSC_COMM_SELF,
                        "{\"block_size\": %" PetscInt_FMT ", \"mat_type\": \"%s\", \"vec_type\": \"%s\", \"calls\": %" PetscInt_FMT
                        ", \"host_seconds\": %.4e, \"back_to_back_seconds\": %.4e, \"error_over_bound\": %.4e}\n",
                        block_size, mat_type, vec_type, calls, (double)host, (double)back_to_back, (double)worst));
  PetscCheck(worst <= 1, PETSC_COMM_SELF, PETSC_ERR_PLIB, "The product is wrong: its error is %g times the bound of rounding", (double)worst);
  PetscCall(VecDestroy(&p.expected));
  PetscCall(VecDestroy(&p.bound));
  PetscCall(VecDestroy(&p.x));
  PetscCall(VecDestroy(&p.z));
  PetscCall(MatDestroy(&p.A));
  PetscCall(PetscFinalize());
  return 0;
}
