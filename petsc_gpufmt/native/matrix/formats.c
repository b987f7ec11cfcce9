/* The table of formats and their options, expanded from formats.def. */
#include "matrix/matrix.h"

static const GpufmtFormat formats[] = {
#define GPUFMT_FORMAT(name) {#name, "seqaij" #name, "mpiaij" #name, "aij" #name},
#include "formats.def"
};

static const struct {
  const char *format, *name, *option, *default_value, *words, *help;
} options[] = {
#define GPUFMT_OPTION(format, name, default_value, help) {#format, #name, "-mat_" #format "_" #name, #default_value, NULL, help},
#define GPUFMT_CHOICE(format, name, default_value, others, help) \
  {#format, #name, "-mat_" #format "_" #name, #default_value, #default_value " " others, help " (choose one of) " #default_value " " others},
#include "formats.def"
};

static PetscBool number_reported[PETSC_STATIC_ARRAY_LENGTH(options)];

#define WORD_LENGTH 64

/* finds the format of a type name, sequential, parallel, root or alias; NULL: not one of ours */
const GpufmtFormat *GpufmtFormatFind(const char type_name[])
{
  for (size_t k = 0; type_name && k < PETSC_STATIC_ARRAY_LENGTH(formats); k++) {
    const GpufmtFormat *f = &formats[k];

    if (!strcmp(type_name, f->seq_type) || !strcmp(type_name, f->mpi_type) || !strcmp(type_name, f->root_type) || !strcmp(type_name, f->name))
      return f;
  }
  return NULL;
}

/* shows the options under -help; the values are read when a block is planned, because the blocks that GAMG makes never see
   MatSetFromOptions(). Whole numbers are text here, too: PetscOptionsInt() takes 4294967296 for 0, and does not name the option in its errors. */
PetscErrorCode GpufmtOptionsDeclare(const GpufmtFormat *format, PetscOptionItems PetscOptionsObject)
{
  PetscFunctionBegin;
  PetscOptionsHeadBegin(PetscOptionsObject, "Storage format options");
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(options); k++) {
    char word[WORD_LENGTH];

    if (strcmp(options[k].format, format->name)) continue;
    PetscCall(PetscOptionsString(options[k].option, options[k].help, "None", options[k].default_value, word, sizeof(word), NULL));
  }
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Choices had numbers before they had words, from 0 on in the order of the words: puts the word in the place of such a number and says so, once,
   as PetscOptionsDeprecated() does. */
static PetscErrorCode WordOfNumber(size_t k, const char prefix[], size_t length, char text[])
{
  PetscBool quiet = PETSC_FALSE;
  char    **words, *end;
  int       nwords;
  long      number;

  PetscFunctionBegin;
  number = strtol(text, &end, 10);
  if (!options[k].words || end == text || *end) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrToArray(options[k].words, ' ', &nwords, &words));
  if (number >= 0 && number < nwords) {
    PetscCall(PetscOptionsGetBool(NULL, NULL, "-options_suppress_deprecated_warnings", &quiet, NULL));
    if (!quiet && !number_reported[k]) {
      PetscCall(PetscPrintf(
        PETSC_COMM_WORLD,
        "** PETSc DEPRECATION WARNING ** : the value %s of the option -%s%s is deprecated as of petsc_gpufmt 0.1 and will be removed in a future release.\n   Use -%s%s %s instead. (Silence this warning with -options_suppress_deprecated_warnings)\n",
        text, prefix ? prefix : "", options[k].option + 1, prefix ? prefix : "", options[k].option + 1, words[number]));
      number_reported[k] = PETSC_TRUE;
    }
    PetscCall(PetscStrncpy(text, words[number], length));
  }
  PetscCall(PetscStrToArrayDestroy(nwords, words));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* writes "name=value;..." for the options that the user set. The type `gpufmt` may choose any format, so it also gets the options of the
   others, as "format.name=value;". */
PetscErrorCode GpufmtOptionsCollect(const GpufmtFormat *format, PetscOptions database, const char prefix[], size_t length, char text[])
{
  const PetscBool chooses = (PetscBool)!strcmp(format->name, "gpufmt");

  PetscFunctionBegin;
  text[0] = 0;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(options); k++) {
    const PetscBool own = (PetscBool)!strcmp(options[k].format, format->name);
    PetscBool       set;
    char            word[WORD_LENGTH], item[3 * WORD_LENGTH];

    if (!own && !chooses) continue;
    PetscCall(PetscOptionsGetString(database, prefix, options[k].option, word, sizeof(word), &set));
    if (!set) continue;
    PetscCall(GpufmtOptionTextCheck(prefix, options[k].option, word));
    PetscCall(WordOfNumber(k, prefix, sizeof(word), word));
    PetscCall(PetscSNPrintf(item, sizeof(item), "%s%s%s=%s;", own ? "" : options[k].format, own ? "" : ".", options[k].name, word));
    PetscCheck(strlen(text) + strlen(item) < length, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
               "The options of matrix type %s take more than %zu characters: set fewer of them", format->name, length);
    PetscCall(PetscStrlcat(text, item, length));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the table as text, one "format name default" a line, and after it the other words of a choice, so that a test can hold it against the
   Python side */
PETSC_EXTERN const char *GpufmtOptionTable(void)
{
  return
#define GPUFMT_OPTION(format, name, default_value, help)         #format " " #name " " #default_value "\n"
#define GPUFMT_CHOICE(format, name, default_value, others, help) #format " " #name " " #default_value " " others "\n"
#include "formats.def"
    ;
}
