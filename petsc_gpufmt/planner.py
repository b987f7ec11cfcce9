"""The planner: answers the library's requests with plans, and owns what the plans point to."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from petsc_gpufmt import abi, native_library
from petsc_gpufmt.backend import Backend, CudaBackend, HostBackend
from petsc_gpufmt.csr import CsrPattern
from petsc_gpufmt.errors import GpufmtError, OutOfMemoryError, UnsupportedError
from petsc_gpufmt.formats.base import parse_options
from petsc_gpufmt.plan import Operation
from petsc_gpufmt.registry import find_format
from petsc_gpufmt.stream import borrowed_stream

_tokens = itertools.count(1)
_owned: dict[int, list[Any]] = {}
_planner: abi.PlannerStruct | None = None

SCALARS = {4: np.dtype(np.float32), 8: np.dtype(np.float64)}
INDICES = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def install() -> None:
    """Hand the planner to the library; harmless when done already."""
    global _planner
    if _planner is not None:
        return
    planner = abi.PlannerStruct(
        abi.ABI_VERSION, abi.PLAN_FUNCTION(_plan), abi.RELEASE_FUNCTION(_release), abi.FREE_POOL_FUNCTION(_free_pool)
    )
    version = native_library.load().GpufmtSetPlanner(ctypes.byref(planner))
    if version != abi.ABI_VERSION:
        raise UnsupportedError(
            f"{native_library.library_path()} speaks plan interface {version}, "
            f"the Python package {abi.ABI_VERSION}: reinstall petsc_gpufmt"
        )
    _planner = planner
    atexit.register(_shutdown)


def owned_tokens() -> int:
    """Number of stored matrices that are alive."""
    return len(_owned)


def _shutdown() -> None:
    """Python ends before PETSc: let the library forget all plans, then free what they pointed to."""
    native_library.load().GpufmtForgetPlanner()
    _owned.clear()
    _free_pool()


def _plan(request: Any, answer: Any) -> None:
    """Callback of the library; nothing may be raised across it."""
    request, answer = request.contents, answer.contents
    try:
        try:
            _answer(request, answer)
        except Exception as e:
            if not _out_of_memory(e):
                raise
            _free_pool()  # what CuPy keeps for later may be what is missing now
            request.products = 0  # a second look takes more memory than the first, and is no reason to fail
            _answer(request, answer)
    except GpufmtError as e:
        _fail(request, answer, e.petsc_code, str(e))
    except Exception as e:
        if _out_of_memory(e):
            _fail(
                request,
                answer,
                OutOfMemoryError.petsc_code,
                f"out of memory ({e}): use more ranks, or keep small matrices on the host with -mat_bind_below",
            )
        else:
            _fail(request, answer, GpufmtError.petsc_code, f"{type(e).__name__}: {e}")


def _out_of_memory(e: Exception) -> bool:
    return isinstance(e, MemoryError | OutOfMemoryError) or type(e).__name__ == "OutOfMemoryError"


def _fail(request: Any, answer: Any, code: int, text: str) -> None:
    block = f"a {request.nrows} x {request.ncols} block with {request.nnz} nonzeros"
    what = f"{request.format.decode()} of {block} on {abi.BACKENDS[request.backend]}"
    answer.token = 0
    answer.error = code
    answer.message = f"{what}: {text}".encode()[:1023]


def _answer(request: Any, answer: Any) -> None:
    cls = find_format(request.format.decode())
    options = parse_options(cls, request.options.decode())
    with _place(request) as backend:
        csr = _pattern(request, backend)
        if request.transposed:
            csr = csr.transposed(backend.xp)
        stored = cls.rebuild(csr, backend, options) if request.products else cls.build(csr, backend, options)
        kept: list[Any] = [stored]
        for operation in Operation:
            kept += abi.export_plan(stored.plan(operation), answer.plans[operation])
        stats = stored.stats()
    answer.nonempty_rows = stats.nonempty_rows
    answer.nstored = stats.nstored
    answer.bytes_held = stats.bytes_held
    answer.replan_after = stored.replan_after
    answer.summary = stored.summary().encode()[:255]
    answer.detail = stored.detail().encode()[:4095]
    answer.token = next(_tokens)
    _owned[answer.token] = kept


@contextlib.contextmanager
def _place(request: Any) -> Iterator[Backend]:
    """The backend of a request, with PETSc's device and stream current in CuPy."""
    scalar, index = SCALARS[request.scalar_bytes], INDICES[request.index_bytes]
    if abi.BACKENDS[request.backend] == "host":
        yield HostBackend(scalar, index)
        return
    backend = CudaBackend(scalar, index, request.device)
    cuda = backend.xp.cuda
    with cuda.Device(request.device), borrowed_stream(cuda, request.stream or 0, request.device):
        yield backend


def _pattern(request: Any, backend: Backend) -> CsrPattern:
    """The pattern of a request on its backend. Formats keep the row pointer; columns are only read while building."""
    rowptr = _view(request.rowptr, request.nrows + 1, backend.index)
    colidx = _view(request.colidx, request.nnz, backend.index)
    csr = CsrPattern(
        request.nrows,
        request.ncols,
        backend.adopt(rowptr, keep=True),
        backend.adopt(colidx),
        row_block=request.row_block,
        col_block=request.col_block,
    )
    csr.validate()
    return csr


def _view(pointer: int | None, size: int, dtype: np.dtype) -> np.ndarray:
    """A NumPy array over memory of the caller."""
    if not size or not pointer:
        return np.zeros(size, dtype=dtype)
    return np.frombuffer((ctypes.c_char * (size * dtype.itemsize)).from_address(pointer), dtype=dtype)


def _release(token: int) -> None:
    _owned.pop(token, None)


def _free_pool() -> None:
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return
    with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):  # imported where there is no driver: nothing to free
        cupy.get_default_memory_pool().free_all_blocks()
