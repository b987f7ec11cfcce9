"""Arrays in the memory of a device: views, and what they refuse. No memory is touched."""

from types import SimpleNamespace

import numpy as np
import pytest

from petsc_gpufmt.backends.device_array import DeviceArray
from petsc_gpufmt.backends.plan import address, argument_word

MEMORY = SimpleNamespace(stream=0x77)


def array(size=10, dtype=np.int32, ptr=0x1000):
    return DeviceArray(MEMORY, ptr, size, np.dtype(dtype))


def test_sizes():
    a = array(7, np.float64)

    assert (a.size, a.dtype, a.itemsize, a.nbytes) == (7, np.dtype(np.float64), 8, 56)


@pytest.mark.parametrize(
    ("key", "begin", "size"),
    [
        (slice(None), 0, 10),
        (slice(2, 5), 2, 3),
        (slice(-3, None), 7, 3),
        (slice(4, 99), 4, 6),
        (slice(0, 1, 1), 0, 1),
    ],
)
def test_a_slice_is_a_view_that_keeps_the_memory(key, begin, size):
    a = array()[key]

    assert (a.ptr, a.size, a.dtype, a.memory) == (0x1000 + 4 * begin, size, np.dtype(np.int32), MEMORY)
    assert address(a) == argument_word(a) == a.ptr


@pytest.mark.parametrize("empty", [array(0), array()[3:3], array()[5:2], array()[10:], array(0)[1:]])
def test_an_empty_array_is_passed_as_a_null_pointer(empty):
    assert (empty.size, empty.nbytes, empty.ptr) == (0, 0, 0)
    assert address(empty) == argument_word(empty) == 0
    assert empty.__cuda_array_interface__["data"] == (0, False)


def test_what_cupy_reads():
    assert array(3, np.float32, 0x100).__cuda_array_interface__ == {
        "shape": (3,),
        "typestr": "<f4",
        "data": (0x100, False),
        "version": 3,
        "stream": 0x77,
    }


def test_the_default_stream_has_a_number_of_its_own_in_what_cupy_reads():
    a = DeviceArray(SimpleNamespace(stream=0), 0x100, 3, np.dtype(np.int32))

    assert a.__cuda_array_interface__["stream"] == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda a: a[0],
        lambda a: a[::2],
        lambda a: a[np.arange(2)],
        lambda a: a + 1,
        lambda a: np.int32(1) + a,
        lambda a: np.arange(10) + a,
        lambda a: a == a,
        lambda a: a != 0,
        lambda a: bool(a),
        lambda a: list(a),
        lambda a: len(a),
        lambda a: np.asarray(a),
        lambda a: np.cumsum(a),
    ],
)
def test_what_would_compute_on_the_host_is_refused(use):
    with pytest.raises(TypeError):
        use(array())


def test_a_refusal_says_what_to_do():
    with pytest.raises(TypeError, match=r"slices a\[i:j\] alone: compute with a kernel, or bring it to the host"):
        array()[0]


def test_arrays_may_be_looked_up():
    a = array()

    assert {a: 1}[a] == 1 and repr(a) == "DeviceArray(10 int32 at 0x1000)"
