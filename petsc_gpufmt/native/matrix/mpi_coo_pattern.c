/* The pattern of a parallel matrix from coordinates, sorted by the planner on the device: PETSc sorts them on the host, with one core, and goes over all
   rows there. The diagonal block is made of coordinates where they are, and of those that other ranks have sent; the off-diagonal block of the few
   that are on the host. */
#include "matrix/matrix.h"

/* the entries of the off-diagonal block, in its rows and columns */
typedef struct {
  PetscInt  n, nghosts;
  PetscInt *rows, *columns, *numbers; /* [n], the last those of their values: received ones come after all that are given */
  PetscInt *ghosts;                   /* [nghosts] the columns, ascending */
} Offdiag;

/* what the matrix is to have */
typedef struct {
  GpufmtParallelSums *sums;
  GpufmtManaged      *managed[2];
  Mat                 blocks[2];
} Made;

static PetscErrorCode OffdiagFree(Offdiag *o)
{
  PetscFunctionBegin;
  PetscCall(PetscFree3(o->rows, o->columns, o->numbers));
  PetscCall(PetscFree(o->ghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode OffdiagList(Mat A, PetscCount n, const GpufmtCooExchange *e, Offdiag *o)
{
  const PetscInt *rows = (const PetscInt *)e->outside.rows, *columns = (const PetscInt *)e->outside.cols;
  const PetscInt *numbers = (const PetscInt *)e->outside.numbers;
  const PetscInt  most    = (PetscInt)e->outside.count - e->nsent + e->nreceived;

  PetscFunctionBegin;
  PetscCall(PetscMalloc3(most, &o->rows, most, &o->columns, most, &o->numbers));
  for (PetscInt k = 0; k < e->outside.count; k++) {
    if (e->owners[k] != e->rank) continue;
    o->rows[o->n]      = rows[k] - A->rmap->rstart;
    o->columns[o->n]   = columns[k];
    o->numbers[o->n++] = numbers[k];
  }
  for (PetscInt k = 0; k < e->nreceived; k++) {
    if (e->columns[k] >= A->cmap->rstart && e->columns[k] < A->cmap->rend) continue;
    o->rows[o->n]      = e->rows[k] - A->rmap->rstart;
    o->columns[o->n]   = e->columns[k];
    o->numbers[o->n++] = (PetscInt)n + k; /* the sort has found that it is one */
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* numbers the columns that occur */
static PetscErrorCode OffdiagCompact(Offdiag *o)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc1(o->n, &o->ghosts));
  PetscCall(PetscArraycpy(o->ghosts, o->columns, o->n));
  o->nghosts = o->n;
  PetscCall(PetscSortRemoveDupsInt(&o->nghosts, o->ghosts));
  for (PetscInt k = 0; k < o->n; k++) PetscCall(PetscFindInt(o->columns[k], o->nghosts, o->ghosts, &o->columns[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SortDiag(Mat A, int backend, PetscCount n, const GpufmtCooExchange *e, Made *made)
{
  GpufmtCooRequest request = {
    .block     = e->block,
    .is_part   = 1,
    .on_device = backend == GPUFMT_BACKEND_CUDA,
    .nentries  = n,
    .rows      = e->outside.all_rows,
    .cols      = e->outside.all_cols,
    .nmore     = e->nreceived,
    .more_rows = e->rows,
    .more_cols = e->columns,
    .sizes     = {n, e->nreceived}
  };

  PetscFunctionBegin;
  PetscCall(GpufmtCooSort(A, backend, &request, &made->sums->blocks[0], &made->managed[0]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SortOffdiag(Mat A, int backend, PetscCount n, const GpufmtCooExchange *e, const Offdiag *o, Made *made)
{
  GpufmtCooRequest request = {
    .block    = {.nrows = A->rmap->n, .ncols = o->nghosts},
    .nentries = o->n,
    .rows     = o->rows,
    .cols     = o->columns,
    .numbers  = o->numbers,
    .sizes    = {n,                   e->nreceived       }
  };

  PetscFunctionBegin;
  PetscCall(GpufmtCooSort(A, backend, &request, &made->sums->blocks[1], &made->managed[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a block of A, assembled, in the place of an old one or NULL */
static PetscErrorCode BlockCreate(Mat A, Mat old, PetscInt ncols, PetscInt col_block, GpufmtManaged *managed, Mat *block)
{
  const GpufmtFormat *format = ((Mat_Gpufmt *)A->spptr)->format;
  Mat                 B;

  PetscFunctionBegin;
  PetscCall(GpufmtBlockCreate(format->seq_type, A->rmap->n, ncols, PetscAbs(A->rmap->bs), col_block, block));
  B = *block;
  PetscCall(PetscLayoutSetUp(B->rmap));
  PetscCall(PetscLayoutSetUp(B->cmap));
  PetscCall(GpufmtManagedEnter(B, managed));
  B->preallocated = B->assembled = PETSC_TRUE;
  B->nonzerostate = B->ass_nonzerostate = (old ? old->nonzerostate : 0) + 1; /* an assembly of A adds up those of its blocks */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* all that may fail on one rank alone */
static PetscErrorCode Make(Mat A, int backend, PetscCount n, GpufmtCooExchange *e, Offdiag *o, Made *made)
{
  GpufmtParallelSums *sums = made->sums;
  Mat                 old[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &old[0], &old[1], NULL));
  PetscCall(SortDiag(A, backend, n, e, made));
  PetscCall(OffdiagList(A, n, e, o));
  PetscCall(OffdiagCompact(o));
  PetscCall(GpufmtLeaseDrop(&e->lease)); /* coordinates that were brought to the backend */
  PetscCall(SortOffdiag(A, backend, n, e, o, made));
  sums->count       = n;
  sums->nsent       = e->nsent;
  sums->nreceived   = e->nreceived;
  sums->sent_places = e->sent_places;
  e->sent_places    = NULL;
  for (int k = 0; k < 2; k++) {
    sums->nnz[k] = sums->blocks[k].ntargets;
    PetscCall(BlockCreate(A, old[k], k ? o->nghosts : A->cmap->n, k ? 1 : PetscAbs(A->cmap->bs), made->managed[k], &made->blocks[k]));
  }
  PetscCall(GpufmtParallelSumsPlan(A, backend, sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A gets the blocks in place of its own, and all that belongs to them; what PETSc keeps beside them is set again. Collective. */
static PetscErrorCode TakeBlocks(Mat A, Offdiag *o, Made *made)
{
  GpufmtOptionsSet *options  = &((Mat_Gpufmt *)A->spptr)->options;
  const PetscBool   ignores  = ((const GpufmtParallelData *)A->data)->donotstash;
  const Mat         blocks[] = {made->blocks[0], made->blocks[1]};
  void             *data;
  Mat               T;

  PetscFunctionBegin;
  PetscCall(GpufmtCreateFromBlocks(PetscObjectComm((PetscObject)A), ((PetscObject)A)->type_name, A->rmap->N, A->cmap->N, PETSC_FALSE, made->blocks,
                                   &o->ghosts, &T));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtOptionsRepeat(blocks[k], options));
  data    = A->data;
  A->data = T->data;
  T->data = data;
  if (A->hash_active) { /* it collects first values no more */
    A->ops[0]      = T->ops[0];
    A->hash_active = PETSC_FALSE;
  }
  PetscCall(MatDestroy(&T));
  PetscCall((*gpufmt_mpi_parent->setoption)(A, MAT_IGNORE_OFF_PROC_ENTRIES, ignores));
  for (int k = 0; k < options->count; k++)
    if (options->options[k] == MAT_ROW_ORIENTED) PetscCall((*gpufmt_mpi_parent->setoption)(A, MAT_ROW_ORIENTED, options->flags[k]));
  A->assembled     = PETSC_FALSE;
  A->was_assembled = PETSC_TRUE; /* the exchange of ghost values is there */
  PetscCall(GpufmtBlocksConvert(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the sums become those of A, whose blocks have had managed arrays for them */
static PetscErrorCode TakeSums(Mat A, Made *made)
{
  PetscObjectId id;
  Mat           blocks[2];

  PetscFunctionBegin;
  PetscCall(GpufmtCooForget(A));
  PetscCall(GpufmtParallelSumsSet(A, &made->sums, &id));
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++) {
    GpufmtSeqData(blocks[k])->coo.id      = id;
    GpufmtSeqData(blocks[k])->coo.entered = PETSC_TRUE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Assemble(Mat A, int backend, PetscCount n, const PetscInt rows[], const PetscInt columns[], GpufmtCooExchange *e, Offdiag *o,
                               Made *made)
{
  PetscFunctionBegin;
  PetscCall(GpufmtCooAgree(A, PetscNew(&made->sums)));
  PetscCall(GpufmtCooExchangeRun(A, backend, n, rows, columns, e, &made->sums->exchange));
  PetscCall(GpufmtCooAgree(A, Make(A, backend, n, e, o, made)));
  PetscCall(TakeBlocks(A, o, made));
  PetscCall(TakeSums(A, made));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* MatSetPreallocationCOO() where the planner sorts on all ranks, with coordinates of the device or of the host. Collective, and so are its errors. */
PetscErrorCode GpufmtParallelCooAssemble(Mat A, int backend, PetscCount n, const PetscInt rows[], const PetscInt columns[])
{
  GpufmtCooExchange exchange = {0};
  Offdiag           offdiag  = {0};
  Made              made     = {0};
  PetscErrorCode    ierr;

  PetscFunctionBegin;
  ierr = Assemble(A, backend, n, rows, columns, &exchange, &offdiag, &made);
  PetscCall(GpufmtCooExchangeFree(&exchange));
  PetscCall(OffdiagFree(&offdiag));
  for (int k = 0; k < 2; k++) {
    PetscCall(GpufmtManagedRelease(&made.managed[k]));
    PetscCall(MatDestroy(&made.blocks[k]));
  }
  PetscCall(GpufmtParallelSumsDestroy(&made.sums));
  if (ierr) { /* no values are to come to entries of earlier coordinates */
    PetscCall(GpufmtCooForget(A));
    PetscCall(GpufmtParallelSumsForget(A));
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
