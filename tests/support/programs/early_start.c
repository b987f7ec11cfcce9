/* Makes a matrix of -mat_type, waits until the file -wait_for is there, and ends as -ending says. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <petscmat.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static PetscErrorCode Create(Mat *A)
{
  PetscInt begin, end;

  PetscFunctionBeginUser;
  PetscCall(MatCreate(PETSC_COMM_WORLD, A));
  PetscCall(MatSetSizes(*A, 16, 16, PETSC_DETERMINE, PETSC_DETERMINE));
  PetscCall(MatSetFromOptions(*A));
  PetscCall(MatSetUp(*A));
  PetscCall(MatGetOwnershipRange(*A, &begin, &end));
  for (PetscInt i = begin; i < end; i++) PetscCall(MatSetValue(*A, i, i, 3, INSERT_VALUES));
  PetscCall(MatAssemblyBegin(*A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* sums up A x for a vector of ones: 48 on each rank */
static PetscErrorCode Multiply(Mat A, PetscScalar *sum)
{
  Vec x, y;

  PetscFunctionBeginUser;
  PetscCall(MatCreateVecs(A, &x, &y));
  PetscCall(VecSet(x, 1));
  PetscCall(MatMult(A, x, y));
  PetscCall(VecSum(y, sum));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MultiplyAndPrint(Mat A)
{
  PetscScalar sum;

  PetscFunctionBeginUser;
  PetscCall(Multiply(A, &sum));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "sum %d\n", (int)PetscRealPart(sum)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the child multiplies, and tells by its status whether that was right */
static PetscErrorCode Fork(Mat A)
{
  const pid_t child = fork();
  int         status;

  PetscFunctionBeginUser;
  if (!child) {
    PetscScalar sum = 0;

    _exit(Multiply(A, &sum) || sum != (PetscScalar)48 ? 1 : 0);
  }
  (void)waitpid(child, &status, 0);
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "child %d\n", status));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Popen(void)
{
  char  line[64] = "";
  FILE *pipe     = popen("echo from a shell", "r");

  PetscFunctionBeginUser;
  (void)fgets(line, sizeof(line), pipe);
  (void)pclose(pipe);
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "%ssystem %d\n", line, system("true")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* threads of this process */
static int Threads(void)
{
  DIR *tasks = opendir("/proc/self/task");
  int  count = 0;

  while (readdir(tasks)) count++;
  (void)closedir(tasks);
  return count - 2; /* . and .. */
}

/* whether Python keeps a state for this thread between calls */
static PetscBool StateIsKept(void)
{
  void *(*get)(void) = NULL;

  *(void **)&get = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
  return (PetscBool)(get && get());
}

int main(int argc, char **argv)
{
  char ending[32] = "multiply", file[PETSC_MAX_PATH_LEN] = "";
  int  threads;
  Mat  A;

  PetscCallMPI(MPI_Init(&argc, &argv)); /* outlives PETSc, which begins twice */
  PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-ending", ending, sizeof(ending), NULL));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-wait_for", file, sizeof(file), NULL));
  threads = Threads();
  PetscCall(Create(&A));
  while (file[0] && access(file, F_OK)) (void)usleep(1000);
  if (!strcmp(ending, "exit")) exit(3);
  if (!strcmp(ending, "abort")) abort();
  if (!strcmp(ending, "MPI_Abort")) (void)MPI_Abort(PETSC_COMM_WORLD, 3);
  if (!strcmp(ending, "error")) SETERRQ(PETSC_COMM_WORLD, PETSC_ERR_USER, "an error of the application");
  if (!strcmp(ending, "fork")) PetscCall(Fork(A));
  if (!strcmp(ending, "popen")) PetscCall(Popen());
  if (!strcmp(ending, "again")) {
    PetscCall(MatDestroy(&A));
    PetscCall(PetscFinalize());
    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(Create(&A));
  }
  if (strcmp(ending, "finalize")) {
    PetscCall(MultiplyAndPrint(A));
    if (!StateIsKept()) PetscCall(PetscPrintf(PETSC_COMM_SELF, "no state of Python is kept\n"));
  }
  PetscCall(MatDestroy(&A));
  PetscCall(PetscFinalize());
  if (Threads() > threads) (void)printf("a thread is left\n");
  PetscCallMPI(MPI_Finalize());
  return 0;
}
