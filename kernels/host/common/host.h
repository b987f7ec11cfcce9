/* Types and helpers of all host kernels. A host kernel takes the parameters of the device kernel of its name, by address, as for
   cuLaunchKernel(); of the launch geometry it uses what the format's layout needs, such as block[0] = slice height.
   A parameter may be a struct, with the members of the device's: each begins a word of 8 bytes, so smaller ones are alignas(8). */
#pragma once
#include <petscsystypes.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

/* setup.py compiles what a store and a method in single precision need once more: values are float then, and functions have other names. */
#if defined(GPUFMT_HOST_SINGLE)
typedef float scalar_t;
typedef float real_t; /* of the magnitude of a scalar */
  #define IN_ITS_PRECISION(name) gpufmt_host_single_##name
#else
typedef PetscScalar scalar_t;
typedef PetscReal   real_t;
  #define IN_ITS_PRECISION(name) gpufmt_host_##name
#endif
typedef PetscInt  index_t;
typedef long long offset_t; /* positions in stored arrays: padding may pass 2^31 where the nonzeros do not */

#if defined(PETSC_USE_64BIT_INDICES)
typedef uint64_t word_t; /* as wide as an index */
#else
typedef uint32_t word_t;
#endif

#define HOST_KERNEL(name) \
  __attribute__((visibility("default"))) void IN_ITS_PRECISION(name)(const uint32_t grid[3], const uint32_t block[3], void **params)
#define PARAM(type, i) (*(type *)params[i])

/* One binary for all x86-64 machines: the loader picks the version for the processor. Wider vectors than those of AVX2 do not pay:
   they come with gather instructions, which are slower than single loads on many processors. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  #define VECTOR_CLONES __attribute__((target_clones("arch=haswell", "default")))
#else
  #define VECTOR_CLONES
#endif

/* z[row] = alpha sum + beta y[row]; y is not read where beta is 0, and z may be y */
static inline void store_result(offset_t row, scalar_t sum, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  z[row] = beta == 0 ? alpha * sum : alpha * sum + beta * y[row];
}
