/* The mode of a halo exchange, which an option chooses, and what all modes have. */
#include "halo/halo.h"

static const char option[] = "-mat_halo_mode";

static const GpufmtHaloMode *const modes[] = {&gpufmt_halo_overlap, &gpufmt_halo_vector, &gpufmt_halo_task, &gpufmt_halo_peer};

enum { WORD_LENGTH = 64, WORDS_LENGTH = 128 };

static void Words(char words[WORDS_LENGTH])
{
  size_t length = 0;

  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(modes); k++)
    length += (size_t)snprintf(words + length, WORDS_LENGTH - length, "%s%s", k ? ", " : "", modes[k]->name);
}

/* Shows the option under -help. It is read at the first product: matrices that GAMG makes never see MatSetFromOptions(). */
PetscErrorCode GpufmtHaloOptionsDeclare(PetscOptionItems PetscOptionsObject)
{
  char      help[2 * WORDS_LENGTH], words[WORDS_LENGTH], word[WORD_LENGTH];
  PetscReal seconds;

  PetscFunctionBegin;
  Words(words);
  PetscCall(PetscSNPrintf(help, sizeof(help), "halo exchange of products with vectors (choose one of) %s", words));
  PetscOptionsHeadBegin(PetscOptionsObject, "Parallel product options");
  /* a default of peer gives way to overlap where peer cannot be */
  PetscCall(PetscOptionsString(option, help, "None", (GpufmtDeviceUsable() ? gpufmt_halo_peer : gpufmt_halo_overlap).name, word, sizeof(word), NULL));
  PetscCall(PetscOptionsReal(GPUFMT_HALO_TIMEOUT, "seconds after which a rank that sends nothing is an error in modes peer and task, 0 for none",
                             "None", GPUFMT_HALO_SECONDS, &seconds, NULL));
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* seconds after which what another rank has not sent is an error, 0: never */
PetscErrorCode GpufmtHaloLimitGet(Mat A, double *limit)
{
  const char *prefix  = ((PetscObject)A)->prefix;
  PetscReal   seconds = GPUFMT_HALO_SECONDS;

  PetscFunctionBegin;
  PetscCall(PetscOptionsGetReal(((PetscObject)A)->options, prefix, GPUFMT_HALO_TIMEOUT, &seconds, NULL));
  PetscCheck(seconds >= 0 && seconds <= PETSC_MAX_REAL, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
             "-%s%s %g: choose seconds after which a rank that sends nothing is an error, 0 for none", prefix ? prefix : "", GPUFMT_HALO_TIMEOUT + 1,
             (double)seconds);
  *limit = (double)seconds;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtHaloIsLate(double limit, int waiting, int late)
{
  SETERRQ(
    PETSC_COMM_SELF, PETSC_ERR_LIB,
    "Rank %d waited more than %g seconds for entries of x, or sums, that rank %d sends in a product of a parallel matrix with a vector or in a solver: "
    "it has failed, stopped, or is late by more than -mat_halo_timeout allows",
    waiting, limit, late);
}

/* the mode that an option names, NULL if none does */
PetscErrorCode GpufmtHaloModeNamed(Mat A, const GpufmtHaloMode **mode)
{
  const char *prefix = ((PetscObject)A)->prefix;
  char        word[WORD_LENGTH], words[WORDS_LENGTH];
  PetscBool   set;

  PetscFunctionBegin;
  *mode = NULL;
  PetscCall(PetscOptionsGetString(((PetscObject)A)->options, prefix, option, word, sizeof(word), &set));
  if (!set) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtOptionTextCheck(prefix, option, word));
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(modes); k++) {
    *mode = modes[k];
    if (!strcmp(word, modes[k]->name)) PetscFunctionReturn(PETSC_SUCCESS);
  }
  Words(words);
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "-%s%s %s: choose one of %s", prefix ? prefix : "", option + 1, word, words);
}

/* whether a scatter tells who sends what */
PetscErrorCode GpufmtHaloLinksAreKnown(VecScatter scatter, PetscBool *known)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)scatter, known, PETSCSFBASIC, PETSCSFNEIGHBOR, ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* who sends what, as such a scatter tells */
PetscErrorCode GpufmtHaloLinksFind(VecScatter scatter, GpufmtHaloLinks *links)
{
  PetscFunctionBegin;
  PetscCall(PetscSFGetLeafRanks(scatter, &links->nto, &links->to, &links->to_begins, &links->indices));
  PetscCall(PetscSFGetRootRanks(scatter, &links->nfrom, &links->from, &links->from_begins, NULL, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode New(Mat A, const GpufmtHaloParts *parts, size_t scalar_bytes, PetscBool links, GpufmtHalo *out)
{
  GpufmtHalo halo;

  PetscFunctionBegin;
  PetscCall(PetscNew(out));
  halo               = *out;
  halo->mode         = &gpufmt_halo_overlap; /* which needs nothing to be destroyed */
  halo->ghost        = parts->ghost;
  halo->scatter      = parts->scatter;
  halo->scalar_bytes = scalar_bytes;
  halo->nx           = A->cmap->n;
  PetscCall(PetscObjectReference((PetscObject)halo->ghost));
  PetscCall(PetscObjectReference((PetscObject)halo->scatter));
  PetscCall(VecGetLocalSize(halo->ghost, &halo->nghosts));
  if (links) PetscCall(GpufmtHaloLinksFind(halo->scatter, &halo->links));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* why a mode cannot be, as far as all ranks know that by themselves; NULL: it may */
static PetscErrorCode WhyNot(const GpufmtHaloParts *parts, const GpufmtHaloMode *mode, PetscBool links, const char **why_not)
{
  PetscBool   known;
  PetscMPIInt nranks;

  PetscFunctionBegin;
  *why_not = NULL;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)parts->scatter), &nranks));
  if (mode == &gpufmt_halo_peer && nranks == 1) *why_not = "there is one rank";
  if (!links || *why_not) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtHaloLinksAreKnown(parts->scatter, &known));
  if (!known) *why_not = "-sf_type is neither basic nor neighbor";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An exchange of entries of x; of others than PetscScalar in the mode peer, or by PETSc's scatter. Collective. What fails on one rank fails on all; what there
   is then is to be destroyed. */
static PetscErrorCode Create(Mat A, const GpufmtHaloParts *parts, size_t scalar_bytes, GpufmtHalo *out)
{
  const GpufmtHaloMode *named, *mode;
  const char           *why_not;
  PetscBool             links;
  PetscErrorCode        ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtHaloModeNamed(A, &named)); /* all ranks have the same options */
  mode = named ? named : PetscDefined(HAVE_CUDA) ? &gpufmt_halo_peer : &gpufmt_halo_overlap;
  if (mode != &gpufmt_halo_peer && scalar_bytes != sizeof(PetscScalar)) mode = &gpufmt_halo_overlap;
  links = (PetscBool)(mode == &gpufmt_halo_peer || mode == &gpufmt_halo_task);
  PetscCall(WhyNot(parts, mode, links, &why_not));
  ierr = New(A, parts, scalar_bytes, links && !why_not, out);
  if (!why_not && mode == &gpufmt_halo_peer) PetscCall(GpufmtPeerCreate(*out, A, (PetscBool) !!named, ierr, &why_not));
  else {
    if (!why_not && !ierr) (*out)->mode = mode;
    if (!why_not && mode->create) ierr = (*mode->create)(*out, A, ierr);
    PetscCall(GpufmtAgree((PetscObject)A, "The set-up of a halo exchange", ierr, 0, NULL));
  }
  if (!why_not) (*out)->mode = mode;
  else PetscCall(PetscInfo(A, "halo exchange in mode %s, not %s: %s\n", gpufmt_halo_overlap.name, mode->name, why_not));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtHaloDestroy(GpufmtHalo *out)
{
  GpufmtHalo halo = *out;

  PetscFunctionBegin;
  if (!halo) PetscFunctionReturn(PETSC_SUCCESS);
  if (halo->mode->destroy) PetscCall((*halo->mode->destroy)(halo));
  PetscCall(VecDestroy(&halo->ghost));
  PetscCall(VecScatterDestroy(&halo->scatter));
  PetscCall(PetscFree(*out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The exchange of a matrix as it is: before the first product after an assembly, which is when PETSc makes another scatter, on all ranks. Collective. */
PetscErrorCode GpufmtHaloUpdate(Mat A, const GpufmtHaloParts *parts, size_t scalar_bytes, GpufmtHalo *halo)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (*halo && (*halo)->scatter == parts->scatter && (*halo)->ghost == parts->ghost) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtHaloDestroy(halo));
  ierr = Create(A, parts, scalar_bytes, halo);
  if (ierr) PetscCall(GpufmtHaloDestroy(halo));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
