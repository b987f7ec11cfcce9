/* Kernels are loaded beside the application: the planner names files of compiled modules, a thread loads them one after the other, and plans take
   them. The thread calls the driver and nothing else, so Python goes on too. What it has not begun when a plan wants it, and what fails here, the
   plan loads itself, which reports errors. */
#define _GNU_SOURCE /* pthread_timedjoin_np() */
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)
  #include <fenv.h>
  #include <pthread.h>
  #include <stdatomic.h>
  #include <stdlib.h>
  #include <time.h>
  #include <unistd.h>

enum { WAITS, LOADS, LOADED, LEFT };

typedef struct {
  char *path;
  char *folder; /* its name, the key of the digest */
  int   state;
  void *module;
  char *symbols; /* a line for each kernel, with its name and its symbol */
} ModuleFile;

static const time_t seconds_at_end = 1;

static ModuleFile *files;                   /* all are named before the thread begins */
static int         nfiles = 0, nbefore = 0; /* now; when it last began */
static char       *format;                  /* of the files */

static int             next = 0;                         /* that the thread has not looked at */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of states */
static pthread_cond_t  news = PTHREAD_COND_INITIALIZER;

static pthread_t   thread;
static atomic_bool runs = false, ending = false; /* made and not joined; to end after the module in progress */
static pid_t       process;                      /* of the thread: a child has neither that nor the context */
static int         device;
static void       *context;

/* The planner names a file of compiled kernels, those that are wanted first before others. After PETSc's end it names them again. */
PETSC_EXTERN void GpufmtKernelsName(const char path[], const char format_of_files[], const char folder[])
{
  ModuleFile *more;

  if (runs) return;
  for (int k = 0; k < nbefore; k++)
    if (!strcmp(files[k].path, path)) return;
  more = realloc(files, ((size_t)nfiles + 1) * sizeof(*files));
  if (!more) return;
  files = more;
  if (!format) format = strdup(format_of_files);
  files[nfiles] = (ModuleFile){.path = strdup(path), .folder = strdup(folder)};
  if (format && files[nfiles].path && files[nfiles].folder) nfiles++;
}

/* The driver may put off kernels until they are asked for. */
static bool LoadFunctions(void *module, const char symbols[])
{
  for (const char *line = symbols; *line;) {
    const char *const space = strchr(line, ' '), *const end = line + strcspn(line, "\n");
    char  symbol[1024];
    void *function;

    if (!space || space > end || (size_t)(end - space) > sizeof(symbol)) return false;
    (void)snprintf(symbol, sizeof(symbol), "%.*s", (int)(end - space - 1), space + 1);
    if (gpufmt_driver.ModuleGetFunction(&function, module, symbol)) return false;
    line = *end ? end + 1 : end;
  }
  return true;
}

static bool Load(ModuleFile *f)
{
  size_t bytes    = 0;
  char  *contents = GpufmtModuleFileRead(f->path, format, f->folder, &bytes), *end = contents ? strstr(contents, "\n\n") : NULL;
  void  *image = NULL; /* apart, as cuModuleLoadData() may want it aligned */
  bool   loaded;

  if (end) {
    *end = 0;
    bytes -= (size_t)(end + 2 - contents);
    image      = malloc(bytes + 1); /* PTX ends with a 0 */
    f->symbols = strdup(contents);
  }
  if (image) memcpy(image, end + 2, bytes + 1);
  loaded = image && f->symbols && !gpufmt_driver.ModuleLoadData(&f->module, image) && LoadFunctions(f->module, f->symbols);
  free(image);
  GpufmtModuleFileFree(contents);
  return loaded;
}

/* The process ends without PetscFinalize(): the driver ends next. */
static void AtExit(void)
{
  struct timespec until;

  if (!runs || process != getpid()) return;
  atomic_store(&ending, true);
  (void)clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += seconds_at_end;
  (void)pthread_timedjoin_np(thread, NULL, &until);
  atomic_store(&runs, false);
}

static void SetState(ModuleFile *f, int state)
{
  (void)pthread_mutex_lock(&lock);
  f->state = state;
  (void)pthread_cond_broadcast(&news);
  (void)pthread_mutex_unlock(&lock);
}

/* the next file that waits, now in progress; NULL: there is none */
static ModuleFile *Next(void)
{
  ModuleFile *f = NULL;

  (void)pthread_mutex_lock(&lock);
  while (!f && next < nfiles)
    if (files[next++].state == WAITS) f = &files[next - 1];
  if (f) f->state = LOADS;
  (void)pthread_mutex_unlock(&lock);
  return f;
}

static void *Run(void *unused)
{
  int mode = CUDA_CAPTURE_RELAXED; /* while the application captures a graph, too */

  (void)fesetenv(FE_DFL_ENV); /* traps of -fp_trap are for the application */
  if (!GpufmtDeviceEnter(device, context) || gpufmt_driver.CtxGetCurrent(&context)) return NULL;
  if (gpufmt_driver.ThreadExchangeStreamCaptureMode(&mode)) return NULL;
  (void)atexit(AtExit); /* before what the driver does at the end, which it has noted as it began */
  while (!atomic_load(&ending)) {
    ModuleFile *const f = Next();
    bool              loaded;

    if (!f) break;
    loaded = Load(f);
    SetState(f, loaded ? LOADED : LEFT);
    if (!loaded) break; /* there may be no more memory: who wants it and others finds out */
  }
  return NULL;
}

/* Begins to load what was named, or goes on after PETSc's end. Context NULL: that of the device is made if nobody has done so. */
void GpufmtKernelsStart(int device_wanted, void *its_context)
{
  if (runs || next >= nfiles) return;
  nbefore = nfiles;
  device  = device_wanted;
  context = its_context;
  process = getpid();
  atomic_store(&ending, false);
  (void)atexit(AtExit); /* the thread may be making the context */
  atomic_store(&runs, !GpufmtThreadCreate(&thread, NULL, Run, NULL));
}

/* A module that was loaded from a file, in the current context, and its symbols; NULL: the caller is to load it, and the thread will not. Waits if it
   is being loaded. */
PETSC_EXTERN const char *GpufmtKernelsTake(const char path[], void **module)
{
  ModuleFile *f = NULL;
  void       *current;

  if (!nfiles || process != getpid() || gpufmt_driver.CtxGetCurrent(&current)) return NULL;
  for (int k = 0; k < nfiles && !f; k++)
    if (!strcmp(files[k].path, path)) f = &files[k];
  if (!f) return NULL;
  (void)pthread_mutex_lock(&lock);
  if (f->state == WAITS) f->state = LEFT;
  while (f->state == LOADS) (void)pthread_cond_wait(&news, &lock);
  (void)pthread_mutex_unlock(&lock);
  if (f->state == LEFT || current != context) return NULL;
  *module = f->module;
  return f->symbols;
}

/* PETSc ends: waits for the module in progress alone */
void GpufmtKernelsEnd(void)
{
  if (!runs || process != getpid()) return;
  atomic_store(&ending, true);
  (void)pthread_join(thread, NULL);
  atomic_store(&runs, false);
}

#else

PETSC_EXTERN void GpufmtKernelsName(const char path[], const char format_of_files[], const char folder[]) { }

void GpufmtKernelsStart(int device_wanted, void *its_context) { }

PETSC_EXTERN const char *GpufmtKernelsTake(const char path[], void **module)
{
  return NULL;
}

void GpufmtKernelsEnd(void) { }

#endif
