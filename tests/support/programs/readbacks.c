/* Blocks that come to the host while others are queued, on the host and through a driver whose copies come late. */
#define PETSC_HAVE_CUDA 1
#define _GNU_SOURCE

/* the files under test; they are compiled for devices whatever the PETSc at hand is for */
#include "runtime/beside.c"
#include "runtime/device.c"
#include "runtime/kept.c"
#include "runtime/readback.c"
#include "runtime/staging.c"
#include "runtime/thread.c"

#include "late_driver.h"

enum { WORDS = 3 };

static bool Has(const void *host, int64_t value)
{
  const int64_t *words = (const int64_t *)host;

  return words[0] == value && words[1] == value + 1 && words[2] == value + 2;
}

static void Set(int64_t block[WORDS], int64_t value)
{
  for (int k = 0; k < WORDS; k++) block[k] = value + k;
}

/* each is taken in its order, with one more on its way, and stays until the next is queued */
static void Order(int backend)
{
  int64_t        blocks[64][WORDS]; /* of the device, which copies late */
  GpufmtReadback r;
  const void    *host;
  PetscBool      there;

  Check(!GpufmtReadbackCreate(backend, sizeof(blocks[0]), &r));
  Check(!GpufmtReadbackIsThere(&r, &there) && !there);
  for (int k = 0; k < 64; k++) {
    Set(blocks[k], 10 * k);
    Check(!GpufmtReadbackQueue(&r, blocks[k], current_stream));
    if (!k) continue;
    Check(!GpufmtReadbackTake(&r, &host));
    Check(Has(host, 10 * (k - 1)));
  }
  Check(!GpufmtReadbackTake(&r, &host));
  Check(Has(host, 630));
  Check(!GpufmtReadbackDestroy(&r) && !nevents && !pinned_bytes);
  Check(!GpufmtReadbackDestroy(&r));
}

/* what is not there is known without a wait, and waited for before its memory goes */
static void Late(void)
{
  int64_t        block[WORDS];
  GpufmtReadback r;
  PetscBool      there;
  const void    *host;

  Check(!GpufmtReadbackCreate(GPUFMT_BACKEND_CUDA, sizeof(block), &r));
  Hold(true);
  Set(block, 5);
  Check(!GpufmtReadbackQueue(&r, block, current_stream));
  Check(!GpufmtReadbackIsThere(&r, &there) && !there);
  Hold(false);
  while (!there) Check(!GpufmtReadbackIsThere(&r, &there));
  Check(!GpufmtReadbackTake(&r, &host) && Has(host, 5));
  delay = 2000;
  for (int k = 0; k < 2; k++) Check(!GpufmtReadbackQueue(&r, block, current_stream));
  Check(!GpufmtReadbackDestroy(&r) && !nevents && !pinned_bytes); /* the driver looks whether all is done */
  delay = 0;
}

static void Errors(int backend)
{
  int64_t        block[WORDS];
  GpufmtReadback r;
  const void    *host;

  Check(!PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
  Check(!GpufmtReadbackCreate(backend, sizeof(block), &r));
  Check(GpufmtReadbackTake(&r, &host) == PETSC_ERR_ORDER);
  Set(block, 1);
  if (backend == GPUFMT_BACKEND_CUDA) {
    copies_till_failure = 0;
    Check(GpufmtReadbackQueue(&r, block, current_stream) == PETSC_ERR_GPU);
    events_till_failure = 0;
    Check(GpufmtReadbackQueue(&r, block, current_stream) == PETSC_ERR_GPU);
  }
  Check(!GpufmtReadbackQueue(&r, block, current_stream));
  Check(!GpufmtReadbackQueue(&r, block, current_stream));
  Check(GpufmtReadbackQueue(&r, block, current_stream) == PETSC_ERR_ORDER);
  if (backend == GPUFMT_BACKEND_CUDA) {
    waits_till_failure = 0;
    Check(GpufmtReadbackTake(&r, &host) == PETSC_ERR_GPU);
  }
  for (int k = 0; k < 2; k++) Check(!GpufmtReadbackTake(&r, &host) && Has(host, 1));
  Check(!GpufmtReadbackDestroy(&r) && !nevents && !pinned_bytes);
  Check(!PetscPopErrorHandler());
}

int main(void)
{
  StartDriver();
  Order(GPUFMT_BACKEND_HOST);
  for (delay = 0; delay <= 40; delay += 20) Order(GPUFMT_BACKEND_CUDA);
  delay = 0;
  Late();
  Errors(GPUFMT_BACKEND_HOST);
  Errors(GPUFMT_BACKEND_CUDA);
  printf("passed\n");
  return 0;
}
