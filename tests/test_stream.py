"""PETSc's stream as CuPy's, with either of CuPy's two ways; CuPy itself is not needed."""

from types import SimpleNamespace

from petsc_gpufmt.stream import borrowed_stream


def test_stream_through_the_protocol():
    cuda = SimpleNamespace(Stream=SimpleNamespace(from_external=lambda owner: ("adopted", owner.__cuda_stream__())))
    assert borrowed_stream(cuda, 1234, 1) == ("adopted", (0, 1234))


def test_stream_of_a_cupy_without_the_protocol():
    cuda = SimpleNamespace(Stream=SimpleNamespace(), ExternalStream=lambda pointer, device: (pointer, device))
    assert borrowed_stream(cuda, 1234, 1) == (1234, 1)
