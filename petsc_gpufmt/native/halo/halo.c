/* The mode of a halo exchange, which an option chooses, and what all modes have. */
#include "halo/halo.h"

static const char option[] = "-mat_halo_mode";

/* the first is the default */
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
  PetscCall(PetscOptionsString(option, help, "None", modes[0]->name, word, sizeof(word), NULL));
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
  PetscCheck(seconds >= 0, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
             "-%s%s %g: choose seconds after which a rank that sends nothing is an error, 0 for none", prefix ? prefix : "", GPUFMT_HALO_TIMEOUT + 1,
             (double)seconds);
  *limit = (double)seconds;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtHaloIsLate(double limit, int waiting, int late)
{
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_LIB,
          "Rank %d waited more than %g seconds for entries of x, or sums, that rank %d sends in a product of a parallel matrix with a vector: "
          "it has failed, stopped, or is late by more than -mat_halo_timeout allows",
          waiting, limit, late);
}

/* the mode that a matrix is to have */
static PetscErrorCode ModeFind(Mat A, const GpufmtHaloMode **mode)
{
  const char *prefix = ((PetscObject)A)->prefix;
  char        word[WORD_LENGTH], words[WORDS_LENGTH];
  PetscBool   set;

  PetscFunctionBegin;
  *mode = modes[0];
  PetscCall(PetscOptionsGetString(((PetscObject)A)->options, prefix, option, word, sizeof(word), &set));
  if (!set) PetscFunctionReturn(PETSC_SUCCESS);
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(modes); k++) {
    *mode = modes[k];
    if (!strcmp(word, modes[k]->name)) PetscFunctionReturn(PETSC_SUCCESS);
  }
  Words(words);
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "-%s%s %s: choose one of %s", prefix ? prefix : "", option + 1, word, words);
}

/* A mode that cannot be gives way to one that always can. Collective. */
static PetscErrorCode ModeTry(GpufmtHalo halo, Mat A)
{
  const char *why_not = NULL;

  PetscFunctionBegin;
  if (halo->mode->try) PetscCall((*halo->mode->try)(halo, A, &why_not));
  if (!why_not) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscInfo(A, "halo exchange in mode %s, not %s: %s\n", gpufmt_halo_overlap.name, halo->mode->name, why_not));
  halo->mode = &gpufmt_halo_overlap;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Collective. What fails may fail on one rank alone; what there is then is to be destroyed. */
PetscErrorCode GpufmtHaloCreate(Mat A, const GpufmtHaloParts *parts, GpufmtHalo *out)
{
  GpufmtHalo     halo;
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(PetscNew(out));
  halo       = *out;
  halo->mode = &gpufmt_halo_overlap; /* which needs nothing to be destroyed */
  PetscCall(ModeFind(A, &halo->mode));
  halo->ghost   = parts->ghost;
  halo->scatter = parts->scatter;
  halo->nx      = A->cmap->n;
  PetscCall(PetscObjectReference((PetscObject)halo->ghost));
  PetscCall(PetscObjectReference((PetscObject)halo->scatter));
  PetscCall(VecGetLocalSize(halo->ghost, &halo->nghosts));
  PetscCall(ModeTry(halo, A));
  if (halo->mode->links) ierr = GpufmtHaloLinksFind(A, halo->nghosts, parts->columns, &halo->links);
  if (halo->mode->create) ierr = (*halo->mode->create)(halo, A, ierr);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtHaloDestroy(GpufmtHalo *out)
{
  GpufmtHalo halo = *out;

  PetscFunctionBegin;
  if (!halo) PetscFunctionReturn(PETSC_SUCCESS);
  if (halo->mode->destroy) PetscCall((*halo->mode->destroy)(halo));
  PetscCall(GpufmtHaloLinksFree(&halo->links));
  PetscCall(VecDestroy(&halo->ghost));
  PetscCall(VecScatterDestroy(&halo->scatter));
  PetscCall(PetscFree(*out));
  PetscFunctionReturn(PETSC_SUCCESS);
}
