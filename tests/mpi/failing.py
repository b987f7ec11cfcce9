"""Failures on purpose on one rank: of plans, of PETSc's allocations, which are also counted, and of its events."""

import ctypes
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.planning import krylov_requests, requests

OUT_OF_MEMORY, UNSUPPORTED, ORDER, PYTHON = 55, 56, 58, 101  # PETSC_ERR_...
LIBRARY = native_library.load()
ALLOCATE = ctypes.CFUNCTYPE(
    *(ctypes.c_int, ctypes.c_size_t, ctypes.c_bool, ctypes.c_int),
    *(ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)),
)
FREE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
BEGIN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, *4 * (ctypes.c_void_p,))


def error_of(function, *arguments):
    """The code of the PETSc error that a call ends with, 0 if it ends well."""
    try:
        function(*arguments)
    except PETSc.Error as error:
        return error.ierr
    return 0


@contextmanager
def plan_failing(number):
    """Plan `number` of the matrices multiplied fails, counted from 0; none if it is None."""
    original, count = requests.find_format, 0

    def find_format(name):
        nonlocal count
        count += 1
        if count - 1 == number:
            raise UnsupportedError("on purpose")
        return original(name)

    requests.find_format = find_format
    try:
        yield
    finally:
        requests.find_format = original


@contextmanager
def method_failing(method):
    """The plan of a Krylov method fails on the last rank."""

    def fail(*_):
        raise UnsupportedError("on purpose")

    original = krylov_requests.METHODS[method]
    if MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1:
        krylov_requests.METHODS[method] = fail
    try:
        yield
    finally:
        krylov_requests.METHODS[method] = original


class Allocations:
    """Allocations of PETSc within a `with` block; those by files whose name contains `files` fail from one on.

    `alive` are the places of those not freed yet; `failed` tells whether one has failed, `place` where.
    """

    place = ""

    def __init__(self, files="", failing=None):
        self.files, self.failing, self.failed = files.encode(), failing, False
        self.alive, self._count = {}, 0
        self._pointers = [ctypes.c_void_p.in_dll(LIBRARY, name) for name in ("PetscTrMalloc", "PetscTrFree")]

    def __enter__(self):
        PETSc.garbage_cleanup()  # petsc4py keeps parallel objects until all ranks say so
        self._originals = [pointer.value for pointer in self._pointers]
        allocate, free = ALLOCATE(self._originals[0]), FREE(self._originals[1])

        def watched_allocate(size, clear, line, function, file, result):
            if self.failing is not None and self.counts(file):
                self._count += 1
                if self._count - 1 == self.failing:
                    self.failed, self.place = True, f"{function.decode()}() {file.decode()}:{line}"
                    return OUT_OF_MEMORY
            status = allocate(size, clear, line, function, file, result)
            if result[0]:
                self.alive[result[0]] = f"{function.decode()}() {file.decode()}:{line}"
            return status

        def watched_free(address, line, function, file):
            self.alive.pop(address, None)
            return free(address, line, function, file)

        self._callbacks = ALLOCATE(watched_allocate), FREE(watched_free)
        for pointer, callback in zip(self._pointers, self._callbacks, strict=True):
            pointer.value = ctypes.cast(callback, ctypes.c_void_p).value
        return self

    def counts(self, file):
        """Whether an allocation in a file is one of those that may fail."""
        return self.files in file

    def __exit__(self, *_):
        PETSc.garbage_cleanup()
        LIBRARY.GpufmtTrim()  # what is kept for the next result
        for pointer, original in zip(self._pointers, self._originals, strict=True):
            pointer.value = original


class Events:
    """Of PETSc's events with these names within a `with` block, number `failing`, counted from 0, is an error.

    `begun` is how many there were.
    """

    def __init__(self, names, failing=None):
        self.begun, self._failing = 0, failing
        self._numbers = set()
        for name in names:
            number = ctypes.c_int()
            assert LIBRARY.PetscLogEventGetId(name.encode(), ctypes.byref(number)) == 0 and number.value >= 0, name
            self._numbers.add(number.value)

    def __enter__(self):
        self._callback, self._handler = BEGIN(self._begin), ctypes.c_void_p()
        comm = ctypes.c_void_p(MPI._handleof(MPI.COMM_SELF))
        handler = ctypes.byref(self._handler)
        assert LIBRARY.PetscLogHandlerCreateLegacy(comm, self._callback, None, None, None, handler) == 0
        assert LIBRARY.PetscLogHandlerStart(self._handler) == 0
        return self

    def __exit__(self, *_):
        assert LIBRARY.PetscLogHandlerStop(self._handler) == 0
        assert LIBRARY.PetscLogHandlerDestroy(ctypes.byref(self._handler)) == 0

    def _begin(self, number, *_):
        if number not in self._numbers:
            return 0
        self.begun += 1
        return OUT_OF_MEMORY if self.begun - 1 == self._failing else 0


class FailingDiagonal:
    """A matrix or preconditioner of Python, like `A`: a diagonal. The last rank fails, the time that is named."""

    def __init__(self, A, when):
        self.calls, self.when = 0, when
        self.diagonal = A.createVecRight()
        self.diagonal.setArray(np.arange(*A.getOwnershipRange(), dtype=PETSc.ScalarType) + 1)
        self.is_last = A.comm.rank == A.comm.size - 1

    def mult(self, _, x, y):
        self.calls += 1
        if self.calls == self.when and self.is_last:
            raise RuntimeError("on purpose")
        y.pointwiseMult(x, self.diagonal)

    apply = mult
