/* Pages of new memory on the host, which are made when they are first touched. */
#include "runtime/runtime.h"
#include <sys/mman.h>
#include <unistd.h>

/* Of an array that nobody has touched yet: its pages may be large, if there is room for some. To make a page of 4 KB takes the system a microsecond
   or two, which is more than to fill it, and those of 2 MB a tenth of the time. A system that has none, or does not want to, changes nothing. */
void GpufmtPagesMayBeLarge(void *array, size_t bytes)
{
#if defined(MADV_HUGEPAGE)
  static const size_t least = (size_t)4 << 20;
  const uintptr_t     page  = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t     first = ((uintptr_t)array + page - 1) / page * page, end = ((uintptr_t)array + bytes) / page * page;

  if (bytes >= least) (void)madvise((void *)first, (size_t)(end - first), MADV_HUGEPAGE);
#endif
}
