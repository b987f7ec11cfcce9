/* Loaded before all else, by LD_PRELOAD: allocations that were asked for from within watched libraries are counted, and some of them fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

static struct {
  uintptr_t begin, end;
} watched[MOST];
static int           nwatched;
static atomic_long   count;
static volatile long first = -1, times;

static int Watch(struct dl_phdr_info *info, size_t bytes, void *name)
{
  (void)bytes;
  if (!strstr(info->dlpi_name, name)) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];

    if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) || nwatched == MOST) continue;
    watched[nwatched].begin = info->dlpi_addr + part->p_vaddr;
    watched[nwatched].end   = watched[nwatched].begin + part->p_memsz;
    nwatched++;
  }
  return 0;
}

/* Allocations from libraries with this in their path are watched; how many pieces of code are by now. */
int FailingAllocationsWatch(const char *name)
{
  dl_iterate_phdr(Watch, (void *)name);
  return nwatched;
}

/* From now on they are counted from 0, and `number` of them fail from that one on; none if `from` is below 0. */
void FailingAllocationsSet(long from, long number)
{
  first = -1;
  atomic_store(&count, 0);
  times = number;
  first = from;
}

long FailingAllocationsCount(void)
{
  return atomic_load(&count);
}

static bool Fails(const void *caller)
{
  for (int i = 0; i < nwatched; i++) {
    if ((uintptr_t)caller >= watched[i].begin && (uintptr_t)caller < watched[i].end) {
      const long at = atomic_fetch_add(&count, 1);

      return first >= 0 && at >= first && at - first < times;
    }
  }
  return false;
}

#define FAIL_OR(call) \
  do { \
    if (!Fails(__builtin_return_address(0))) return call; \
    errno = ENOMEM; \
    return NULL; \
  } while (0)

void *malloc(size_t bytes)
{
  FAIL_OR(__libc_malloc(bytes));
}

void *calloc(size_t n, size_t bytes)
{
  FAIL_OR(__libc_calloc(n, bytes));
}

void *realloc(void *old, size_t bytes)
{
  FAIL_OR(__libc_realloc(old, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
  FAIL_OR(__libc_memalign(alignment, bytes));
}

int posix_memalign(void **result, size_t alignment, size_t bytes)
{
  if (Fails(__builtin_return_address(0))) return ENOMEM;
  *result = __libc_memalign(alignment, bytes);
  return *result ? 0 : ENOMEM;
}
