/* What -citations prints, from citations.def. */
#include "matrix/matrix.h"

enum {
#define GPUFMT_PAPER(key, entry) key,
#include "citations.def"
  NUM_PAPERS
};

static const char *const entries[] = {
#define GPUFMT_PAPER(key, entry) entry,
#include "citations.def"
};

static const struct {
  const char *name;
  int         paper;
} follows[] = {
#define GPUFMT_FOLLOWS(name, key) {#name, key},
#include "citations.def"
};

static PetscBool cited[NUM_PAPERS];

/* called by petsc_gpufmt.planner with what a plan was made of */
PETSC_EXTERN PetscErrorCode GpufmtCite(const char name[])
{
  PetscFunctionBegin;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(follows); k++)
    if (!strcmp(follows[k].name, name)) PetscCall(PetscCitationsRegister(entries[follows[k].paper], &cited[follows[k].paper]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc's list ends with PETSc */
PetscErrorCode GpufmtCitationsReset(void)
{
  PetscFunctionBegin;
  PetscCall(PetscArrayzero(cited, NUM_PAPERS));
  PetscFunctionReturn(PETSC_SUCCESS);
}
