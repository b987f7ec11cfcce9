"""Entries of rows that other ranks look at come to the ghosts: of one and of several arrays, of any length."""

import ctypes

import numpy as np
from dense import COMM, TYPE, distribute, layouts, on_host, random_dense
from failing import LIBRARY, ORDER, OUT_OF_MEMORY, Allocations
from petsc4py import PETSc

from petsc_gpufmt.planning import abi, planner, requests

OPTIONS = PETSc.Options()
BACKEND = abi.BACKENDS.index("host" if on_host() else "cuda")
OUT_OF_RANGE = 63
MOST = 14  # words of a row
IS_LAST = COMM.rank == COMM.size - 1


class Array(ctypes.Structure):
    _fields_ = [("array", ctypes.c_void_p), ("words", ctypes.c_int64)]


LIBRARY.GpufmtGhostsUpdate.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
LIBRARY.GpufmtGhostsExchange.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p
LIBRARY.GpufmtGhostsDestroy.argtypes = (ctypes.c_void_p,)


def entries(rows, words, seed):
    """(rows, words) numbers that tell which they are."""
    return (np.asarray(rows).reshape(-1, 1) * 100 + np.arange(words) + seed * 10**6).astype(np.uint32)


class Memory:
    """Numbers of 32 bits where vectors of matrices are."""

    def __init__(self, numbers):
        self.count = numbers.size
        size = -(-numbers.nbytes // PETSc.ScalarType().itemsize)
        padded = np.zeros(size * PETSc.ScalarType().itemsize // 4, np.uint32)
        padded[: self.count] = numbers.ravel()
        self.vector = PETSc.Vec().create(PETSc.COMM_SELF)
        self.vector.setSizes(size)
        self.vector.setType("seq" if on_host() else "seqcuda")
        self.vector.setArray(padded.view(PETSc.ScalarType))

    def __enter__(self):
        self.place = self.vector.getArray().ctypes.data if on_host() else self.vector.getCUDAHandle()
        return self.place

    def __exit__(self, *_):
        if not on_host():
            self.vector.restoreCUDAHandle(self.place)

    def numbers(self):
        return self.vector.getArray().view(np.uint32)[: self.count].copy()


class Ghosts:
    """Exchanges of the rows of a square dense matrix; `error` is the code of what failed in the end."""

    def __init__(self, dense, local_rows=None, words=MOST, matrix_type=TYPE):
        self.matrix = distribute(dense, matrix_type, local_rows, local_rows)
        self.address, self.words = ctypes.c_void_p(), words
        first, last = self.matrix.getOwnershipRange()
        self.rows, outside = np.arange(first, last), np.delete(dense[first:last], slice(first, last), axis=1)
        self.ghosts = np.delete(np.arange(len(dense)), self.rows)[(outside != 0).any(axis=0)]
        self.update()

    def update(self):
        self.error = LIBRARY.GpufmtGhostsUpdate(self.matrix.handle, BACKEND, self.words, ctypes.byref(self.address))
        assert bool(self.address) == (not self.error)

    def exchange(self, lengths, own=0, seed=0):
        """What has come to the ghosts of arrays with so many words for each row, and what has failed on this rank."""
        given = [entries(self.rows, words, seed + k) for k, words in enumerate(lengths)]
        room = [np.full((len(self.ghosts), words), 7, np.uint32) for words in lengths]
        memory = [Memory(np.vstack(parts)) for parts in zip(given, room, strict=True)]
        places = [part.__enter__() for part in memory]
        arrays = (Array * len(lengths))(*zip(places, lengths, strict=True))
        own = ctypes.c_int(own)
        self.error = LIBRARY.GpufmtGhostsExchange(self.address, len(lengths), arrays, ctypes.byref(own))
        came = []
        for part, rows, words in zip(memory, given, lengths, strict=True):
            part.__exit__()
            found = part.numbers().reshape(-1, words)
            assert np.array_equal(found[: len(rows)], rows)  # what is sent stays
            came.append(found[len(rows) :])
        return came, own.value

    def check(self, *lengths, seed=0):
        came, own = self.exchange(lengths, seed=seed)
        assert (self.error, own) == (0, 0)
        for k, found in enumerate(came):
            assert np.array_equal(found, entries(self.ghosts, lengths[k], seed + k)), (lengths, k)

    def destroy(self):
        assert LIBRARY.GpufmtGhostsDestroy(ctypes.byref(self.address)) == 0 and not self.address
        self.matrix.destroy()


def check_all_lengths():
    """Numbers of 4 and of 8 bytes, and rows of scalars; a rank may have no rows, and one may have all."""
    dense = random_dense(60, 60)
    for local_rows in layouts(60).values():
        for matrix_type in (TYPE, "aij"):
            ghosts = Ghosts(dense, local_rows, matrix_type=matrix_type)
            assert ghosts.error == 0
            for seed, lengths in enumerate([(1,), (2,), (1, 1), (2, 2), (2, 12), (1, 3), (14,), (3, 4, 5)]):
                ghosts.check(*lengths, seed=seed)
            ghosts.destroy()


def check_no_ghosts():
    """On all ranks, and on some: the first looks at rows of others, and nobody at those of the last."""
    some = np.eye(30, dtype=PETSc.ScalarType)
    some[0, :20] = 1.0
    for dense in (np.eye(30, dtype=PETSc.ScalarType), some):
        ghosts = Ghosts(dense)
        ghosts.check(1, 2)
        ghosts.destroy()


def check_they_stay_while_the_matrix_does():
    dense = random_dense(40, 40)
    dense[:20, 39] = 0  # on the first of several ranks
    ghosts = Ghosts(dense, words=3)
    before = ghosts.address.value
    ghosts.update()
    assert COMM.size == 1 or ghosts.address.value == before
    ghosts.words = 5
    ghosts.update()
    ghosts.check(2, 3)
    A = ghosts.matrix
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    if COMM.size > 1 and COMM.rank == 0:
        A.setValue(0, 39, 1.0)
        ghosts.ghosts = np.append(ghosts.ghosts, 39)
    A.assemble()
    ghosts.update()
    ghosts.check(2, 3)
    ghosts.destroy()


def check_a_scatter_that_does_not_tell():
    OPTIONS["sf_type"] = "window"
    ghosts = Ghosts(random_dense(30, 30))
    OPTIONS.delValue("sf_type")
    ghosts.check(2, 12)
    ghosts.destroy()


def check_too_many_words():
    ghosts = Ghosts(random_dense(30, 30), words=3)
    ghosts.exchange((2, 2))
    assert ghosts.error == (OUT_OF_RANGE if COMM.size > 1 else 0)
    ghosts.check(1, 2)
    ghosts.destroy()


def check_a_rank_that_has_failed():
    """Its messages come, whatever is in them, those of others are right, and so are the next ones."""
    ghosts = Ghosts(np.ones((20, 20), PETSc.ScalarType))
    for rank in range(COMM.size):
        failed = COMM.rank == rank
        came, own = ghosts.exchange((2, 4), own=OUT_OF_MEMORY if failed else 0)
        assert (ghosts.error, own) == (0, OUT_OF_MEMORY if failed else 0)
        owners = np.searchsorted(ghosts.matrix.getOwnershipRanges(), ghosts.ghosts, side="right") - 1
        for k, found in enumerate(came):
            expected = entries(ghosts.ghosts, found.shape[1], k)
            assert failed or np.array_equal(found[owners != rank], expected[owners != rank])
        ghosts.check(2, 4, seed=rank)
    ghosts.destroy()


def check_a_set_up_that_fails_on_one_rank():
    dense, number, failed = np.ones((20, 20), PETSc.ScalarType), 0, True
    while failed:
        with Allocations("native/parallel/", number if IS_LAST else None) as allocations:
            ghosts = Ghosts(dense)
        failed = COMM.tompi4py().allreduce(allocations.failed)
        assert ghosts.error == (OUT_OF_MEMORY if failed else 0), f"allocation {number}"
        number += 1
    assert number > 3
    ghosts.destroy()
    kind = requests.KINDS[abi.Ask.GATHER]

    def fill(*_):
        raise ValueError("on purpose")

    if IS_LAST:
        requests.KINDS[abi.Ask.GATHER] = kind._replace(fill=fill)
    ghosts = Ghosts(dense)
    requests.KINDS[abi.Ask.GATHER] = kind
    assert len(set(COMM.tompi4py().allgather(ghosts.error))) == 1 and ghosts.error


def check_a_rank_whose_plan_is_gone():
    """It fails alone, and no rank waits for it."""
    ghosts = Ghosts(np.ones((20, 20), PETSc.ScalarType))
    if IS_LAST:
        planner._shutdown()
    _, own = ghosts.exchange((1, 2))
    assert (ghosts.error, own) == (0, ORDER if IS_LAST else 0)
    ghosts.destroy()


check_all_lengths()
check_no_ghosts()
check_they_stay_while_the_matrix_does()
check_a_scatter_that_does_not_tell()
check_too_many_words()
if COMM.size > 1:
    check_a_rank_that_has_failed()
    check_a_set_up_that_fails_on_one_rank()
    check_a_rank_whose_plan_is_gone()  # last: there are no plans from then on
