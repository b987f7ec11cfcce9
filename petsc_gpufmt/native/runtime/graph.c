/* Launches that are recorded once and run many times: on a device one CUDA graph, on the host one after the other. */
#include "runtime/driver.h"

struct _GpufmtGraph {
  int           backend;
  int           nlaunches;
  GpufmtLaunch *launches; /* with words of their own, and no slots */
  int           repeats;  /* of all launches in one of the graph; 0: more may be added */
  const void   *stop;     /* as long as this word is 0, they are launched again; NULL: there is none */
  int64_t       generation;
  int           ntokens;
  int64_t      *tokens; /* of the leases that it was recorded from */
  PetscBool     stale;  /* one of them has gone */
  PetscBool     loops;  /* a launch of it ends by the word */
  void         *exec;   /* CUgraphExec */
  GpufmtGraph   next;
};

static GpufmtGraph graphs = NULL; /* all that there are, which are few */

PetscErrorCode GpufmtGraphCreate(int backend, GpufmtGraph *graph)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(graph));
  (*graph)->backend    = backend;
  (*graph)->generation = gpufmt_generation;
  (*graph)->next       = graphs;
  graphs               = *graph;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A lease goes: the memory that its plans point to will be that of others. */
void GpufmtGraphsForget(int64_t token)
{
  for (GpufmtGraph g = graphs; g; g = g->next)
    for (int k = 0; k < g->ntokens; k++)
      if (g->tokens[k] == token) g->stale = PETSC_TRUE;
}

/* whether all plans that it was recorded from are still there */
PetscBool GpufmtGraphIsCurrent(GpufmtGraph g)
{
  return (PetscBool)(g && !g->stale && (!g->ntokens || g->generation == gpufmt_generation));
}

static PetscErrorCode AddToken(GpufmtGraph g, const GpufmtLease *lease)
{
  PetscFunctionBegin;
  PetscCheck(GpufmtLeaseHolds(lease), PETSC_COMM_SELF, PETSC_ERR_ORDER, "A plan that has gone was added to a graph: plan again before");
  for (int k = 0; k < g->ntokens; k++)
    if (g->tokens[k] == lease->token) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscRealloc((size_t)(g->ntokens + 1) * sizeof(*g->tokens), &g->tokens));
  g->tokens[g->ntokens++] = lease->token;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a launch with the words that it would have in a replay now */
static PetscErrorCode CopyLaunch(const GpufmtLaunch *from, void *const slots[GPUFMT_NUM_SLOTS], GpufmtLaunch *to)
{
  PetscFunctionBegin;
  *to       = *from;
  to->slots = NULL;
  PetscCall(PetscMalloc2((size_t)from->nwords, &to->words, (size_t)from->nparams, &to->params));
  for (int32_t i = 0; i < from->nwords; i++) to->words[i] = from->slots[i] >= 0 ? (uint64_t)(uintptr_t)slots[from->slots[i]] : from->words[i];
  for (int32_t i = 0; i < from->nparams; i++) to->params[i] = to->words + ((uint64_t *)from->params[i] - from->words);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Adds the launches of a plan. Its words are copied: the plan may be replayed with other slots. Lease: that of the plan, NULL: it has
   none. */
PetscErrorCode GpufmtGraphAdd(GpufmtGraph g, const GpufmtPlan *plan, void *const slots[GPUFMT_NUM_SLOTS], const GpufmtLease *lease)
{
  PetscFunctionBegin;
  PetscCheck(!g->repeats, PETSC_COMM_SELF, PETSC_ERR_ORDER, "A plan was added to a graph that is instantiated: record another");
  if (lease) PetscCall(AddToken(g, lease));
  PetscCall(PetscRealloc((size_t)(g->nlaunches + plan->nlaunches) * sizeof(*g->launches), &g->launches));
  for (int64_t k = 0; k < plan->nlaunches; k++, g->nlaunches++) PetscCall(CopyLaunch(&plan->launches[k], slots, &g->launches[g->nlaunches]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#if PetscDefined(HAVE_CUDA)

/* one launch, after that which was added before, if any */
static CudaResult AddNode(const GpufmtLaunch *l, void *graph, void **before)
{
  CudaKernelNode node = {.function = l->function, .shared_bytes = l->shared_bytes, .params = l->params};
  void          *added;
  CudaResult     code;

  for (int d = 0; d < 3; d++) {
    node.grid[d]  = l->grid[d];
    node.block[d] = l->block[d];
  }
  code = gpufmt_driver.GraphAddKernelNode(&added, graph, before, *before ? 1 : 0, &node);
  if (!code) *before = added;
  return code;
}

/* all launches so many times, one after the other */
static CudaResult AddNodes(const struct _GpufmtGraph *g, int repeats, void *graph, void **before)
{
  CudaResult code = 0;

  for (int r = 0; r < repeats; r++)
    for (int k = 0; k < g->nlaunches && !code; k++) code = AddNode(&g->launches[k], graph, before);
  return code;
}

static PetscErrorCode AddLoop(const struct _GpufmtGraph *g, const void *stop, void *graph, const char **why_not)
{
  void        *slots[GPUFMT_NUM_SLOTS] = {NULL}, *before = NULL;
  GpufmtLoop   loop;
  GpufmtLaunch condition;
  CudaResult   code;

  PetscFunctionBegin;
  PetscCall(GpufmtLoopAdd(graph, &loop, why_not));
  if (*why_not) PetscFunctionReturn(PETSC_SUCCESS);
  slots[GPUFMT_SLOT_ALPHA] = (void *)(uintptr_t)loop.handle;
  slots[GPUFMT_SLOT_X]     = (void *)stop;
  PetscCall(CopyLaunch(loop.condition, slots, &condition));
  code = AddNodes(g, 1, loop.body, &before);
  if (!code) code = AddNode(&condition, loop.body, &before);
  if (code) *why_not = GpufmtDriverMessage(code);
  PetscCall(PetscFree2(condition.words, condition.params));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What is launched needs nothing of the graph that it is made from, which goes, and neither do the words of the launches. A loop, if there is a word
   that ends it; where that cannot be, it is said why. */
static PetscErrorCode Make(const struct _GpufmtGraph *g, int repeats, const void *stop, void **exec, const char **why_not)
{
  void          *graph = NULL, *before = NULL;
  const char    *what = "cuGraphAddKernelNode";
  PetscErrorCode ierr = PETSC_SUCCESS;
  CudaResult     code = 0;

  PetscFunctionBegin;
  CallDriver("cuGraphCreate", gpufmt_driver.GraphCreate(&graph, 0));
  if (stop) ierr = AddLoop(g, stop, graph, why_not);
  else code = AddNodes(g, repeats, graph, &before);
  if (!ierr && !code && !*why_not) {
    what = "cuGraphInstantiate";
    code = gpufmt_driver.GraphInstantiate(exec, graph, 0);
  }
  CallDriver("cuGraphDestroy", gpufmt_driver.GraphDestroy(graph));
  PetscCall(ierr);
  if (stop && code) *why_not = GpufmtDriverMessage(code);
  else CallDriver(what, code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Instantiate(GpufmtGraph g, int repeats, const void *stop, void *stream)
{
  void       *exec    = NULL;
  const char *why_not = NULL;
  CudaResult  code;

  PetscFunctionBegin;
  if (stop) PetscCall(Make(g, 1, stop, &exec, &why_not));
  if (exec) PetscCall(PetscInfo(NULL, "A graph is a loop that ends by itself\n"));
  else if (stop) PetscCall(PetscInfo(NULL, "A graph runs its launches %d times, and is no loop that ends by itself: %s\n", repeats, why_not));
  why_not  = NULL;
  g->loops = (PetscBool)(exec != NULL);
  if (!exec) PetscCall(Make(g, repeats, NULL, &exec, &why_not));
  code = gpufmt_driver.GraphUpload(exec, stream);
  if (code) (void)gpufmt_driver.GraphExecDestroy(exec);
  CallDriver("cuGraphUpload", code);
  g->exec = exec;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode LaunchOnDevice(GpufmtGraph g, void *stream)
{
  PetscFunctionBegin;
  PetscCall(PetscLogGpuTimeBegin());
  CallDriver("cuGraphLaunch", gpufmt_driver.GraphLaunch(g->exec, stream));
  PetscCall(PetscLogGpuTimeEnd());
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ExecDestroy(GpufmtGraph g)
{
  PetscFunctionBegin;
  if (g->exec) CallDriver("cuGraphExecDestroy", gpufmt_driver.GraphExecDestroy(g->exec)); /* one that runs goes later */
  PetscFunctionReturn(PETSC_SUCCESS);
}

#else

static PetscErrorCode Instantiate(GpufmtGraph g, int repeats, const void *stop, void *stream)
{
  return GpufmtNoDevice();
}

static PetscErrorCode LaunchOnDevice(GpufmtGraph g, void *stream)
{
  return GpufmtNoDevice();
}

static PetscErrorCode ExecDestroy(GpufmtGraph g)
{
  return PETSC_SUCCESS; /* there is none */
}

#endif

static void LaunchOnHost(GpufmtGraph g)
{
  int times = 0;

  do {
    for (int k = 0; k < g->nlaunches; k++) {
      const GpufmtLaunch *l = &g->launches[k];

      ((GpufmtHostFunction)(uintptr_t)l->function)(l->grid, l->block, l->params);
    }
    times++;
  } while (g->stop ? *(const volatile int64_t *)g->stop == 0 : times < g->repeats);
}

/* No more is added. A launch of the graph is all that was added, so many times. `stop`: NULL, or a word of 64 bits on the backend, which ends it where
   GpufmtGraphLoops(): all is launched once, and again as long as the word is 0. Elsewhere it has no effect. */
PetscErrorCode GpufmtGraphInstantiate(GpufmtGraph g, int repeats, const void *stop, void *stream)
{
  PetscFunctionBegin;
  PetscCheck(!g->repeats, PETSC_COMM_SELF, PETSC_ERR_ORDER, "A graph was instantiated twice: record another");
  PetscCheck(repeats > 0, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE, "A graph was to run its launches %d times: at least once is needed", repeats);
  PetscCheck(GpufmtGraphIsCurrent(g), PETSC_COMM_SELF, PETSC_ERR_ORDER, "Plans of a graph went while it was recorded: record it again");
  if (g->backend == GPUFMT_BACKEND_CUDA) PetscCall(Instantiate(g, repeats, stop, stream));
  else g->loops = (PetscBool)(stop != NULL);
  g->repeats = repeats;
  g->stop    = stop;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether a launch ends by the word that it was instantiated with */
PetscBool GpufmtGraphLoops(GpufmtGraph g)
{
  return g->loops;
}

PetscErrorCode GpufmtGraphLaunch(GpufmtGraph g, void *stream)
{
  PetscFunctionBegin;
  PetscCheck(g->repeats, PETSC_COMM_SELF, PETSC_ERR_ORDER, "A graph was launched that is not instantiated");
  PetscCheck(GpufmtGraphIsCurrent(g), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "A graph was launched after plans of it have gone, with a matrix or its pattern: record it again");
  if (g->backend == GPUFMT_BACKEND_CUDA) PetscCall(LaunchOnDevice(g, stream));
  else LaunchOnHost(g);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NULL: nothing to do */
PetscErrorCode GpufmtGraphDestroy(GpufmtGraph *graph)
{
  GpufmtGraph g = *graph;

  PetscFunctionBegin;
  if (!g) PetscFunctionReturn(PETSC_SUCCESS);
  *graph = NULL;
  for (GpufmtGraph *other = &graphs; *other; other = &(*other)->next)
    if (*other == g) {
      *other = g->next;
      break;
    }
  for (int k = 0; k < g->nlaunches; k++) PetscCall(PetscFree2(g->launches[k].words, g->launches[k].params));
  PetscCall(PetscFree(g->launches));
  PetscCall(PetscFree(g->tokens));
  PetscCall(ExecDestroy(g));
  PetscCall(PetscFree(g));
  PetscFunctionReturn(PETSC_SUCCESS);
}
