"""What plans set in CuPy, and that it is as before afterwards; CuPy itself is not needed."""

from types import SimpleNamespace

import pytest

from petsc_gpufmt.backends.cupy_state import borrowed_stream, simple_reductions


def test_stream_through_the_protocol():
    cuda = SimpleNamespace(Stream=SimpleNamespace(from_external=lambda owner: ("adopted", owner.__cuda_stream__())))
    assert borrowed_stream(cuda, 1234, 1) == ("adopted", (0, 1234))


def test_stream_of_a_cupy_without_the_protocol():
    cuda = SimpleNamespace(Stream=SimpleNamespace(), ExternalStream=lambda pointer, device: (pointer, device))
    assert borrowed_stream(cuda, 1234, 1) == (1234, 1)


class Core:
    accelerators: tuple = (1, 2)

    def get_reduction_accelerators(self):
        return self.accelerators

    def set_reduction_accelerators(self, accelerators):
        self.accelerators = accelerators


def test_reductions_are_simple_for_a_while():
    core = Core()
    with simple_reductions(SimpleNamespace(_core=core)):
        assert core.accelerators == []
    assert core.accelerators == (1, 2)


def test_reductions_are_as_before_after_an_error():
    core = Core()
    with pytest.raises(ValueError, match="no plan"), simple_reductions(SimpleNamespace(_core=core)):
        raise ValueError("no plan")
    assert core.accelerators == (1, 2)
