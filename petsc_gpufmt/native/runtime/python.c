/* Starts Python in a program that is not a Python program. */
#include "runtime/runtime.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>
#include <wchar.h>

#ifndef GPUFMT_PYTHON_EXECUTABLE
  #define GPUFMT_PYTHON_EXECUTABLE "python3"
#endif
#ifndef GPUFMT_PYTHON_LIBRARY
  #define GPUFMT_PYTHON_LIBRARY ""
#endif

/* the part of the stable Python C API that is used; types are opaque */
static struct {
  int (*IsInitialized)(void);
  void (*SetProgramName)(const wchar_t *);
  void (*InitializeEx)(int);
  wchar_t *(*DecodeLocale)(const char *, size_t *);
  void *(*SaveThread)(void);
  void (*RestoreThread)(void *);
  int (*Holds)(void);
  int (*Ensure)(void);
  void (*Release)(int);
  void *(*ImportModule)(const char *);
  void (*Fetch)(void **, void **, void **);
  void (*Normalize)(void **, void **, void **);
  void (*Clear)(void);
  void *(*Repr)(void *);
  const char *(*AsUTF8)(void *, ssize_t *);
  void (*DecRef)(void *);
  int (*InterruptOccurred)(void);
  int (*AddPendingCall)(int (*)(void *), void *);
  void (*SetInterrupt)(void);
} py;

static atomic_bool loaded = false; /* all of it */

static PetscBool LoadApi(void *handle)
{
#define LOAD(field, symbol) \
  do { \
    *(void **)&py.field = dlsym(handle, symbol); \
    if (!py.field) return PETSC_FALSE; \
  } while (0)
  LOAD(IsInitialized, "Py_IsInitialized");
  LOAD(SetProgramName, "Py_SetProgramName");
  LOAD(InitializeEx, "Py_InitializeEx");
  LOAD(DecodeLocale, "Py_DecodeLocale");
  LOAD(SaveThread, "PyEval_SaveThread");
  LOAD(RestoreThread, "PyEval_RestoreThread");
  LOAD(Holds, "PyGILState_Check");
  LOAD(Ensure, "PyGILState_Ensure");
  LOAD(Release, "PyGILState_Release");
  LOAD(ImportModule, "PyImport_ImportModule");
  LOAD(Fetch, "PyErr_Fetch");
  LOAD(Normalize, "PyErr_NormalizeException");
  LOAD(Clear, "PyErr_Clear");
  LOAD(Repr, "PyObject_Repr");
  LOAD(AsUTF8, "PyUnicode_AsUTF8AndSize");
  LOAD(DecRef, "Py_DecRef");
  LOAD(InterruptOccurred, "PyOS_InterruptOccurred");
  LOAD(AddPendingCall, "Py_AddPendingCall");
  LOAD(SetInterrupt, "PyErr_SetInterrupt");
#undef LOAD
  atomic_store(&loaded, true);
  return PETSC_TRUE;
}

/* asks an interpreter for its shared library; an empty answer: it has none, or does not start */
static int AskLibrary(const char executable[], size_t length, char library[], GpufmtMessage message)
{
  static const char question[] = "import os, sysconfig as s; v = lambda name: s.get_config_var(name) or ''; "
                                 "print(next((p for d in ('LIBDIR', 'LIBPL') for n in ('INSTSONAME', 'LDLIBRARY') "
                                 "for p in [os.path.join(v(d), v(n))] if '.so' in v(n) and os.path.isfile(p)), ''))";
  char              command[PETSC_MAX_PATH_LEN + sizeof(question) + 32];
  FILE             *pipe;

  library[0] = 0;
  if (strchr(executable, '\'')) {
    (void)snprintf(message, GPUFMT_MESSAGE_LENGTH,
                   "%s has a quote in its path, which is not supported: set PETSC_GPUFMT_PYTHON to another interpreter", executable);
    return PETSC_ERR_USER_INPUT;
  }
  (void)snprintf(command, sizeof(command), "'%s' -c \"%s\" 2>/dev/null", executable, question);
  pipe = popen(command, "r");
  if (!pipe) return 0;
  if (!fgets(library, (int)length, pipe)) library[0] = 0;
  (void)pclose(pipe);
  library[strcspn(library, "\n")] = 0;
  return 0;
}

#define Fail(...) \
  do { \
    (void)snprintf(message, GPUFMT_MESSAGE_LENGTH, __VA_ARGS__); \
    return PETSC_ERR_SUP; \
  } while (0)

static int StartInterpreter(GpufmtMessage message)
{
  const char *executable = getenv("PETSC_GPUFMT_PYTHON"), *home = getenv("PYTHONHOME"), *why;
  char        library[PETSC_MAX_PATH_LEN] = GPUFMT_PYTHON_LIBRARY;
  PetscBool   named = (PetscBool)(executable && executable[0] && strcmp(executable, GPUFMT_PYTHON_EXECUTABLE)), moved = (PetscBool)(home && home[0]);
  void       *handle;
  int         error;

  if (!named) executable = GPUFMT_PYTHON_EXECUTABLE;
  if (!named && access(executable, X_OK))
    Fail(
      "%s, for which this library was built, is not there any more: set PETSC_GPUFMT_PYTHON to an interpreter that can import petsc_gpufmt, or install the package again",
      executable);
  if (named || moved) { /* with a wrong PYTHONHOME, Python would end this process */
    error = AskLibrary(executable, sizeof(library), library, message);
    if (error) return error;
  }
  if (!library[0])
    Fail("%s%s%s cannot be started or has no shared libpython: %sset PETSC_GPUFMT_PYTHON to an interpreter that has one and can import petsc_gpufmt",
         executable, moved ? " with PYTHONHOME=" : "", moved ? home : "", moved ? "unset PYTHONHOME, or " : "");
  handle = dlopen(library, RTLD_LAZY | RTLD_GLOBAL);
  why    = handle ? NULL : dlerror();
  if (!handle) Fail("its library does not load (%s): set PETSC_GPUFMT_PYTHON to an interpreter that can import petsc_gpufmt", why ? why : library);
  if (!LoadApi(handle)) Fail("%s lacks functions of the Python C API: set PETSC_GPUFMT_PYTHON to an interpreter of version 3.10 or newer", library);
  py.SetProgramName(py.DecodeLocale(executable, NULL)); /* finds the virtual environment; the string must live as long as the interpreter */
  py.InitializeEx(0);                                   /* no signal handlers */
  (void)py.SaveThread();
  return 0;
}

/* the exception that was raised, as text of one line */
static void ExceptionText(size_t length, char text[])
{
  void       *type, *value, *traceback, *repr;
  const char *utf8;

  py.Fetch(&type, &value, &traceback);
  py.Normalize(&type, &value, &traceback);
  repr = py.Repr(value);
  utf8 = repr ? py.AsUTF8(repr, NULL) : NULL;
  (void)snprintf(text, length, "%s", utf8 ? utf8 : "an exception without text");
  py.Clear();
  if (repr) py.DecRef(repr);
  if (traceback) py.DecRef(traceback);
  py.DecRef(value);
  py.DecRef(type);
}

/* whether the program has Python's library, and may have started Python or be about to */
PetscBool GpufmtPythonPresent(void)
{
  return (PetscBool)(dlsym(RTLD_DEFAULT, "Py_IsInitialized") != NULL);
}

/* in a Python program, where nobody else looks for these functions: whether they are there */
PetscBool GpufmtPythonFind(void)
{
  return (PetscBool)(loaded || LoadApi(RTLD_DEFAULT));
}

/* Starts Python unless it runs. 0, or an error code of PETSc with a message. This and the next are without PETSc: any thread may call them. */
int GpufmtPythonRun(GpufmtMessage message)
{
  return (loaded || LoadApi(RTLD_DEFAULT)) && py.IsInitialized() ? 0 : StartInterpreter(message);
}

int GpufmtPythonImport(const char module[], GpufmtMessage message)
{
  const int state    = py.Ensure();
  void     *imported = py.ImportModule(module);
  char      text[512];

  if (imported) py.DecRef(imported);
  else ExceptionText(sizeof(text), text);
  py.Release(state);
  if (!imported)
    Fail("`import %s` failed there (%s): install the package for that interpreter, or set PETSC_GPUFMT_PYTHON or PYTHONPATH", module, text);
  return 0;
}

/* importing the package hands us the planner */
PetscErrorCode GpufmtPythonStart(void)
{
  GpufmtMessage message;
  int           error;

  PetscFunctionBegin;
  error = GpufmtPythonRun(message);
  if (!error) error = GpufmtPythonImport("petsc_gpufmt", message);
  PetscCheck(!error, PETSC_COMM_SELF, (PetscErrorCode)error, "A plan needs Python, and %s", message);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lets other threads run Python while this one waits for them: what is returned is given to GpufmtPythonGoOn() afterwards. */
void *GpufmtPythonPause(void)
{
  return loaded && py.IsInitialized() && py.Holds() ? py.SaveThread() : NULL;
}

void GpufmtPythonGoOn(void *thread)
{
  if (thread) py.RestoreThread(thread);
}

/* Gives this thread a state of Python's, where another one has started it. Each call would make one and throw it away, with all that Python and
   CuPy keep for a thread. */
void GpufmtPythonStay(void)
{
  if (!loaded || !py.IsInitialized() || py.Holds()) return;
  (void)py.Ensure();
  (void)py.SaveThread();
}

static atomic_bool given_back = false; /* an interrupt that was taken, and that Python has not seen since */

/* whether Ctrl-C waits to be seen by Python; it waits no longer, and comes back by GpufmtPythonInterrupt() */
PetscBool GpufmtPythonTakeInterrupt(void)
{
  PetscBool waits;
  int       state;

  if (!loaded && !LoadApi(RTLD_DEFAULT)) return PETSC_FALSE;
  state = py.Ensure();
  waits = (PetscBool)py.InterruptOccurred();
  py.Release(state);
  return (PetscBool)(atomic_exchange(&given_back, false) || waits);
}

static int Interrupt(void *unused)
{
  if (atomic_exchange(&given_back, false)) py.SetInterrupt();
  return 0;
}

/* As if Ctrl-C were pressed when Python runs next. It is not pressed now: the error handler of petsc4py would raise it and lose the error. */
void GpufmtPythonInterrupt(void)
{
  if (!loaded) return;
  atomic_store(&given_back, true);
  (void)py.AddPendingCall(Interrupt, NULL);
}

static pthread_mutex_t       hold_lock = PTHREAD_MUTEX_INITIALIZER;
static int                   nholds    = 0; /* of threads, since Python may go on with another one meanwhile */
static struct sigaction      before;        /* the first of them */
static volatile sig_atomic_t came = 0;

static void Note(int signal_number)
{
  came = 1;
}

/* From here to GpufmtPythonHearInterrupts() none is seen: what it is raised in is a destructor, it may be, where Python prints and forgets it. */
void GpufmtPythonHoldInterrupts(void)
{
  const struct sigaction note = {.sa_handler = Note, .sa_flags = SA_RESTART};

  (void)pthread_mutex_lock(&hold_lock);
  if (!nholds++ && !sigaction(SIGINT, NULL, &before) && before.sa_handler != SIG_IGN) (void)sigaction(SIGINT, &note, NULL);
  (void)pthread_mutex_unlock(&hold_lock);
}

/* one that came meanwhile comes now, for Python when it runs next */
void GpufmtPythonHearInterrupts(void)
{
  bool heard = false;

  (void)pthread_mutex_lock(&hold_lock);
  if (!--nholds) {
    (void)sigaction(SIGINT, &before, NULL);
    heard = came;
    came  = 0;
  }
  (void)pthread_mutex_unlock(&hold_lock);
  if (!heard) return;
  (void)raise(SIGINT);
  if (GpufmtPythonTakeInterrupt()) GpufmtPythonInterrupt();
}
