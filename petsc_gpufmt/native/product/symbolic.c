/* The symbolic phase of sparse products: the planner finds the pattern of the result and plans the numeric phase. Values are not touched:
   those of an operand may not exist yet. */
#include "product/product.h"
#include <inttypes.h>
#include <petscpc.h>

PetscLogEvent GPUFMT_Symbolic = 0;

static PetscErrorCode ProductDestroy(void *given)
{
  GpufmtProduct *p = (GpufmtProduct *)GpufmtProductTake(given);

  return GpufmtProductDestroy(&p);
}

/* what the sequential product keeps by which C was made, NULL: none of ours */
const GpufmtProduct *GpufmtProductOf(Mat C)
{
  return C->product && C->product->destroy == ProductDestroy ? (const GpufmtProduct *)C->product->data : NULL;
}

static int PlannerProduct(MatProductType type)
{
  switch (type) {
  case MATPRODUCT_AtB: return GPUFMT_PRODUCT_ATB;
  case MATPRODUCT_ABt: return GPUFMT_PRODUCT_ABT;
  case MATPRODUCT_PtAP: return GPUFMT_PRODUCT_PTAP;
  case MATPRODUCT_RARt: return GPUFMT_PRODUCT_RART;
  case MATPRODUCT_ABC: return GPUFMT_PRODUCT_ABC;
  default: return GPUFMT_PRODUCT_AB;
  }
}

/* -info of matrices says what a product takes, and that of preconditioners what those of multigrid take */
static PetscErrorCode WhetherDescribed(Mat C, int32_t *described)
{
  PetscBool of_matrices, of_preconditioners;

  PetscFunctionBegin;
  PetscCall(PetscInfoEnabled(((PetscObject)C)->classid, &of_matrices));
  PetscCall(PetscInfoEnabled(PC_CLASSID, &of_preconditioners));
  *described = of_matrices || of_preconditioners;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ProductPlan(Mat C, GpufmtProduct *p)
{
  GpufmtProductRequest request = {0};
  GpufmtProductAnswer *answer  = &p->answer;
  Mat                  operands[GPUFMT_MAX_OPERANDS];
  const int            n = GpufmtProductOperands(C->product, operands);
  char                 options[512];
  GpufmtDigestion      digestions[GPUFMT_MAX_OPERANDS] = {NULL};
  PetscErrorCode       ierr                            = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(GpufmtProductOptionsCollect(C, sizeof(options), options));
  request.product   = p->product;
  request.noperands = n;
  request.options   = options;
  PetscCall(WhetherDescribed(C, &request.described));
  for (int k = 0; k < n; k++) PetscCall(GpufmtOperandGet(operands[k], p->backend, &request.operands[k]));
  for (int k = 0; k < n && !ierr; k++) ierr = GpufmtProductRecordBegin(p, k, operands, &digestions[k]); /* beside the planner */
  if (!ierr) ierr = GpufmtPlannerAsk(GPUFMT_ASK_PRODUCT, p->backend, GPUFMT_Symbolic, C, &request.place, &answer->outcome, &p->lease);
  for (int k = 0; k < n; k++) PetscCall(GpufmtProductRecordEnd(p, k, operands, &digestions[k])); /* threads read the patterns until then */
  for (int k = 0; k < n; k++) PetscCall(GpufmtOperandRestore(operands[k], &request.operands[k]));
  PetscCall(ierr);
  PetscCall(PetscInfo(C, "rmerge on %s: %s, %" PRId64 " bytes needed at most as predicted, %" PRId64 " bytes kept for the numeric phase\n%s\n",
                      p->backend == GPUFMT_BACKEND_CUDA ? "the device" : "the host", answer->summary, answer->bytes_needed, answer->bytes_held,
                      answer->detail));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* block sizes of the result, as MatProductSymbolic() sets them; products inside those of parallel matrices do not come through there */
static PetscErrorCode ProductBlockSizes(Mat C, int planned)
{
  const Mat_Product *product = C->product;
  PetscLayout        rows, columns;

  PetscFunctionBegin;
  switch (planned) {
  case GPUFMT_PRODUCT_ATB:
    rows    = product->A->cmap;
    columns = product->B->cmap;
    break;
  case GPUFMT_PRODUCT_ABT:
    rows    = product->A->rmap;
    columns = product->B->rmap;
    break;
  case GPUFMT_PRODUCT_PTAP: rows = columns = product->B->cmap; break;
  case GPUFMT_PRODUCT_RART: rows = columns = product->B->rmap; break;
  case GPUFMT_PRODUCT_ABC:
  case GPUFMT_PRODUCT_ATBC:
    rows    = planned == GPUFMT_PRODUCT_ABC ? product->A->rmap : product->A->cmap;
    columns = product->C->cmap;
    break;
  default: rows = product->A->rmap; columns = product->B->cmap;
  }
  PetscCall(MatSetBlockSizes(C, PetscAbs(rows->bs), PetscAbs(columns->bs)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* managed arrays with the pattern of the answer; NULL where C is to have arrays of PETSc's own */
static PetscErrorCode ProductManaged(Mat C, const GpufmtPlannedPattern *pattern, PetscBool internal, GpufmtManaged **managed)
{
  PetscFunctionBegin;
  *managed = NULL;
  if (GpufmtFormatFind(((PetscObject)C->product->A)->type_name)) PetscCall(GpufmtResultManaged(C, pattern, internal, managed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* C gets the pattern of the answer and the type of A */
static PetscErrorCode ProductSetPattern(Mat C, int planned, const GpufmtPlannedPattern *pattern, GpufmtManaged *managed)
{
  PetscInt nrows, ncols;

  PetscFunctionBegin;
  PetscCall(PetscIntCast(pattern->nrows, &nrows));
  PetscCall(PetscIntCast(pattern->ncols, &ncols));
  PetscCall(MatSetSizes(C, nrows, ncols, nrows, ncols));
  PetscCall(ProductBlockSizes(C, planned));
  PetscCall(MatSetType(C, ((PetscObject)C->product->A)->type_name));
  PetscCall(GpufmtResultSetPattern(C, pattern, managed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Begins to send values of operands while the host makes C, in products that go on to the numeric phase at once, as MatMatMult() and its kin do;
   GpufmtDeviceValuesEnd() waits for them. */
static PetscErrorCode ProductSendValues(Mat C, const GpufmtProduct *p)
{
  Mat        operands[GPUFMT_MAX_OPERANDS], assembled[GPUFMT_MAX_OPERANDS];
  PetscCount counts[GPUFMT_MAX_OPERANDS];
  const int  n          = GpufmtProductOperands(C->product, operands);
  int        nassembled = 0;
  void      *stream;

  PetscFunctionBegin;
  if (p->backend != GPUFMT_BACKEND_CUDA || !C->product->api_user) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < n; k++) {
    if (!operands[k]->assembled) continue;
    counts[nassembled]      = p->operands[k].pattern.nnz;
    assembled[nassembled++] = operands[k];
  }
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceValuesBegin(nassembled, assembled, counts, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* C changes only after the planner has succeeded and memory is there. `product`: GPUFMT_PRODUCT_..., of the operands of C->product, whose type
   tells how many there are. `internal`: no user sees C. */
PetscErrorCode GpufmtProductSymbolic(Mat C, int product, int backend, PetscBool internal)
{
  GpufmtManaged       *managed = NULL;
  GpufmtProduct       *p;
  GpufmtPlannedPattern pattern;
  PetscErrorCode       ierr, sent;

  PetscFunctionBegin;
  PetscCall(PetscNew(&p));
  p->product = product;
  p->backend = backend;
  ierr       = ProductPlan(C, p);
  pattern    = GpufmtProductPattern(p);
  if (!ierr) ierr = ProductManaged(C, &pattern, internal, &managed);
  if (!ierr && managed) ierr = ProductSendValues(C, p); /* else the pattern of C is downloaded next, by the same threads */
  if (ierr) {
    PetscCall(GpufmtManagedRelease(&managed));
    PetscCall(GpufmtProductDestroy(&p));
  }
  PetscCall(ierr);
  C->product->data    = p;
  C->product->destroy = ProductDestroy;
  ierr                = ProductSetPattern(C, product, &pattern, managed);
  sent                = GpufmtDeviceValuesEnd();
  if (!ierr) ierr = sent;
  if (!ierr && managed) /* PETSc has worked beside the device until here */
    ierr = GpufmtManagedSettle((PetscBool)(backend == GPUFMT_BACKEND_CUDA && !managed->internal));
  PetscCall(GpufmtManagedRelease(&managed)); /* C has its own reference */
  PetscCall(ierr);
  PetscCall(PetscObjectGetId((PetscObject)C, &p->result_id));
  PetscCall(MatGetNonzeroState(C, &p->result_state));
  GpufmtPatternHold(C, backend, p->answer.held);
  C->ops->productsymbolic = MatProductSymbolic_SeqAIJGpufmt; /* MatSetType() has reset the operations */
  C->ops->productnumeric  = MatProductNumeric_SeqAIJGpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatProductSymbolic_SeqAIJGpufmt(Mat C)
{
  int backend;

  PetscFunctionBegin;
  PetscCall(GpufmtProductBackend(C, &backend));
  PetscCall(GpufmtProductSymbolic(C, PlannerProduct(C->product->type), backend, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}
