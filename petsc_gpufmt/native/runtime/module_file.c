/* Files of compiled kernels, which petsc_gpufmt/backends/kernel_store.py writes: a line with what they are, how many bytes follow it, and the digest
   of these; then a line for each kernel with its name and its symbol, an empty line, and what the driver loads. */
#include "runtime/runtime.h"
#include <stdio.h>
#include <stdlib.h>

enum { LONGEST_HEADER = 160, LONGEST_KEY = 64 };

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

/* the first line of a file with these contents, in a folder of this name */
static void HeaderOf(const char format[], const char folder[], const char contents[], size_t nbytes, char header[LONGEST_HEADER])
{
  unsigned char digest[GPUFMT_DIGEST_BYTES];
  char          text[2 * GPUFMT_DIGEST_BYTES + 1];

  GpufmtBlake2b(folder, strnlen(folder, LONGEST_KEY), contents, nbytes, digest);
  for (int k = 0; k < GPUFMT_DIGEST_BYTES; k++) (void)snprintf(text + 2 * k, 3, "%02x", digest[k]);
  (void)snprintf(header, LONGEST_HEADER, "%s %zu %s\n", format, nbytes, text);
}

/* What follows the first line of a file, and a 0 behind it, for GpufmtModuleFileFree(); NULL if it is not what was written there: the name of the folder,
   of at most 64 bytes, is the key of the digest. Any thread may call this. */
char *GpufmtModuleFileRead(const char path[], const char format[], const char folder[], size_t *nbytes)
{
  char   header[LONGEST_HEADER], *bytes = ReadAll(path, nbytes), *end = bytes ? strchr(bytes, '\n') : NULL;
  size_t length = end ? (size_t)(end + 1 - bytes) : 0;

  if (length && length < sizeof(header)) {
    *nbytes -= length;
    HeaderOf(format, folder, end + 1, *nbytes, header);
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
