"""The planner on a device, without CuPy: driver and device are fakes, kernels are those of the emulation."""

import sys
import threading

import numpy as np
import pytest
import test_planner
import test_planner_products
from builders import shape
from chains import operands_of
from fake_driver import fake_driver
from stored_matrix import assert_product
from test_planner import SCALAR

from petsc_gpufmt.backends.plan import Operation, Product
from petsc_gpufmt.planning import abi, given

STREAM = 0x51


@pytest.fixture(autouse=True)
def fake(emulation_folder, monkeypatch):
    import petsc4py.PETSc  # noqa: F401  what is planned is cited

    monkeypatch.setitem(sys.modules, "cupy", None)  # to import it is an error
    with fake_driver(emulation_folder) as made:
        yield made


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("format_name", ["pjds", "bsr", "evchyb", "gpufmt"])
def test_stores(fake, format_name, transposed):
    matrix = shape("blocked_4x4_incomplete")
    expected = matrix.transposed() if transposed else matrix
    rng = np.random.default_rng(90)
    x, y = (rng.standard_normal(n).astype(SCALAR) for n in (expected.ncols, expected.nrows))
    z = np.full(expected.nrows, np.nan, SCALAR)

    place = {"backend": "cuda", "stream": STREAM}
    with test_planner.Answered(matrix, "", format_name, transposed=transposed, row_block=1, col_block=1, **place) as a:
        assert a.error == (0, "")
        a.replay(Operation.REFRESH, values=matrix.values.astype(SCALAR))
        a.replay(Operation.MULTADD, x=x, y=y, z=z)

    assert_product(z, expected, x, y)
    assert {call[-1] for call in fake.named("launch", "cuMemAllocFromPoolAsync", "cuMemsetD8Async")} == {STREAM}


@pytest.mark.parametrize("product", [Product.AB, Product.PTAP], ids=lambda p: p.formula)
def test_products(fake, product):
    with test_planner_products.Answered(product, operands_of(product, 120, 50), backend="cuda", stream=STREAM) as a:
        assert a.error == (0, "")
        a.check()

    assert {call[-1] for call in fake.named("launch", "cuMemAllocFromPoolAsync", "cuMemsetD8Async")} == {STREAM}


@pytest.mark.real
def test_threads_plan_one_after_the_other():
    """They have one memory, in which each takes what is free and reads what its kernels have told."""
    place = abi.PlaceStruct(abi.BACKENDS.index("cuda"), 0, 4, np.dtype(SCALAR).itemsize)
    inside, seen, has_begun, never = [], [], threading.Event(), threading.Event()

    def plan(number):
        with given.backend_at(place), given.backend_at(place):  # a plan within a plan
            inside.append(number)
            has_begun.set()
            seen.append(list(inside))
            never.wait(0.02)
            inside.remove(number)

    with given.backend_at(place):
        threads = [threading.Thread(target=plan, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        assert not has_begun.wait(0.1)
    for thread in threads:
        thread.join()

    assert sorted(seen) == [[0], [1], [2]]
