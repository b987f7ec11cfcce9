"""The order in which PETSc's agg visits rows, on the host and by the device kernels, against agg's own exchanges."""

import numpy as np
import pytest
from petsc4py import PETSc
from places import INDEX, SCALAR, make_backend

from petsc_gpufmt.coarsening.shuffle import shuffled

PLACES = [
    pytest.param(("host", SCALAR, INDEX, 0), id="host"),
    pytest.param(("emulation", np.float64, np.int32, 0), id="emulation"),
    pytest.param(("emulation", np.float64, np.int64, 256), id="emulation in turns"),
    pytest.param(("cuda", np.float64, np.int32, 0), marks=pytest.mark.gpu, id="cuda"),
]


def exchanged(n: int, scalar=np.float64) -> list[int]:
    """One exchange after another, with PETSc's random numbers."""
    random = PETSc.Random().create(PETSc.COMM_SELF)
    random.setType("rander48")
    order, drawn_before = list(range(n)), set()
    for i in range(n):
        k = int(scalar(random.getValueReal()) * scalar(n)) % n
        if k != i and k not in drawn_before:
            order[i], order[k] = order[k], order[i]
            drawn_before.add(k)
    return order


@pytest.mark.parametrize("n", [0, 1, 2, 3, 64, 1000, 3001])
@pytest.mark.parametrize("place", PLACES)
def test_rows_come_in_the_order_of_agg(request, place, n):
    name, scalar, index, resident_threads = place
    backend = make_backend(request, name, scalar, index, resident_threads)

    order = backend.to_host(shuffled(n, backend))

    assert order.dtype == backend.index
    assert order.tolist() == exchanged(n, backend.real.type)


@pytest.mark.real
def test_in_single_precision_kernels_draw_by_rounded_numbers(request):
    backend = make_backend(request, "emulation", np.float32, np.int32, 512)
    order = backend.to_host(shuffled(2000, backend))
    assert order.tolist() == exchanged(2000, np.float32)
