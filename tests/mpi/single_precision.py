"""Products in single precision with the copy of a parallel matrix; what one rank finds out alone, all ranks know."""

import ctypes
import sys
from pathlib import Path

import numpy as np
from dense import COMM, TYPE, csr, distribute, layouts, random_dense
from failing import LIBRARY, ORDER, UNSUPPORTED, plan_failing

sys.path.append(str(Path(__file__).parents[1] / "support"))

from low_copy import check, mult, update  # noqa: E402

COUNT = 61
OUT_OF_RANGE = 63
INPLACE = 3  # MAT_INPLACE_MATRIX


def whole(A, factors):
    """S on all ranks."""
    return np.concatenate(COMM.tompi4py().allgather(factors))


def random_x(A, seed=3):
    """All entries, and those of this rank."""
    x = np.random.default_rng(seed).uniform(-1, 1, A.getSize()[1]).astype(np.float32)
    return x, x[slice(*A.getOwnershipRangeColumn())]


def check_product(A, dense, what):
    x, own = random_x(A)
    error, z = mult(A, own)
    assert error == 0, what
    check(z, dense[slice(*A.getOwnershipRange())], x, f"{what} on rank {COMM.rank}")


def own_block(A, number):
    """The diagonal (0) or the off-diagonal block (1) of this rank."""
    blocks = [ctypes.c_void_p(), ctypes.c_void_p()]
    assert LIBRARY.MatMPIAIJGetSeqAIJ(ctypes.c_void_p(A.handle), *map(ctypes.byref, blocks), None) == 0
    return blocks[number]


def symmetric(seed=1):
    random = np.random.default_rng(seed)
    half = np.triu(np.where(random.random((COUNT, COUNT)) < 0.2, random.uniform(-1, 1, (COUNT, COUNT)), 0), 1)
    return half + half.T + np.diag(random.uniform(4, 8, COUNT))


def check_layouts():
    dense = random_dense(COUNT, COUNT)
    for matrix_type in (TYPE, TYPE.replace("aij", "mpiaij", 1)):
        for name, local in layouts(COUNT).items():
            A = distribute(dense, matrix_type, local, local)
            assert update(A) == (0, None)
            check_product(A, dense, name)
    for rows, columns in ((COUNT, 20), (20, COUNT), (1, 40), (40, 1)):
        dense = random_dense(rows, columns)
        A = distribute(dense)
        assert update(A) == (0, None)
        check_product(A, dense, f"{rows} x {columns}")
    inside = np.kron(np.eye(COMM.size), np.ones((5, 5)))
    A = distribute(inside)
    assert update(A) == (0, None)
    check_product(A, inside, "no neighbours")


def check_changes():
    dense = random_dense(COUNT, COUNT)
    A = distribute(dense)
    assert mult(A, random_x(A)[1])[0] == ORDER, "before there is a copy"
    for factor in (1.0, 3.0, -2.0):
        A.scale(factor)
        dense = dense * factor
        assert update(A) == (0, None) and update(A) == (0, None)
        check_product(A, dense, f"times {factor}")
    other = random_dense(COUNT, COUNT, seed=5)
    A.axpy(1.0, distribute(other), structure=A.Structure.DIFFERENT_NONZERO_PATTERN)
    assert mult(A, random_x(A)[1])[0] == ORDER, "another pattern"
    assert update(A) == (0, None)
    check_product(A, dense + other, "another pattern")


def check_many_products():
    """Each product changes what the next one sends."""
    dense = symmetric() / 16
    A = distribute(dense)
    assert update(A) == (0, None)
    x, own = random_x(A)
    expected = x.astype(float)
    for _ in range(50):
        error, own = mult(A, own)
        assert error == 0
        expected = dense @ expected
    last = np.concatenate(COMM.tompi4py().allgather(own))
    assert np.linalg.norm(last - expected) <= 1e-4 * np.linalg.norm(expected)


def check_scaling():
    """One entry of one rank is enough for all to scale."""
    for exponent in (200, -200):
        for row in (0, COUNT // 2, COUNT - 1):
            dense = symmetric()
            dense[row, row] = np.ldexp(5.0, exponent)
            dense[row, :row] = dense[row, row + 1 :] = dense[:row, row] = dense[row + 1 :, row] = 0
            dense[row, 3] = dense[3, row] = np.ldexp(1.0, exponent // 2) if row != 3 else dense[3, 3]
            A = distribute(dense)
            error, factors = update(A)
            assert error == 0
            scaling = whole(A, factors)
            for _ in range(2):
                check_product(A, scaling[:, None] * dense * scaling, f"{exponent=} {row=}")
                assert update(A)[0] == 0


def check_what_does_not_fit_on_one_rank():
    for row in (0, COUNT - 1):
        dense = symmetric()
        dense[row, COUNT // 2] = 1e60
        A = distribute(dense)
        for _ in range(2):
            assert update(A)[0] == OUT_OF_RANGE
        first, last = A.getOwnershipRange()
        dense[row, COUNT // 2] = 2.0
        A.setValuesCSR(*csr(dense[first:last]))
        A.assemble()
        assert update(A) == (0, None)
        check_product(A, dense, "fits again")


def check_a_plan_fails_on_one_rank():
    dense = random_dense(40, 40)
    for block in range(min(COMM.size, 2)):
        for rank in range(COMM.size):
            A = distribute(dense)
            with plan_failing(block if rank == COMM.rank else None):
                assert update(A)[0] == UNSUPPORTED, f"{block=} {rank=}"
            assert update(A) == (0, None)
            check_product(A, dense, f"after plan {block} failed on rank {rank}")


def check_one_rank_has_other_values():
    """Its product fails there alone, and nobody waits; the next update is for all."""
    dense = random_dense(40, 40)
    for number in range(2):
        for rank in range(COMM.size):
            A = distribute(dense)
            assert update(A) == (0, None)
            if rank == COMM.rank:
                state, block = ctypes.c_int64(), own_block(A, number)
                assert LIBRARY.PetscObjectStateGet(block, ctypes.byref(state)) == 0
                assert LIBRARY.PetscObjectStateSet(block, ctypes.c_int64(state.value + 1)) == 0
                assert mult(A, random_x(A)[1])[0] == ORDER
            else:
                check_product(A, dense, f"rank {rank} has other values")
            assert update(A) == (0, None)
            check_product(A, dense, "after that")


def check_a_block_of_another_type():
    """One that a program has converted."""
    dense = random_dense(COUNT, COUNT)
    for rank in range(COMM.size):
        A = distribute(dense)
        block = own_block(A, 0)
        if rank == COMM.rank:
            assert LIBRARY.MatConvert(block, b"seqaij", INPLACE, ctypes.byref(block)) == 0
        assert update(A) == (UNSUPPORTED, None)


check_layouts()
check_changes()
check_many_products()
check_scaling()
check_what_does_not_fit_on_one_rank()
check_a_plan_fails_on_one_rank()
if COMM.size > 1:
    check_one_rank_has_other_values()
    check_a_block_of_another_type()
