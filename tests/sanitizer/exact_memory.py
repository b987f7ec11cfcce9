"""Device memory in which compute-sanitizer sees an access outside an array, and results show what was never written."""

from petsc_gpufmt.backends import device_memory, driver


def take_arrays_one_by_one(backend):
    """Give each array from now on an allocation of its size from cuMemAlloc, filled with NaN and -1."""
    together = device_memory.DeviceMemory.empty

    def alone(memory, arrays, stream):
        made = [together(memory, (array,), stream)[0] for array in arrays]
        for array in made:
            if array.size:
                driver.fill(array.ptr, 0xFF, array.nbytes, stream)
        return made

    def cleared(self, *arrays, zeros=0):
        made = self.memory.empty(arrays, self.stream)
        for array in made[:zeros]:
            self.clear(array)  # they do not follow one another
        return made

    device_memory.DeviceMemory.empty, device_memory.ALIGNMENT = alone, 1
    device_memory.SMALL = device_memory.MEDIUM = 0  # none is rounded up
    type(backend).empty = cleared
    backend.memory._pool = None  # of the process: the planner's, too
    backend.xp.cuda.set_allocator(None)
