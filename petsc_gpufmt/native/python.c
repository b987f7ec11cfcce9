/* Starts Python at the first plan of a program that is not a Python program. */
#include "gpufmt_impl.h"
#include <dlfcn.h>
#include <inttypes.h>
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
  int (*Ensure)(void);
  void (*Release)(int);
  int (*RunString)(const char *);
  int (*InterruptOccurred)(void);
  int (*AddPendingCall)(int (*)(void *), void *);
  void (*SetInterrupt)(void);
} py;

static PetscBool loaded = PETSC_FALSE; /* all of it */

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
  LOAD(Ensure, "PyGILState_Ensure");
  LOAD(Release, "PyGILState_Release");
  LOAD(RunString, "PyRun_SimpleString");
  LOAD(InterruptOccurred, "PyOS_InterruptOccurred");
  LOAD(AddPendingCall, "Py_AddPendingCall");
  LOAD(SetInterrupt, "PyErr_SetInterrupt");
#undef LOAD
  loaded = PETSC_TRUE;
  return PETSC_TRUE;
}

/* asks an interpreter for its shared library; an empty answer: it has none */
static PetscErrorCode AskLibrary(const char executable[], size_t length, char library[])
{
  static const char question[] = "import os, sysconfig as s; d, n = s.get_config_var('LIBDIR'), s.get_config_var('LDLIBRARY'); "
                                 "p = os.path.join(d or '', n or ''); print(p if '.so' in p and os.path.exists(p) else '')";
  char              command[PETSC_MAX_PATH_LEN + sizeof(question) + 16];
  FILE             *pipe;

  PetscFunctionBegin;
  library[0] = 0;
  PetscCheck(!strchr(executable, '\''), PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "PETSC_GPUFMT_PYTHON=%s: a quote in the path is not supported", executable);
  PetscCall(PetscSNPrintf(command, sizeof(command), "'%s' -c \"%s\"", executable, question));
  pipe = popen(command, "r");
  if (!pipe) PetscFunctionReturn(PETSC_SUCCESS);
  if (!fgets(library, (int)length, pipe)) library[0] = 0;
  (void)pclose(pipe);
  library[strcspn(library, "\n")] = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode StartInterpreter(void)
{
  const char *executable = getenv("PETSC_GPUFMT_PYTHON"), *why;
  char        library[PETSC_MAX_PATH_LEN] = GPUFMT_PYTHON_LIBRARY;
  void       *handle;

  PetscFunctionBegin;
  if (executable && executable[0]) PetscCall(AskLibrary(executable, sizeof(library), library));
  else executable = GPUFMT_PYTHON_EXECUTABLE;
  PetscCheck(library[0], PETSC_COMM_SELF, PETSC_ERR_SUP, "A plan needs Python, and %s cannot be started or has no shared libpython: set PETSC_GPUFMT_PYTHON to an interpreter that has one and can import petsc_gpufmt", executable);
  handle = dlopen(library, RTLD_LAZY | RTLD_GLOBAL);
  why    = handle ? NULL : dlerror();
  PetscCheck(handle, PETSC_COMM_SELF, PETSC_ERR_SUP, "A plan needs Python, and its library does not load (%s): set PETSC_GPUFMT_PYTHON to an interpreter that can import petsc_gpufmt", why ? why : library);
  PetscCheck(LoadApi(handle), PETSC_COMM_SELF, PETSC_ERR_SUP, "A plan needs Python, and %s lacks functions of the Python C API: set PETSC_GPUFMT_PYTHON to an interpreter of version 3.10 or newer", library);
  py.SetProgramName(py.DecodeLocale(executable, NULL)); /* finds the virtual environment; the string must live as long as the interpreter */
  py.InitializeEx(0);                                   /* no signal handlers */
  (void)py.SaveThread();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* importing the package hands us the planner; an exception comes back as text */
PetscErrorCode GpufmtPythonStart(void)
{
  char program[512], message[512] = "";
  int  state, failed;

  PetscFunctionBegin;
  if (!(LoadApi(RTLD_DEFAULT) && py.IsInitialized())) PetscCall(StartInterpreter());
  PetscCall(PetscSNPrintf(program, sizeof(program),
                          "try:\n"
                          "    import petsc_gpufmt\n"
                          "except BaseException as e:\n"
                          "    import ctypes\n"
                          "    text = ' '.join(f'{type(e).__name__}: {e}'.split()).encode()[:500] + b'\\0'\n"
                          "    ctypes.memmove(%" PRIuPTR ", text, len(text))\n",
                          (uintptr_t)message));
  state  = py.Ensure();
  failed = py.RunString(program);
  py.Release(state);
  PetscCheck(!failed && !message[0], PETSC_COMM_SELF, PETSC_ERR_SUP, "A plan needs Python, and `import petsc_gpufmt` failed there (%s): install the package for that interpreter, or set PETSC_GPUFMT_PYTHON or PYTHONPATH", message);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether Ctrl-C waits to be seen by Python; it waits no longer, and comes back by GpufmtPythonInterrupt() */
PetscBool GpufmtPythonTakeInterrupt(void)
{
  PetscBool waits;
  int       state;

  if (!loaded && !LoadApi(RTLD_DEFAULT)) return PETSC_FALSE;
  state = py.Ensure();
  waits = (PetscBool)py.InterruptOccurred();
  py.Release(state);
  return waits;
}

static int Interrupt(void *unused)
{
  py.SetInterrupt();
  return 0;
}

/* As if Ctrl-C were pressed when Python runs next. It is not pressed now: the error handler of petsc4py would raise it and lose the error. */
void GpufmtPythonInterrupt(void)
{
  if (loaded) (void)py.AddPendingCall(Interrupt, NULL);
}
