/* A loop in a CUDA graph: a node with a graph of its own, its body, which runs until a kernel in it says that it does not go on. */
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)

static struct {
  GpufmtLease      lease;
  GpufmtLoopAnswer answer;
} asked;

static CudaResult AddLoopNode(void *graph, GpufmtLoop *loop)
{
  CudaGraphNode node = {
    .type = CUDA_NODE_CONDITIONAL, .loop = {.kind = CUDA_CONDITION_WHILE, .nbodies = 1}
  };
  CudaResult code = gpufmt_driver.CtxGetCurrent(&node.loop.context);
  void      *added;

  if (!code) code = gpufmt_driver.GraphConditionalHandleCreate(&loop->handle, graph, node.loop.context, 1, CUDA_CONDITION_DEFAULT);
  node.loop.handle = loop->handle;
  if (!code) code = gpufmt_driver.GraphAddNode(&added, graph, NULL, NULL, 0, &node);
  if (!code) loop->body = node.loop.bodies[0];
  return code;
}

/* Adds a loop with an empty body to an empty graph. Where that cannot be, it is said why. */
PetscErrorCode GpufmtLoopAdd(void *graph, GpufmtLoop *loop, const char **why_not)
{
  GpufmtLoopRequest request = {0};
  CudaResult        code;

  PetscFunctionBegin;
  *why_not = "the driver is older than such loops";
  if (!gpufmt_driver.GraphConditionalHandleCreate || !gpufmt_driver.GraphAddNode) PetscFunctionReturn(PETSC_SUCCESS);
  if (!GpufmtLeaseHolds(&asked.lease))
    PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_LOOP, GPUFMT_BACKEND_CUDA, -1, NULL, &request.place, &asked.answer.outcome, &asked.lease));
  *why_not = asked.answer.why_not;
  if (!asked.answer.condition.nlaunches) PetscFunctionReturn(PETSC_SUCCESS);
  code            = AddLoopNode(graph, loop);
  *why_not        = code ? GpufmtDriverMessage(code) : NULL;
  loop->condition = asked.answer.condition.launches;
  PetscFunctionReturn(PETSC_SUCCESS);
}

#endif
