/* Memory that nobody uses any more is kept for the next, where to take it and to give it back takes longer than what is done with it. */
#include "runtime/runtime.h"

/* whether memory serves so many bytes without a waste of more than a third */
static PetscBool Fits(const GpufmtMemory *memory, size_t bytes)
{
  static const size_t small = (size_t)1 << 16;

  return (PetscBool)(memory->capacity >= bytes && memory->capacity <= bytes + bytes / 3 + small);
}

static GpufmtMemory Remove(GpufmtKept *kept, int which)
{
  const GpufmtMemory memory = kept->memory[which];

  kept->bytes -= memory.capacity;
  kept->count--;
  for (int k = which; k < kept->count; k++) kept->memory[k] = kept->memory[k + 1];
  return memory;
}

/* Memory of at least so many bytes, if some is kept; else its address is NULL. Of several it is the smallest, and of these the one that came last. */
GpufmtMemory GpufmtKeptTake(GpufmtKept *kept, size_t bytes)
{
  int best = -1;

  for (int k = 0; k < kept->count; k++)
    if (Fits(&kept->memory[k], bytes) && (best < 0 || kept->memory[k].capacity <= kept->memory[best].capacity)) best = k;
  return best < 0 ? (GpufmtMemory){NULL, 0} : Remove(kept, best);
}

/* Nobody uses the memory any more. Where there is too much, what came first goes. */
PetscErrorCode GpufmtKeptAdd(GpufmtKept *kept, GpufmtMemory *memory)
{
  const GpufmtMemory added = *memory;

  PetscFunctionBegin;
  *memory = (GpufmtMemory){NULL, 0};
  if (!added.address) PetscFunctionReturn(PETSC_SUCCESS);
  if (added.capacity > kept->most) {
    PetscCall((*kept->free)(added.address));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  while (kept->count == GPUFMT_MOST_KEPT || kept->bytes + added.capacity > kept->most) PetscCall((*kept->free)(Remove(kept, 0).address));
  kept->memory[kept->count++] = added;
  kept->bytes += added.capacity;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* As memory of the device is taken, of which so much is there and so much free: others may want it, too. */
void GpufmtKeptLimit(GpufmtKept *kept, size_t available, size_t total)
{
  kept->most = PetscMin(total / 16, available / 4);
}

PetscErrorCode GpufmtKeptForget(GpufmtKept *kept)
{
  PetscFunctionBegin;
  while (kept->count) PetscCall((*kept->free)(Remove(kept, 0).address));
  PetscFunctionReturn(PETSC_SUCCESS);
}
