"""Programs: launches that are prepared once, on a device and elsewhere."""

import ctypes
import struct

import numpy as np
import pytest
from emulation.backend import EmulatedBackend
from fake_driver import fake_driver

from petsc_gpufmt.backends.backend import CudaBackend
from petsc_gpufmt.backends.plan import Struct
from petsc_gpufmt.backends.program import Program, Step

STREAM = 0x51
PROGRAM = Program(
    "nrows rowptr none counts first last",
    Step("stem", "left_out", (), 128, "rowptr"),
    Step("stem", "kernel", (4, 2), 256, "{counts first last} rowptr none"),
    Step("stem", "kernel", (8, 2), 32, "nrows {rowptr none} nrows"),
)


@pytest.fixture
def device():
    with fake_driver() as fake:
        backend = CudaBackend(np.float64, np.int32, device=0)
        backend.asked_for = []
        backend.function = lambda *kernel: backend.asked_for.append(kernel) or len(backend.asked_for)
        yield fake, backend


def words_of(fake, sizes):
    """What arguments of so many words are in each launch, which is added to the list."""
    found = []

    def launched(parameters):
        addresses = (ctypes.c_uint64 * len(sizes)).from_address(parameters)
        arguments = [(ctypes.c_uint64 * n).from_address(at) for n, at in zip(sizes, addresses, strict=True)]
        found.append([tuple(argument) for argument in arguments])

    fake.launched = launched
    return found


def test_a_device_launches_each_step_with_what_it_names(device):
    fake, backend = device
    (rowptr, counts) = backend.empty((10, backend.index), (4, np.dtype(np.int64)))
    found = words_of(fake, (3, 1, 1))

    with backend.on(STREAM):
        for nrows in (9, -1):
            backend.carry_out(PROGRAM, (0, 7, 5), (nrows, rowptr, None, counts, 2, 3))

    assert (
        fake.named("launch")
        == [
            ("launch", 2, (7, 1, 1), (256, 1, 1), 0, STREAM),
            ("launch", 3, (5, 1, 1), (32, 1, 1), 0, STREAM),
        ]
        * 2
    )
    assert found[0] == found[2] == [(counts.ptr, 2, 3), (rowptr.ptr,), (0,)]
    assert [launch[0][0] for launch in found[1::2]] == [9, 2**64 - 1]
    assert [launch[1:] for launch in found[1::2]] == [[(rowptr.ptr,), (9,)], [(rowptr.ptr,), (2**64 - 1,)]]
    assert len(backend.asked_for) == 3  # once for both


def test_another_device_has_kernels_of_its_own(device):
    fake, backend = device
    backend.carry_out(PROGRAM, (0, 0, 1), (1, None, None, None, 0, 0))

    other = CudaBackend(np.float32, np.int32, device=0)
    other.function = lambda *kernel: 40
    other.carry_out(PROGRAM, (0, 0, 1), (1, None, None, None, 0, 0))

    assert [call[1] for call in fake.named("launch")] == [3, 40]


def test_elsewhere_a_program_is_a_list_of_launches():
    rowptr, counts = np.zeros(3), np.zeros(2)
    kernels = {(4, 2): 11, (8, 2): 12}

    launches = PROGRAM.launches(lambda *kernel: kernels[kernel[2]], (0, 7, 5), (9, rowptr, None, counts, 2, 3))

    assert [(launch.function, launch.grid, launch.block) for launch in launches] == [
        (11, (7, 1, 1), (256, 1, 1)),
        (12, (5, 1, 1), (32, 1, 1)),
    ]
    assert launches[0].arguments == (Struct(counts, 2, 3), rowptr, None) and type(launches[0].arguments[0]) is Struct
    assert launches[1].arguments == (9, Struct(rowptr, None), 9)


def test_a_program_is_carried_out_by_every_backend(emulation_folder):
    step = Step("patterns/csr", "csr_gather_entries", (256,), 256, "n places words indices gathered")
    program = Program("indices gathered places n words", step)
    backend = EmulatedBackend(np.float64, np.int32, emulation_folder)
    gathered = np.zeros(2, np.int32)

    backend.carry_out(program, (1,), (np.array([5, 6, 7], np.int32), gathered, np.array([2, 0]), 2, 1))

    assert gathered.tolist() == [7, 5]


@pytest.mark.parametrize("arguments", ["nrows columns", "{rowptr counts} nrows", "{last more}"])
def test_what_a_program_is_not_given_is_refused(arguments):
    with pytest.raises(ValueError, match="are not, a struct in one piece, among what is given: nrows rowptr none"):
        Program(" ".join(PROGRAM.names), Step("stem", "kernel", (), 32, arguments))


def test_too_few_blocks_or_arguments_are_refused(device):
    _, backend = device
    for blocks, given in (((1, 1), (1,) * 6), ((1, 1, 1), (1,) * 5)):
        with pytest.raises(struct.error):
            backend.carry_out(PROGRAM, blocks, given)
