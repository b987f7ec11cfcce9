/* Kernels that a thread loads, through a driver that is slow: what is taken, what is left to who wants it, and how it ends. */
#define PETSC_HAVE_CUDA 1
#define _GNU_SOURCE
#include <sys/wait.h>

/* the files under test; they are compiled for devices whatever the PETSc at hand is for */
#include "runtime/blake2b.c"
#include "runtime/kernels.c"
#include "runtime/module_file.c"
#include "runtime/thread.c"

#define Check(what) PetscCheckAbort(what, PETSC_COMM_SELF, PETSC_ERR_PLIB, "not so: %s", #what)

enum { FILES = 12, IMAGE_BYTES = 9000, THE_CONTEXT = 0xC0, ANOTHER = 0xC1 };
static const char text[] = "some modules 3", folder[] = "the folder";

GpufmtDriver gpufmt_driver;

static int                 refused = -1, fails_to_enter = 0; /* number of a module */
static atomic_int          delay = 0, delay_to_enter = 0;    /* us */
static atomic_int          nloads = 0, nfunctions = 0, loading = 0, entering = 0;
static _Thread_local void *current = NULL;
static _Thread_local bool  relaxed = false;

bool GpufmtDeviceEnter(int wanted_device, void *its_context)
{
  Check(wanted_device == 3);
  atomic_store(&entering, 1);
  (void)usleep((useconds_t)delay_to_enter);
  atomic_store(&entering, 0);
  current = its_context ? its_context : (void *)THE_CONTEXT;
  return !fails_to_enter;
}

static CudaResult CtxGetCurrent(void **answer)
{
  *answer = current;
  return 0;
}

/* image number k is full of k */
static CudaResult ModuleLoadData(void **module, const void *image)
{
  const unsigned char *bytes = image;
  sigset_t             blocked;

  atomic_store(&loading, 1);
  Check((uintptr_t)image % sizeof(void *) == 0 && current && relaxed);
  Check(!pthread_sigmask(SIG_SETMASK, NULL, &blocked) && sigismember(&blocked, SIGINT));
  for (int k = 0; k < IMAGE_BYTES; k++) Check(bytes[k] == bytes[0]);
  Check(!bytes[IMAGE_BYTES]); /* PTX is text */
  (void)usleep((useconds_t)delay);
  atomic_fetch_add(&nloads, 1);
  *module = (void *)(uintptr_t)(0x1000 + bytes[0]);
  atomic_store(&loading, 0);
  return bytes[0] == refused ? 209 : 0;
}

static CudaResult ModuleGetFunction(void **function, void *module, const char *symbol)
{
  Check(!strcmp(symbol, atomic_fetch_add(&nfunctions, 1) % 2 ? "_Z6secondv" : "_Z5firstv"));
  *function = module;
  return 0;
}

static CudaResult ExchangeMode(int *mode)
{
  relaxed = *mode == CUDA_CAPTURE_RELAXED;
  return 0;
}

static const char *Path(int number)
{
  static char path[PETSC_MAX_PATH_LEN];

  (void)snprintf(path, sizeof(path), "%d.module", number);
  return path;
}

static void Write(int number)
{
  static const char table[] = "first<1> _Z5firstv\nsecond _Z6secondv\n\n";
  char              contents[sizeof(table) - 1 + IMAGE_BYTES], header[LONGEST_HEADER];
  FILE             *file = fopen(Path(number), "wb");

  Check(file);
  memcpy(contents, table, sizeof(table) - 1);
  memset(contents + sizeof(table) - 1, number, IMAGE_BYTES);
  HeaderOf(text, folder, contents, sizeof(contents), header);
  (void)fputs(header, file);
  Check(fwrite(contents, 1, sizeof(contents), file) == sizeof(contents));
  Check(!fclose(file));
}

static void NameAll(void)
{
  for (int k = 1; k <= FILES; k++) GpufmtKernelsName(Path(k), text, folder);
}

static void Begin(void)
{
  gpufmt_driver.ThreadExchangeStreamCaptureMode = ExchangeMode;
  gpufmt_driver.CtxGetCurrent                   = CtxGetCurrent;
  gpufmt_driver.ModuleLoadData                  = ModuleLoadData;
  gpufmt_driver.ModuleGetFunction               = ModuleGetFunction;
  current                                       = (void *)THE_CONTEXT;
  for (int k = 1; k <= FILES; k++) Write(k);
  NameAll();
}

/* whether a module was loaded by the thread */
static bool Taken(int number)
{
  void       *module  = NULL;
  const char *symbols = GpufmtKernelsTake(Path(number), &module);

  if (!symbols) return false;
  Check(module == (void *)(uintptr_t)(0x1000 + number) && !strcmp(symbols, "first<1> _Z5firstv\nsecond _Z6secondv"));
  return true;
}

static void UntilLoading(void)
{
  while (!atomic_load(&loading)) (void)usleep(100);
}

/* the thread has begun so many files, or left them */
static void UntilLookedAt(int n)
{
  bool seen = false;

  while (!seen) {
    (void)usleep(100);
    (void)pthread_mutex_lock(&lock);
    seen = next >= n;
    (void)pthread_mutex_unlock(&lock);
  }
}

static void All(void)
{
  Check(!Taken(1)); /* nothing has begun */
  GpufmtKernelsStart(3, NULL);
  while (atomic_load(&nfunctions) < 2 * FILES) (void)usleep(100);
  for (int k = 1; k <= FILES; k++) Check(Taken(k) && Taken(k));
  Check(nloads == FILES);
  GpufmtKernelsName("late", text, folder);
  Check(nfiles == FILES && !Taken(FILES + 1));
  current = (void *)ANOTHER;
  Check(!Taken(1));
  GpufmtKernelsEnd();
  GpufmtKernelsEnd();
}

/* the one in progress is waited for; one that waits is left to who wants it now, and not loaded twice */
static void Wanted(void)
{
  delay = 20000;
  GpufmtKernelsStart(3, (void *)THE_CONTEXT);
  UntilLoading();
  Check(!Taken(5) && Taken(1) && !Taken(5));
  delay = 0;
  while (atomic_load(&nfunctions) < 2 * (FILES - 1)) (void)usleep(100);
  Check(!Taken(5) && Taken(4) && Taken(6) && nloads == FILES - 1);
  GpufmtKernelsEnd();
}

/* files that are not what was written never come to the driver; what follows a failure is left */
static void Errors(void)
{
  Check(!truncate(Path(1), 500));
  GpufmtKernelsStart(3, NULL);
  UntilLookedAt(1);
  GpufmtKernelsEnd();
  Check(!nloads && !Taken(1) && next == 1);
  Check(!unlink(Path(2)));
  GpufmtKernelsStart(3, NULL);
  UntilLookedAt(2);
  GpufmtKernelsEnd();
  Check(!nloads && !Taken(2) && next == 2);
  refused = 4;
  GpufmtKernelsStart(3, NULL);
  UntilLookedAt(4);
  GpufmtKernelsEnd();
  Check(Taken(3) && !Taken(4) && next == 4 && nfunctions == 2);
  fails_to_enter = 1;
  GpufmtKernelsStart(3, NULL);
  GpufmtKernelsEnd();
  Check(!Taken(5) && nloads == 2);
}

/* PETSc ends after the module in progress, and another beginning goes on: what was named before is not loaded once more */
static void Again(void)
{
  delay = 20000;
  GpufmtKernelsStart(3, NULL);
  UntilLoading();
  GpufmtKernelsEnd();
  Check(!loading && nloads < FILES && Taken(1));
  delay = 0;
  NameAll();
  Write(FILES + 1);
  GpufmtKernelsName(Path(FILES + 1), text, folder);
  Check(nfiles == FILES + 1);
  GpufmtKernelsStart(3, NULL);
  UntilLookedAt(FILES + 1);
  GpufmtKernelsEnd();
  for (int k = 1; k <= FILES + 1; k++) Check(Taken(k));
  Check(nloads == FILES + 1);
}

/* a child takes nothing and waits for nothing */
static void Fork(void)
{
  int   status;
  pid_t child;

  delay = 50000;
  GpufmtKernelsStart(3, NULL);
  UntilLoading();
  child = fork();
  if (!child) {
    Check(!Taken(1));
    GpufmtKernelsStart(3, NULL);
    GpufmtKernelsEnd();
    exit(5);
  }
  Check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
  Check(Taken(1));
  delay = 0;
  GpufmtKernelsEnd();
}

static void NothingLoads(void)
{
  Check(!loading && !entering && nloads < FILES);
  printf("passed\n");
}

/* the process ends without PetscFinalize(): before what was noted earlier, as by the driver */
static void Exit(void)
{
  Check(!atexit(NothingLoads));
  delay = 50000;
  GpufmtKernelsStart(3, NULL);
  UntilLoading();
  exit(0);
}

/* the same while the thread makes the context */
static void ExitEntering(void)
{
  Check(!atexit(NothingLoads));
  delay_to_enter = 50000;
  GpufmtKernelsStart(3, NULL);
  while (!atomic_load(&entering)) (void)usleep(100);
  exit(0);
}

int main(int argc, char **argv)
{
  static const struct {
    const char *name;
    void (*run)(void);
  } tests[] = {
    {"all",           All         },
    {"wanted",        Wanted      },
    {"errors",        Errors      },
    {"again",         Again       },
    {"fork",          Fork        },
    {"exit",          Exit        },
    {"exit entering", ExitEntering}
  };

  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(tests); k++)
    if (!strcmp(argv[1], tests[k].name)) {
      Begin();
      tests[k].run();
      printf("passed\n");
    }
  return 0;
}
