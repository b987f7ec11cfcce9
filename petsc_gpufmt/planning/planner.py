"""The planner: answers the library's requests with plans, and owns what the plans point to."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
from collections.abc import Iterator
from typing import Any

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.compile import stop_compiling
from petsc_gpufmt.backends.device_memory import free_pools
from petsc_gpufmt.errors import GpufmtError, OutOfMemoryError, UnsupportedError
from petsc_gpufmt.planning import abi, start
from petsc_gpufmt.planning.abi import Ask
from petsc_gpufmt.planning.given import backend_at, cuda_backend
from petsc_gpufmt.planning.kinds import Kind, Leases
from petsc_gpufmt.planning.requests import KINDS

_tokens = itertools.count(1)
_owned: dict[int, list[Any]] = {}
_planner: abi.PlannerStruct | None = None
_later: Iterator[None] | None = None


def install() -> None:
    """Hand the planner to the library; harmless when done already."""
    global _planner
    if _planner is not None:
        return
    planner = abi.PlannerStruct(
        abi.ABI_VERSION,
        abi.PLAN_FUNCTION(_plan),
        abi.RELEASE_FUNCTION(_release),
        abi.RELEASE_ALL_FUNCTION(_release_all),
        abi.FREE_POOL_FUNCTION(free_pools),
        abi.PREPARE_FUNCTION(_prepare),
        abi.NAME_KERNELS_FUNCTION(_name_kernels),
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
    cuda_backend.cache_clear()
    free_pools()


def _plan(ask: int, request_address: int, answer_address: int) -> None:
    """Callback of the library: answer a request. Nothing is raised, and no interrupt is lost that comes at its ends."""
    try:
        native_library.load().GpufmtPlanEntered(ctypes.c_void_p(answer_address))
        _answer(ask, request_address, answer_address)
    except KeyboardInterrupt:
        outcome = abi.OutcomeStruct.from_address(answer_address)
        outcome.interrupted = True
        if outcome.error:
            kind = KINDS[Ask(ask)]
            asked_for = _asked_for(kind, kind.request.from_address(request_address))
            outcome.message = f"{asked_for}: KeyboardInterrupt".encode()[:1023]


def _answer(ask: int, request_address: int, answer_address: int) -> None:
    """Answer a request, and try once more if memory runs out.

    What fails goes into the outcome. The library has filled in an error there, which stays if there is not even memory
    for another.
    """
    kind = KINDS[Ask(ask)]
    request, answer = kind.request.from_address(request_address), kind.answer.from_address(answer_address)
    tokens: list[int] = []
    try:
        leases = _fitting(kind, request, answer)
        if leases is None:
            free_pools()  # what is kept for later may be what is missing now
            kind.simplify(request)
            leases = _fill(kind, request, answer)
        for struct, kept in leases:
            tokens.append(next(_tokens))
            _owned[tokens[-1]] = kept
            struct.token = tokens[-1]
        answer.outcome.error = 0
    except BaseException as e:  # an interrupt too: ctypes would print and forget it
        for token in tokens:
            _release(token)
        answer.outcome.interrupted = isinstance(e, KeyboardInterrupt)
        code, text = _code_and_text(e)
        answer.outcome.message = f"{_asked_for(kind, request)}: {text}".encode()[:1023]
        answer.outcome.error = code


def _asked_for(kind: Kind, request: Any) -> str:
    return f"{kind.what(request)} on {abi.BACKENDS[request.place.backend]}"


def _fill(kind: Kind, request: Any, answer: Any) -> Leases:
    with backend_at(request.place) as backend:
        return kind.fill(request, answer, backend)


def _fitting(kind: Kind, request: Any, answer: Any) -> Leases | None:
    """Fill the answer; None if memory ran out, with nothing left that its exception refers to."""
    try:
        return _fill(kind, request, answer)
    except Exception as e:
        if not _out_of_memory(e):
            raise
        return None


def _code_and_text(e: BaseException) -> tuple[int, str]:
    """PETSc's error code for an exception, and what to tell the user."""
    if isinstance(e, GpufmtError):
        return e.petsc_code, str(e)
    if _out_of_memory(e):
        remedy = "use more ranks, or keep small matrices on the host with -mat_bind_below"
        return OutOfMemoryError.petsc_code, f"out of memory ({e}): {remedy}"
    return GpufmtError.petsc_code, f"{type(e).__name__}: {e}".rstrip(": ")


def _out_of_memory(e: BaseException) -> bool:
    """Whether memory ran out, also where the driver says so: a kernel that is loaded needs some."""
    if type(e).__name__ == "CUDADriverError":  # of CuPy
        return "OUT_OF_MEMORY" in str(e)
    return isinstance(e, MemoryError | OutOfMemoryError)


def _prepare(place_address: int, format_name: bytes | None) -> bool:
    """Callback of the thread that starts Python; what fails here fails in a plan again, which reports it."""
    global _later
    place = abi.PlaceStruct.from_address(place_address)
    with contextlib.suppress(Exception):
        if format_name is not None:
            start.prepare(place, format_name.decode())
            return False
        _later = _later or start.prepare_later()
        for _ in _later:
            return True
    return False


def _name_kernels(place_address: int, format_name: bytes, block_size: int) -> None:
    """Callback of the library, which no interrupt reaches. Kernels that are not named are loaded by the plans."""
    with contextlib.suppress(Exception):
        start.name_kernels(abi.PlaceStruct.from_address(place_address), format_name.decode(), block_size)


def _release(token: int) -> None:
    _owned.pop(token, None)


def _release_all() -> None:
    """PETSc ends, and the process may end with it at any time."""
    stop_compiling()
    _owned.clear()
