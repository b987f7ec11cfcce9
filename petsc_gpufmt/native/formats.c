/* The table of formats and their options, expanded from formats.def. */
#include "gpufmt_impl.h"

static const GpufmtFormat formats[] = {
#define GPUFMT_FORMAT(name) {#name, "seqaij" #name, "mpiaij" #name, "aij" #name},
#include "formats.def"
};

typedef struct {
  const char *format, *name, *option;
  PetscInt    default_value;
  const char *help;
} GpufmtOption;

static const GpufmtOption options[] = {
#define GPUFMT_OPTION(format, name, default_value, help) {#format, #name, "-mat_" #format "_" #name, default_value, help},
#include "formats.def"
};

/* finds the format of a type name, sequential, parallel, root or alias; NULL: not one of ours */
const GpufmtFormat *GpufmtFormatFind(const char type_name[])
{
  for (size_t k = 0; type_name && k < PETSC_STATIC_ARRAY_LENGTH(formats); k++) {
    const GpufmtFormat *f = &formats[k];

    if (!strcmp(type_name, f->seq_type) || !strcmp(type_name, f->mpi_type) || !strcmp(type_name, f->root_type) || !strcmp(type_name, f->name)) return f;
  }
  return NULL;
}

/* shows the options under -help and checks that each is an integer; the values are read when a block is planned,
   because the blocks that GAMG makes never see MatSetFromOptions() */
PetscErrorCode GpufmtOptionsDeclare(const GpufmtFormat *format, PetscOptionItems PetscOptionsObject)
{
  PetscFunctionBegin;
  PetscOptionsHeadBegin(PetscOptionsObject, "Storage format options");
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(options); k++) {
    PetscInt value = options[k].default_value;

    if (strcmp(options[k].format, format->name)) continue;
    PetscCall(PetscOptionsInt(options[k].option, options[k].help, "None", value, &value, NULL));
  }
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* writes "name=value;..." for the options that the user set */
PetscErrorCode GpufmtOptionsCollect(const GpufmtFormat *format, PetscOptions database, const char prefix[], size_t length, char text[])
{
  PetscFunctionBegin;
  text[0] = 0;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(options); k++) {
    PetscInt  value;
    PetscBool set;
    char      item[64];

    if (strcmp(options[k].format, format->name)) continue;
    PetscCall(PetscOptionsGetInt(database, prefix, options[k].option, &value, &set));
    if (!set) continue;
    PetscCall(PetscSNPrintf(item, sizeof(item), "%s=%" PetscInt_FMT ";", options[k].name, value));
    PetscCall(PetscStrlcat(text, item, length));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the table as text, one "format name default" a line, so that a test can hold it against the Python side */
PETSC_EXTERN const char *GpufmtOptionTable(void)
{
  return
#define GPUFMT_OPTION(format, name, default_value, help) #format " " #name " " #default_value "\n"
#include "formats.def"
    ;
}
