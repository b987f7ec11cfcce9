"""The driver's functions through ctypes: what they are called with, and what failures say."""

import ctypes
from array import array

import pytest
from fake_driver import CONTEXT, FIRST_EVENT, INVALID_CONTEXT, NOT_FOUND, OUT_OF_MEMORY, FakeDriver, fake_driver

from petsc_gpufmt.backends import driver
from petsc_gpufmt.backends.cuda_graph import graph_seconds
from petsc_gpufmt.errors import OutOfMemoryError, UnsupportedError
from petsc_gpufmt.planning import planner

opened = driver.libraries.__wrapped__


@pytest.fixture
def fake():
    with fake_driver() as made:
        yield made


def test_where_there_is_no_driver_it_says_so(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "PyDLL", missing)

    with pytest.raises(
        UnsupportedError, match=r"needs NVIDIA's driver, .*\(libcuda.so.1: cannot open.*-device_enable none$"
    ):
        opened()


def test_a_driver_that_does_not_start_fails_with_its_error(fake, monkeypatch):
    fake.failing["cuInit"] = 100
    monkeypatch.setattr(ctypes, "PyDLL", lambda name: fake)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake)

    with pytest.raises(driver.DriverError, match=r"^CUDA error 100: unknown error, in cuInit$") as e:
        opened()
    assert e.value.code == 100 and not isinstance(e.value, MemoryError)


def test_a_driver_that_is_too_old_is_told_by_what_it_lacks(fake, monkeypatch):
    monkeypatch.delattr(FakeDriver, "_cuMemAllocFromPoolAsync")

    with pytest.raises(UnsupportedError, match=r"no function cuMemAllocFromPoolAsync: install the driver of CUDA 12"):
        driver.allocate_from_pool(1, 100, 0)


def test_every_function_is_one_of_the_fake(fake):
    """So that tests call what plans call."""
    assert all(driver.FUNCTIONS[name].argtypes == types for name, types in {**driver.QUICK, **driver.PATIENT}.items())


@pytest.mark.parametrize(("code", "out_of_memory"), [(OUT_OF_MEMORY, True), (INVALID_CONTEXT, False)])
def test_a_failure_has_the_name_and_the_text_of_the_driver(fake, code, out_of_memory):
    fake.failing["cuMemAllocFromPoolAsync"] = code

    with pytest.raises(driver.DriverError) as e:
        driver.allocate_from_pool(1, 100, 0)

    assert (e.value.code, isinstance(e.value, MemoryError)) == (code, out_of_memory)
    assert str(e.value) == f"{e.value.name}: {'out of memory' if out_of_memory else 'invalid device context'}, " + (
        "in cuMemAllocFromPoolAsync"
    )
    petsc_code, text = planner._code_and_text(e.value)
    assert (petsc_code == OutOfMemoryError.petsc_code) == out_of_memory
    assert text.startswith("out of memory (CUDA_ERROR_OUT_OF_MEMORY: " if out_of_memory else "DriverError: CUDA_ERROR")


def test_a_device_is_described(fake):
    assert (driver.device_count(), driver.device_name(0), driver.compute_capability(0)) == (1, "NVIDIA Fake", (9, 0))
    assert driver.resident_threads(0) == 4 * 128


def test_a_context_is_current_for_a_while(fake):
    fake.contexts = []
    assert driver.current_context() is None

    with driver.current(driver.primary_context(0)):
        assert fake.contexts == [CONTEXT]
        with driver.current(CONTEXT):
            assert fake.contexts == [CONTEXT]

    assert fake.contexts == []


def test_kernels_of_a_module_are_found_by_name(fake):
    module = driver.load_module(b"\x7fELF\0\0image")

    assert driver.module_function(module, "_Z4nameIi") == module + 1
    assert fake.named("cuModuleGetFunction") == [("cuModuleGetFunction", module, b"_Z4nameIi")]
    assert fake.named("cuModuleLoadData") == [("cuModuleLoadData", b"\x7fELF\0\0image")]
    with pytest.raises(driver.DriverError, match="CUDA_ERROR_NOT_FOUND: named symbol not found") as e:
        driver.module_function(module, "missing")
    assert e.value.code == NOT_FOUND


def words_at(parameters, count):
    """What the arguments of a launch are that begin at `parameters`."""
    return [ctypes.c_uint64.from_address(place).value for place in (ctypes.c_uint64 * count).from_address(parameters)]


def queue(launches, words, stream=0):
    heads = array("Q", [number for launch in launches for number in driver.head(*launch)])
    words = array("Q", words)
    driver.Launcher().launch(len(launches), heads.buffer_info()[0], words.buffer_info()[0], stream)


def test_launches_pass_their_shapes_and_their_arguments(fake):
    given = []
    fake.launched = lambda parameters: given.append(words_at(parameters, 2))
    words = [2**31 - 1, 5, 2**64 - 1, 1, 2, 3]

    queue([(7, 0, (2, 3), (32, 4, 5), 48, (1, 2)), (8, 3, (1, 1), (1, 1, 1), 0, (3, 5))], words, 0x7F00_0000_1234)

    assert fake.named("launch") == [
        ("launch", 7, (2**31 - 1, 2, 3), (32, 4, 5), 48, 0x7F00_0000_1234),
        ("launch", 8, (1, 1, 1), (1, 1, 1), 0, 0x7F00_0000_1234),
    ]
    assert given == [[5, 2**64 - 1], [1, 3]]


def test_a_launch_without_blocks_is_left_out(fake):
    queue([(7, 0, (1, 1), (1, 1, 1), 0, ()), (8, 1, (1, 1), (1, 1, 1), 0, (0,))], [0, 4])

    assert [call[1:3] for call in fake.named("launch")] == [(8, (4, 1, 1))]


def test_more_blocks_than_the_driver_counts_are_not_cut(fake):
    queue([(7, 0, (1, 1), (1, 1, 1), 0, ())], [2**32 + 5])

    assert [call[2] for call in fake.named("launch")] == [(2**32 - 1, 1, 1)]  # a driver refuses that


def test_a_launch_has_as_many_arguments_as_there_is_room_for(fake):
    given, places = [], range(1, driver.MOST_ARGUMENTS + 1)
    fake.launched = lambda parameters: given.append(words_at(parameters, len(places)))

    queue([(7, 0, (1, 1), (1, 1, 1), 0, places)], range(1, driver.MOST_ARGUMENTS + 2))

    assert given == [list(range(2, driver.MOST_ARGUMENTS + 2))]
    with pytest.raises(ValueError, match="a kernel with 65 arguments: at most 64 can be passed"):
        driver.head(7, 0, (1, 1), (1, 1, 1), 0, range(driver.MOST_ARGUMENTS + 1))


def test_the_structure_of_a_pool_is_that_of_the_driver():
    assert ctypes.sizeof(driver._PoolProperties) == 88


def test_launches_end_with_one_that_fails(fake):
    fake.failing["cuLaunchKernel"] = INVALID_CONTEXT

    with pytest.raises(driver.DriverError, match="invalid device context, in cuLaunchKernel$"):
        queue([(7, 0, (1, 1), (1, 1, 1), 0, ())] * 2, [1])
    assert len(fake.named("launch")) == 1


def test_the_time_of_a_graph_is_that_of_its_fastest_run(fake):
    streams = []

    def queue(stream):
        streams.append(stream)
        driver.fill(driver.allocate_from_pool(1, 8, stream), 0, 8, stream)

    seconds = graph_seconds(queue, runs=2)

    assert len(streams) == 1
    assert seconds == (FIRST_EVENT + 1) * 1e-3  # the fake's time of a run is the handle of its last event
    assert [name for name, *_ in fake.calls if name.startswith(("cuGraph", "cuStream"))] == [
        "cuStreamCreate",
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphDestroy",
        *["cuGraphLaunch"] * 3,
        "cuStreamSynchronize",
        "cuGraphExecDestroy",
        "cuStreamSynchronize",
        "cuStreamDestroy_v2",
    ]
    assert len(fake.named("cuEventDestroy_v2")) == len(fake.named("cuEventCreate")) == 4


def test_what_fails_while_a_graph_is_recorded_leaves_nothing_behind(fake):
    def queue(stream):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        graph_seconds(queue, runs=2)

    assert fake.named("cuStreamEndCapture") and fake.named("cuGraphDestroy") and fake.named("cuStreamDestroy_v2")
    assert not fake.named("cuGraphLaunch")


def test_a_run_that_fails_is_waited_for(fake):
    """What its launches use is freed next."""
    fake.failing["cuEventRecord"] = 700

    with pytest.raises(driver.DriverError, match="in cuEventRecord"):
        graph_seconds(lambda stream: None, runs=2)

    names = [name for name, *_ in fake.calls]
    assert names.index("cuStreamSynchronize") < names.index("cuStreamDestroy_v2")
