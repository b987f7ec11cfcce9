/* Graphs of launches, on the host and through a driver that keeps nodes and runs them: what runs, with which arguments, and what is left. */
#define PETSC_HAVE_CUDA 1

/* the files under test; they are compiled for devices whatever the PETSc at hand is for */
#include "runtime/graph.c"
#include "runtime/lease.c"
#include "runtime/loop.c"

#define Check(what) PetscCheckAbort(what, PETSC_COMM_SELF, PETSC_ERR_PLIB, "not so: %s", #what)

enum { MOST_NODES = 64, THE_GRAPH = 0x6A, THE_BODY = 0x6B, THE_EXEC = 0x6E, THE_STREAM = 0x50, THE_CONTEXT = 0xC0, THE_LOOP = 77, FAILURE = 999 };

GpufmtDriver gpufmt_driver;

const char *GpufmtDriverMessage(CudaResult code)
{
  return "made by the test";
}

static int64_t released = 0;

PetscErrorCode GpufmtPlannerRelease(int64_t token)
{
  released = token;
  return PETSC_SUCCESS;
}

PetscErrorCode GpufmtPlannerReleaseAll(void)
{
  return PETSC_SUCCESS;
}

/* a number goes into a log: sum of two words of a struct, and of one that is an argument of its own */
typedef struct {
  int64_t *log, *count, first, second;
} Numbers;

static void Note(const uint32_t grid[3], const uint32_t block[3], void **params)
{
  const Numbers *n = (const Numbers *)params[0];

  n->log[(*n->count)++] = (int64_t)(grid[0] * 1000 + block[0] * 100) + n->first + n->second + *(int64_t *)params[1];
}

/* makes the word 1 when so many numbers are there */
static void Stop(const uint32_t grid[3], const uint32_t block[3], void **params)
{
  if (**(int64_t **)params[1] >= *(int64_t *)params[2]) **(int64_t **)params[0] = 1;
}

/* of a loop: whether it goes on */
static int condition;

static void SetCondition(const uint32_t grid[3], const uint32_t block[3], void **params)
{
  Check(grid[0] == 1 && block[0] == 1 && *(uint64_t *)params[0] == THE_LOOP);
  condition = **(int64_t **)params[1] == 0;
}

static uint64_t      condition_words[2];
static const int32_t condition_slots[2]  = {GPUFMT_SLOT_ALPHA, GPUFMT_SLOT_X};
static void         *condition_params[2] = {condition_words, &condition_words[1]};
static GpufmtLaunch  condition_launch    = {
  .function = (void *)SetCondition,
  .grid     = {1, 1, 1},
  .block    = {1, 1, 1},
  .nwords   = 2,
  .nparams  = 2,
  .words    = condition_words,
  .slots    = condition_slots,
  .params   = condition_params
};

static int         nasks   = 0;
static const char *why_not = NULL;

PetscErrorCode GpufmtPlannerAsk(int ask, int backend, PetscLogEvent event, Mat A, GpufmtPlace *request, GpufmtOutcome *answer, GpufmtLease *lease)
{
  GpufmtLoopAnswer *a = (GpufmtLoopAnswer *)answer;

  Check(ask == GPUFMT_ASK_LOOP && backend == GPUFMT_BACKEND_CUDA);
  nasks++;
  *a = (GpufmtLoopAnswer){0};
  if (why_not) (void)snprintf(a->why_not, sizeof(a->why_not), "%s", why_not);
  else a->condition = (GpufmtPlan){.nlaunches = 1, .launches = &condition_launch};
  GpufmtLeaseTake(lease, 99);
  return PETSC_SUCCESS;
}

/* the driver: arguments are copied as nodes are added, as many as the function has */
typedef struct {
  CudaKernelNode node;
  uint64_t       words[6];
} Node;

static Node nodes[MOST_NODES];
static bool is_loop = false;
static int  nnodes = 0, ngraphs = 0, nexecs = 0, nuploads = 0, calls = 0, failing = -1;

static CudaResult Called(void)
{
  return calls++ == failing ? FAILURE : 0;
}

static CudaResult GraphCreate(void **graph, unsigned flags)
{
  const CudaResult code = Called();

  Check(!flags && !ngraphs);
  if (code) return code;
  ngraphs++;
  nnodes  = 0;
  is_loop = false;
  *graph  = (void *)THE_GRAPH;
  return 0;
}

static CudaResult GraphAddKernelNode(void **added, void *graph, void *const before[], size_t nbefore, const CudaKernelNode *node)
{
  Node *n = &nodes[nnodes];

  Check(graph == (is_loop ? (void *)THE_BODY : (void *)THE_GRAPH) && nnodes < MOST_NODES && !node->extra && !node->kernel && !node->context);
  Check(nnodes ? nbefore == 1 && *before == &nodes[nnodes - 1] : nbefore == 0);
  n->node = *node;
  if (node->function == (void *)Note) {
    memcpy(n->words, node->params[0], sizeof(Numbers));
    memcpy(&n->words[4], node->params[1], 8);
  } else
    for (int k = 0; k < (node->function == (void *)Stop ? 3 : 2); k++) memcpy(&n->words[k], node->params[k], 8);
  nnodes++;
  *added = n;
  return Called();
}

static CudaResult GraphInstantiate(void **exec, void *graph, unsigned long long flags)
{
  const CudaResult code = Called();

  Check(graph == (void *)THE_GRAPH && !flags);
  if (code) return code;
  nexecs++;
  *exec = (void *)THE_EXEC;
  return 0;
}

static CudaResult GraphUpload(void *exec, void *stream)
{
  Check(exec == (void *)THE_EXEC && stream == (void *)THE_STREAM);
  nuploads++;
  return Called();
}

static CudaResult GraphLaunch(void *exec, void *stream)
{
  Check(exec == (void *)THE_EXEC && stream == (void *)THE_STREAM && !ngraphs);
  condition = is_loop;
  do {
    for (int k = 0; k < nnodes; k++) {
      Node *n            = &nodes[k];
      void *of_note[2]   = {n->words, &n->words[4]};
      void *of_others[3] = {n->words, &n->words[1], &n->words[2]};

      ((GpufmtHostFunction)(uintptr_t)n->node.function)(n->node.grid, n->node.block, n->node.function == (void *)Note ? of_note : of_others);
    }
  } while (condition);
  return Called();
}

static CudaResult GraphDestroy(void *graph)
{
  Check(graph == (void *)THE_GRAPH);
  ngraphs--;
  return 0;
}

static CudaResult GraphExecDestroy(void *exec)
{
  Check(exec == (void *)THE_EXEC);
  nexecs--;
  return 0;
}

static CudaResult CtxGetCurrent(void **context)
{
  *context = (void *)THE_CONTEXT;
  return Called();
}

static CudaResult GraphConditionalHandleCreate(uint64_t *handle, void *graph, void *context, unsigned value, unsigned flags)
{
  Check(graph == (void *)THE_GRAPH && context == (void *)THE_CONTEXT && value == 1 && flags == CUDA_CONDITION_DEFAULT);
  *handle = THE_LOOP;
  return Called();
}

static CudaResult GraphAddNode(void **added, void *graph, void *const before[], const void *edges, size_t nbefore, CudaGraphNode *node)
{
  static void *bodies[1] = {(void *)THE_BODY};

  Check(graph == (void *)THE_GRAPH && !nbefore && !edges && !nnodes && node->type == CUDA_NODE_CONDITIONAL && !node->reserved_word);
  Check(node->loop.handle == THE_LOOP && node->loop.kind == CUDA_CONDITION_WHILE && node->loop.nbodies == 1);
  Check(node->loop.context == (void *)THE_CONTEXT);
  node->loop.bodies = bodies;
  is_loop           = true;
  *added            = bodies;
  return Called();
}

static void StartDriver(void)
{
  gpufmt_driver = (GpufmtDriver){.GraphCreate                  = GraphCreate,
                                 .GraphAddKernelNode           = GraphAddKernelNode,
                                 .GraphInstantiate             = GraphInstantiate,
                                 .GraphUpload                  = GraphUpload,
                                 .GraphLaunch                  = GraphLaunch,
                                 .GraphDestroy                 = GraphDestroy,
                                 .GraphExecDestroy             = GraphExecDestroy,
                                 .CtxGetCurrent                = CtxGetCurrent,
                                 .GraphConditionalHandleCreate = GraphConditionalHandleCreate,
                                 .GraphAddNode                 = GraphAddNode};
}

static int64_t log_of[MOST_NODES], count, stopped;

/* two launches of Note: the numbers 1000 * grid + 100 * block + x + 7 + 30, and that with 8 for 7 */
static uint64_t      note_words[2][5];
static const int32_t note_slots[5] = {-1, -1, GPUFMT_SLOT_X, -1, -1};
static void         *note_params[2][2];
static GpufmtLaunch  note_launches[2];

static GpufmtPlan Notes(void)
{
  for (int k = 0; k < 2; k++) {
    const uint64_t words[5] = {(uint64_t)(uintptr_t)log_of, (uint64_t)(uintptr_t)&count, 0, 7 + (uint64_t)k, 30};

    memcpy(note_words[k], words, sizeof(words));
    note_params[k][0] = note_words[k];
    note_params[k][1] = &note_words[k][4];
    note_launches[k]  = (GpufmtLaunch){
      .function = (void *)Note,
      .grid     = {2, 1, 1},
      .block    = {3, 1, 1},
      .nwords   = 5,
      .nparams  = 2,
      .words    = note_words[k],
      .slots    = note_slots,
      .params   = note_params[k]
    };
  }
  count = 0;
  return (GpufmtPlan){.nlaunches = 2, .launches = note_launches};
}

static uint64_t      stop_words[3];
static const int32_t stop_slots[3]  = {-1, -1, -1};
static void         *stop_params[3] = {stop_words, &stop_words[1], &stop_words[2]};
static GpufmtLaunch  stop_launch =
  {.function = (void *)Stop, .nwords = 3, .nparams = 3, .words = stop_words, .slots = stop_slots, .params = stop_params};

static GpufmtPlan Stops(int64_t at)
{
  stop_words[0] = (uint64_t)(uintptr_t)&stopped;
  stop_words[1] = (uint64_t)(uintptr_t)&count;
  stop_words[2] = (uint64_t)at;
  return (GpufmtPlan){.nlaunches = 1, .launches = &stop_launch};
}

static GpufmtGraph Recorded(int backend, const GpufmtLease *lease)
{
  GpufmtPlan  plan                    = Notes();
  void       *slots[GPUFMT_NUM_SLOTS] = {(void *)40};
  GpufmtGraph g;

  Check(!GpufmtGraphCreate(backend, &g));
  Check(!GpufmtGraphAdd(g, &plan, slots, lease));
  slots[GPUFMT_SLOT_X] = (void *)50;
  plan.nlaunches       = 1;
  Check(!GpufmtGraphAdd(g, &plan, slots, lease));
  memset(note_words, 0xEE, sizeof(note_words)); /* what happens to the plan afterwards does not matter */
  memset(note_launches, 0xEE, sizeof(note_launches));
  return g;
}

static void Destroy(GpufmtGraph *g)
{
  Check(!GpufmtGraphDestroy(g) && !*g && !nexecs && !ngraphs);
}

/* launches run in the order in which they were added, as often as was asked for, in each launch of the graph */
static void Order(int backend)
{
  static const int64_t expected[3] = {2377, 2378, 2387};
  GpufmtGraph          g           = Recorded(backend, NULL);

  nuploads = 0;
  Check(!GpufmtGraphInstantiate(g, 4, NULL, (void *)THE_STREAM) && !GpufmtGraphLoops(g));
  Check(!count && nuploads == (backend == GPUFMT_BACKEND_CUDA));
  for (int n = 1; n <= 3; n++) {
    Check(!GpufmtGraphLaunch(g, (void *)THE_STREAM) && count == 12 * n);
    for (int k = 0; k < count; k++) Check(log_of[k] == expected[k % 3]);
  }
  Destroy(&g);
  Check(!GpufmtGraphDestroy(&g));
}

/* the word ends a launch, in which all is launched once at least */
static void Loop(int backend)
{
  const int64_t stops_at[] = {0, 3, 4, 11};

  for (int k = 0; k < 4; k++) {
    GpufmtGraph      g    = Recorded(backend, NULL);
    const GpufmtPlan plan = Stops(stops_at[k]);

    Check(!GpufmtGraphAdd(g, &plan, NULL, NULL));
    Check(!GpufmtGraphInstantiate(g, 2, &stopped, (void *)THE_STREAM) && GpufmtGraphLoops(g));
    for (int n = 0; n < 2; n++) {
      count   = 0;
      stopped = 0;
      Check(!GpufmtGraphLaunch(g, (void *)THE_STREAM) && stopped);
      Check(count == PetscMax(3, (stops_at[k] + 2) / 3 * 3));
    }
    Destroy(&g);
  }
}

/* where the device has no such loop, a launch is as many as was asked for */
static void NoLoop(void)
{
  GpufmtGraph      g    = Recorded(GPUFMT_BACKEND_CUDA, NULL);
  const GpufmtPlan plan = Stops(1);

  Check(!GpufmtGraphAdd(g, &plan, NULL, NULL));
  Check(!GpufmtGraphInstantiate(g, 2, &stopped, (void *)THE_STREAM) && !GpufmtGraphLoops(g));
  stopped = 0;
  Check(!GpufmtGraphLaunch(g, (void *)THE_STREAM) && stopped && count == 6);
  Destroy(&g);
}

static void Says(const char reason[])
{
  GpufmtLoop  loop;
  const char *found = NULL;

  calls = 0;
  Check(!GpufmtLoopAdd((void *)THE_GRAPH, &loop, &found) && found && !strcmp(found, reason));
}

/* each reason for it: the planner has no kernel, a call of the driver fails, the driver is too old */
static void NoLoops(void)
{
  why_not = "no kernel";
  Check(!GpufmtLeaseDrop(&asked.lease));
  nasks = 0;
  for (int k = 0; k < 2; k++) NoLoop();
  Check(nasks == 1);
  Says("no kernel");
  why_not = NULL;
  Check(!GpufmtLeasesForget(PETSC_TRUE));     /* the next asks again */
  for (failing = 1; failing < 9; failing++) { /* to take the context, a handle, the node, five nodes in it, to instantiate */
    calls = 0;
    NoLoop();
  }
  failing = 0;
  Says("made by the test");
  failing                                    = -1;
  gpufmt_driver.GraphConditionalHandleCreate = NULL;
  NoLoop();
  Says("the driver is older than such loops");
  StartDriver();
  gpufmt_driver.GraphAddNode = NULL;
  NoLoop();
  StartDriver();
}

/* the plans of an empty matrix have no launches */
static void Empty(int backend)
{
  const GpufmtPlan plan = {0};
  GpufmtGraph      g;

  Check(!GpufmtGraphCreate(backend, &g) && !GpufmtGraphAdd(g, &plan, NULL, NULL));
  Check(!GpufmtGraphInstantiate(g, 3, NULL, (void *)THE_STREAM) && !GpufmtGraphLaunch(g, (void *)THE_STREAM));
  Destroy(&g);
}

/* a graph ends with any of its leases, and with the generation of leases, and others go on */
static void Leases(int backend)
{
  GpufmtLease a, b, moved;
  GpufmtGraph of_a, of_b, of_none;
  GpufmtPlan  plan                    = Notes();
  void       *slots[GPUFMT_NUM_SLOTS] = {NULL};

  Check(!GpufmtGraphIsCurrent(NULL));
  GpufmtLeaseTake(&a, 11);
  GpufmtLeaseTake(&b, 12);
  of_a = Recorded(backend, &a);
  plan = Notes();
  Check(!GpufmtGraphAdd(of_a, &plan, slots, &b));
  of_b    = Recorded(backend, &b);
  of_none = Recorded(backend, NULL);
  Check(!GpufmtGraphInstantiate(of_a, 1, NULL, (void *)THE_STREAM) && GpufmtGraphIsCurrent(of_a));
  GpufmtLeaseMove(&a, &moved);
  Check(!GpufmtLeaseDrop(&a) && GpufmtGraphIsCurrent(of_a));
  Check(!GpufmtLeaseDrop(&moved) && released == 11);
  Check(!GpufmtGraphIsCurrent(of_a) && GpufmtGraphIsCurrent(of_b));
  Check(GpufmtGraphLaunch(of_a, (void *)THE_STREAM) == PETSC_ERR_ORDER && !count);
  Check(GpufmtGraphAdd(of_b, &plan, slots, &moved) == PETSC_ERR_ORDER); /* of a plan that has gone */
  Check(!GpufmtLeasesForget(PETSC_TRUE));
  Check(!GpufmtGraphIsCurrent(of_b) && GpufmtGraphIsCurrent(of_none));
  Check(GpufmtGraphInstantiate(of_b, 1, NULL, (void *)THE_STREAM) == PETSC_ERR_ORDER);
  Check(!GpufmtGraphDestroy(&of_b)); /* not the first in the list, and not the last */
  Check(!GpufmtGraphDestroy(&of_none) && !GpufmtGraphDestroy(&of_a));
  Check(!nexecs && !ngraphs && !graphs);
}

static void Orders(int backend)
{
  GpufmtGraph g    = Recorded(backend, NULL);
  GpufmtPlan  plan = {0};

  Check(GpufmtGraphLaunch(g, (void *)THE_STREAM) == PETSC_ERR_ORDER);
  Check(GpufmtGraphInstantiate(g, 0, NULL, (void *)THE_STREAM) == PETSC_ERR_ARG_OUTOFRANGE);
  Check(!GpufmtGraphInstantiate(g, 1, NULL, (void *)THE_STREAM));
  Check(GpufmtGraphInstantiate(g, 1, NULL, (void *)THE_STREAM) == PETSC_ERR_ORDER);
  Check(GpufmtGraphAdd(g, &plan, NULL, NULL) == PETSC_ERR_ORDER);
  Destroy(&g);
}

/* each call of the driver in its turn: 1 to create, 6 nodes, to instantiate, to upload, to launch; nothing is left, and nothing has run */
static void Failures(void)
{
  int ncalls = 0;

  for (failing = 0; failing < 10; failing++) {
    GpufmtGraph    g = Recorded(GPUFMT_BACKEND_CUDA, NULL);
    PetscErrorCode ierr;

    calls = 0;
    ierr  = GpufmtGraphInstantiate(g, 2, NULL, (void *)THE_STREAM);
    Check(ierr == (failing < 9 ? PETSC_ERR_GPU : PETSC_SUCCESS) && !ngraphs);
    if (ierr) Check(GpufmtGraphLaunch(g, (void *)THE_STREAM) == PETSC_ERR_ORDER && !count && !nexecs);
    else Check(GpufmtGraphLaunch(g, (void *)THE_STREAM) == PETSC_ERR_GPU);
    ncalls = calls;
    Destroy(&g);
  }
  failing = -1;
  Check(ncalls == 10);
}

int main(void)
{
  StartDriver();
  Check(!PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
  for (int backend = 0; backend < GPUFMT_NUM_BACKENDS; backend++) {
    Order(backend);
    Empty(backend);
    Leases(backend);
    Orders(backend);
    Loop(backend);
  }
  Check(nasks == 1);
  NoLoops();
  Failures();
  Check(!PetscPopErrorHandler());
  printf("passed\n");
  return 0;
}
