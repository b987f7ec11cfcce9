"""Whether a loop in a CUDA graph goes on, and whether there can be one."""

import numpy as np
import pytest
from answers import Answer, failing, requested_place, settled_tokens
from fake_driver import fake_driver
from places import make_backend

from petsc_gpufmt.backends import backend as backends
from petsc_gpufmt.backends import driver, nvrtc
from petsc_gpufmt.backends.driver import DriverError, DriverMemoryError
from petsc_gpufmt.backends.kernel_modules import Module, declared
from petsc_gpufmt.backends.loop import loop_condition
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.planning import abi

WORDS = {0: 1, 1: 0, -1: 0, 1 << 32: 0}
"""What a loop is told of a word: all of its 64 bits count."""


@pytest.mark.parametrize("word", WORDS)
def test_a_loop_goes_on_as_long_as_its_word_is_0(request, word):
    backend = make_backend(request, "emulation")
    condition, stop = np.full(2, 9, np.uint32), np.array([word], np.int64)
    backend.run([loop_condition(backend)], {Slot.ALPHA: condition.ctypes.data, Slot.X: stop})
    assert condition.tolist() == [WORDS[word], 9]


@pytest.mark.gpu
def test_a_driver_that_has_such_loops_puts_the_function_in(request):
    backend = make_backend(request, "cuda")
    if not hasattr(driver.libraries()[0], "cuGraphConditionalHandleCreate"):
        pytest.skip("a driver of CUDA 12.2 or older")
    assert loop_condition(backend).function


@pytest.fixture
def fake(emulation_folder):
    with fake_driver(emulation_folder) as made:
        yield made


def asked():
    return Answer(abi.Ask.LOOP, abi.LoopRequestStruct(requested_place("cuda")), abi.LoopAnswerStruct(), {})


def test_an_answer_has_the_launch_of_the_condition(fake):
    before = settled_tokens()
    with asked() as a:
        assert a.error == (0, "") and a.answer.why_not == b""
        condition, stop = np.full(2, 9, np.uint32), np.array([0])
        a.launch(a.answer.condition, {Slot.ALPHA: condition.ctypes.data, Slot.X: stop})
        assert condition.tolist() == [1, 9] and a.answer.condition.nlaunches == 1
    assert settled_tokens() == before


@pytest.mark.parametrize("error", [UnsupportedError("no compiler"), DriverError(218, "CUDA_ERROR_INVALID_PTX", "no")])
def test_an_answer_says_why_there_is_none(fake, monkeypatch, error):
    failing(monkeypatch, backends, "device_function", error)
    with asked() as a:
        assert a.error == (0, "") and a.answer.condition.nlaunches == 0
        assert a.answer.why_not.decode() == str(error)


@pytest.mark.parametrize("times", [1, 2])
def test_a_lack_of_memory_is_no_reason_but_tried_once_more(fake, monkeypatch, times):
    out_of_memory = DriverMemoryError(2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
    failing(monkeypatch, backends, "device_function", *[out_of_memory] * times)
    with asked() as a:
        if times == 1:
            assert a.error == (0, "") and a.answer.condition.nlaunches == 1
        else:
            assert "the condition of a loop in a CUDA graph on cuda: out of memory" in a.error[1]


@pytest.mark.parametrize("version", [(12, 2), (12, 3), (13, 0)])
def test_a_compiler_that_is_too_old_is_known(monkeypatch, version):
    monkeypatch.setattr(nvrtc, "binding", lambda: type("Nvrtc", (), {"getVersion": lambda: version}))
    (module,) = declared("common/loop")
    assert nvrtc.compiles(module) is (version >= (12, 3))
    assert nvrtc.compiles(Module("patterns/csr", ("csr_c",)))
