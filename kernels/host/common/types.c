/* What the host kernels were compiled for. */
#include "common/host.h"

__attribute__((visibility("default"))) int gpufmt_host_scalar_bytes(void)
{
  return (int)sizeof(scalar_t);
}

__attribute__((visibility("default"))) int gpufmt_host_scalar_is_complex(void)
{
  return PetscDefined(USE_COMPLEX);
}

__attribute__((visibility("default"))) int gpufmt_host_index_bytes(void)
{
  return (int)sizeof(index_t);
}
