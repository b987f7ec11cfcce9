/* Files of compiled kernels, which petsc_gpufmt/backends/kernel_store.py writes: a line with what they are, how many bytes follow it, and the checksum
   of these; then a line for each kernel with its name and its symbol, an empty line, and what the driver loads. */
#include "runtime/runtime.h"
#include <stdio.h>
#include <stdlib.h>

enum { LONGEST_HEADER = 128 };

/* that of zlib.adler32(), which goes on from `sum` */
static uint32_t Checksum(uint32_t sum, const char bytes[], size_t nbytes)
{
  enum {
    MODULUS      = 65521,
    MOST_AT_ONCE = 5552 /* after which 32 bits may overflow */
  };
  uint32_t a = sum & 0xffff, b = sum >> 16;

  while (nbytes) {
    const size_t n = PetscMin(nbytes, (size_t)MOST_AT_ONCE);

    for (size_t k = 0; k < n; k++) b += a += (unsigned char)bytes[k];
    a %= MODULUS;
    b %= MODULUS;
    bytes += n;
    nbytes -= n;
  }
  return b << 16 | a;
}

/* the bytes of a file and a 0 behind them, for free(); NULL: there is none */
static char *ReadAll(const char path[], size_t *nbytes)
{
  FILE *file  = fopen(path, "rb");
  long  size  = -1;
  char *bytes = NULL;

  if (!file) return NULL;
  if (!fseek(file, 0, SEEK_END)) size = ftell(file);
  rewind(file);
  if (size >= 0) bytes = malloc((size_t)size + 1);
  if (bytes && fread(bytes, 1, (size_t)size, file) != (size_t)size) {
    free(bytes);
    bytes = NULL;
  }
  (void)fclose(file);
  if (!bytes) return NULL;
  bytes[size] = 0;
  *nbytes     = (size_t)size;
  return bytes;
}

/* What follows the first line of a file, and a 0 behind it, for GpufmtModuleFileFree(); NULL if it is not what was written there: a checksum begins with
   that of the folder. Any thread may call this. */
char *GpufmtModuleFileRead(const char path[], const char format[], uint32_t folder, size_t *nbytes)
{
  char   header[LONGEST_HEADER], *bytes = ReadAll(path, nbytes), *end = bytes ? strchr(bytes, '\n') : NULL;
  size_t length = end ? (size_t)(end + 1 - bytes) : 0;

  if (length && length < sizeof(header)) {
    *nbytes -= length;
    (void)snprintf(header, sizeof(header), "%s %zu %08x\n", format, *nbytes, Checksum(folder, end + 1, *nbytes));
    if (!strncmp(bytes, header, length)) {
      memmove(bytes, end + 1, *nbytes + 1);
      return bytes;
    }
  }
  free(bytes);
  return NULL;
}

void GpufmtModuleFileFree(char *contents)
{
  free(contents);
}
