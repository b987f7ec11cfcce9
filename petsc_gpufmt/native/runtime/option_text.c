/* The values of options as text, which goes to the planner as "name=value;...", and into messages. */
#include "runtime/runtime.h"

/* No value of ours has more than letters, digits and signs: a ; would begin another option, and what is no ASCII or does not print would tear a
   message apart. */
PetscErrorCode GpufmtOptionTextCheck(const char prefix[], const char option[], const char text[])
{
  PetscFunctionBegin;
  for (const char *c = text; *c; c++)
    PetscCheck(*c >= ' ' && *c <= '~' && *c != ';', PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
               "-%s%s: its value has the character number %d, which no value has: choose a number or a word", prefix ? prefix : "", option + 1,
               (unsigned char)*c);
  PetscFunctionReturn(PETSC_SUCCESS);
}
