/* Which algorithm a sparse product of ours takes, and the options of RMerge. */
#include "product/product.h"

/* the options of MatMatMult() and its kin, named as PETSc names those of its GPU types */
static const struct {
  const char *title, *algorithm, *on_cpu;
} by_call[] = {
  [MATPRODUCT_AB]   = {"MatMatMult",          "-matmatmult_via",          "-matmatmult_backend_cpu"         },
  [MATPRODUCT_AtB]  = {"MatTransposeMatMult", "-mattransposematmult_via", "-mattransposematmult_backend_cpu"},
  [MATPRODUCT_ABt]  = {"MatMatTransposeMult", "-matmattransmult_via",     "-matmattransmult_backend_cpu"    },
  [MATPRODUCT_PtAP] = {"MatPtAP",             "-matptap_via",             "-matptap_backend_cpu"            },
  [MATPRODUCT_RARt] = {"MatRARt",             "-matrart_via",             "-matrart_backend_cpu"            },
  [MATPRODUCT_ABC]  = {"MatMatMatMult",       "-matmatmatmult_via",       "-matmatmatmult_backend_cpu"      }
};

/* the same for all products. PETSc reads them in products made by MatProductCreate(); here they also count for MatMatMult() and its kin, of
   which GAMG's set-up is made, if these have none of their own. */
static const char all_products[] = "-mat_product_algorithm", all_products_on_cpu[] = "-mat_product_algorithm_backend_cpu";

/* the options of RMerge; the values are checked by petsc_gpufmt/spgemm/ */
#define RMERGE_OPTIONS \
  RMERGE_OPTION("accumulator", "-mat_rmerge_accumulator", "auto", \
                "how rows of the product are found and summed: merge, hash, or auto, chosen from the rows of the left matrix") \
  RMERGE_OPTION("merge_width", "-mat_rmerge_width", "0", \
                "rows that are merged at once where long rows of the left matrix are split: 2, 4, 8, 16 or 32, 0 for 16 as in the paper") \
  RMERGE_OPTION("merge_buffer", "-mat_rmerge_buffer", "0", \
                "bytes that merged pieces of long rows may take before the product is made in ranges of columns, 0 for a part of what is free")

static const char *const host_values[] = {"auto", "eager"};

static const struct {
  const char *name, *option, *default_value, *help;
} options[] = {
#define RMERGE_OPTION(name, option, default_value, help) {name, option, default_value, help},
  RMERGE_OPTIONS
#undef RMERGE_OPTION
};

/* the table as text, one "name option default" a line, so that a test can hold it against the Python side */
PETSC_EXTERN const char *GpufmtProductOptionTable(void)
{
  return
#define RMERGE_OPTION(name, option, default_value, help) name " " option " " default_value "\n"
    RMERGE_OPTIONS
#undef RMERGE_OPTION
    ;
}

/* The words that mean our own algorithm: its name, and what PETSc's GPU types call theirs. */
static PetscBool IsOurs(const char word[])
{
  return (PetscBool)(!strcmp(word, "rmerge") || !strcmp(word, "backend"));
}

static const char algorithm_help[] = "Algorithm: rmerge, default for that of type aij, or the name of one of these";
static const char on_cpu_help[]    = "Use the algorithm of type aij, which runs on the host";

/* Reads the options of PETSc's that choose an algorithm, and shows ours under -help. */
PetscErrorCode GpufmtProductAlgorithmGet(Mat C, GpufmtProductAlgorithm *algorithm)
{
  const Mat_Product *product = C->product;
  char               word[64];
  PetscInt           choice = 0;
  PetscBool          set = PETSC_FALSE, cpu = PETSC_FALSE, cpu_set = PETSC_FALSE;

  PetscFunctionBegin;
  PetscOptionsBegin(PetscObjectComm((PetscObject)C), ((PetscObject)C)->prefix, by_call[product->type].title, "Mat");
  if (product->api_user) {
    PetscCall(PetscOptionsString(by_call[product->type].algorithm, algorithm_help, "MatProductSetAlgorithm", "rmerge", word, sizeof(word), &set));
    PetscCall(PetscOptionsBool(by_call[product->type].on_cpu, on_cpu_help, "MatProductSetAlgorithm", cpu, &cpu, &cpu_set));
  }
  if (!set) {
    PetscCall(PetscOptionsString(all_products, algorithm_help, "MatProductSetAlgorithm", "rmerge", word, sizeof(word), &set));
    if (product->api_user)
      set = (PetscBool)(set && (IsOurs(word) || !strcmp(word, "default"))); /* the names of others are for the products that PETSc reads it in */
  }
  if (!cpu_set) PetscCall(PetscOptionsBool(all_products_on_cpu, on_cpu_help, "MatProductSetAlgorithm", cpu, &cpu, NULL));
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(options); k++) {
    char text[64];

    PetscCall(PetscOptionsString(options[k].option, options[k].help, "None", options[k].default_value, text, sizeof(text), NULL));
  }
  PetscCall(PetscOptionsEList("-mat_rmerge_host_values",
                              "When values of a product made on a device come to the host: auto, when something there asks; eager, at once", "None",
                              host_values, PETSC_STATIC_ARRAY_LENGTH(host_values), host_values[0], &choice, NULL));
  PetscOptionsEnd();
  if (cpu) *algorithm = set && !IsOurs(word) && strcmp(word, "default") ? GPUFMT_ALGORITHM_PARENT : GPUFMT_ALGORITHM_PARENT_DEFAULT;
  else if (set)
    *algorithm = IsOurs(word) ? GPUFMT_ALGORITHM_OURS : (strcmp(word, "default") ? GPUFMT_ALGORITHM_PARENT : GPUFMT_ALGORITHM_PARENT_DEFAULT);
  else if (!strcmp(product->alg, MATPRODUCTALGORITHMDEFAULT)) *algorithm = GPUFMT_ALGORITHM_UNSPECIFIED;
  else *algorithm = IsOurs(product->alg) ? GPUFMT_ALGORITHM_OURS : GPUFMT_ALGORITHM_PARENT;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* writes "name=value;..." for the options of RMerge that the user set, with the prefix of C or, for the products inside those of
   parallel matrices, whose prefixes nobody knows, without one */
PetscErrorCode GpufmtProductOptionsCollect(Mat C, size_t length, char text[])
{
  PetscFunctionBegin;
  text[0] = 0;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(options); k++) {
    char      word[64], item[128];
    PetscBool set;

    PetscCall(PetscOptionsGetString(((PetscObject)C)->options, ((PetscObject)C)->prefix, options[k].option, word, sizeof(word), &set));
    if (!set) PetscCall(PetscOptionsGetString(((PetscObject)C)->options, NULL, options[k].option, word, sizeof(word), &set));
    if (!set) continue;
    PetscCall(GpufmtOptionTextCheck(((PetscObject)C)->prefix, options[k].option, word));
    PetscCall(PetscSNPrintf(item, sizeof(item), "%s=%s;", options[k].name, word));
    PetscCall(PetscStrlcat(text, item, length));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether the values of the result C come to the host at once; the prefixes count as for the options of RMerge */
PetscErrorCode GpufmtProductHostValuesEager(Mat C, PetscBool *eager)
{
  PetscInt  choice = 0;
  PetscBool set;

  PetscFunctionBegin;
  PetscCall(PetscOptionsGetEList(((PetscObject)C)->options, ((PetscObject)C)->prefix, "-mat_rmerge_host_values", host_values,
                                 PETSC_STATIC_ARRAY_LENGTH(host_values), &choice, &set));
  if (!set)
    PetscCall(PetscOptionsGetEList(((PetscObject)C)->options, NULL, "-mat_rmerge_host_values", host_values, PETSC_STATIC_ARRAY_LENGTH(host_values),
                                   &choice, NULL));
  *eager = (PetscBool)(choice == 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}
