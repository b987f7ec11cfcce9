"""The planner: answers the library's requests with plans, and owns what the plans point to."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from petsc_gpufmt import abi, gather, native_library, union, update
from petsc_gpufmt.backend import Backend, CudaBackend, HostBackend
from petsc_gpufmt.csr import CsrPattern
from petsc_gpufmt.cupy_state import borrowed_stream, simple_reductions
from petsc_gpufmt.errors import GpufmtError, OutOfMemoryError, UnsupportedError
from petsc_gpufmt.formats.base import parse_options
from petsc_gpufmt.plan import Launch, Operation, Product, Update, address
from petsc_gpufmt.registry import find_format
from petsc_gpufmt.spgemm import chain
from petsc_gpufmt.transpose import transposed

_tokens = itertools.count(1)
_owned: dict[int, list[Any]] = {}
_planner: abi.PlannerStruct | None = None

Leases = list[tuple[Any, list[Any]]]  # a structure with a token, and what the library may use as long as it holds that

SCALARS = {4: np.dtype(np.float32), 8: np.dtype(np.float64)}
INDICES = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def install() -> None:
    """Hand the planner to the library; harmless when done already."""
    global _planner
    if _planner is not None:
        return
    planner = abi.PlannerStruct(
        abi.ABI_VERSION,
        abi.PLAN_FUNCTION(_plan),
        abi.PLAN_PRODUCT_FUNCTION(_plan_product),
        abi.PLAN_SUM_FUNCTION(_plan_sum),
        abi.PLAN_UNION_FUNCTION(_plan_union),
        abi.PLAN_UPDATE_FUNCTION(_plan_update),
        abi.RELEASE_FUNCTION(_release),
        abi.FREE_POOL_FUNCTION(_free_pool),
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
    _cuda_backend.cache_clear()
    _free_pool()


def _plan(request: Any, answer: Any) -> None:
    """Callback of the library: plans of one block of a matrix."""
    request, answer = request.contents, answer.contents

    def again() -> Leases:
        request.products = 0  # a second look takes more memory than the first, and is no reason to fail
        return _answer(request, answer)

    _guarded(request, answer, _what, lambda: _answer(request, answer), again)


def _plan_product(request: Any, answer: Any) -> None:
    """Callback of the library: pattern and plan of a sparse product."""
    _plan_by(_answer_product, _what_product, request.contents, answer.contents)


def _plan_sum(request: Any, answer: Any) -> None:
    """Callback of the library: plan of sums of entries."""
    _plan_by(_answer_sum, _what_sum, request.contents, answer.contents)


def _plan_union(request: Any, answer: Any) -> None:
    """Callback of the library: pattern of a sum of matrices, and plans of its values."""
    _plan_by(_answer_union, _what_union, request.contents, answer.contents)


def _plan_update(request: Any, answer: Any) -> None:
    """Callback of the library: plan of a change of the values of a matrix."""
    _plan_by(_answer_update, _what_update, request.contents, answer.contents)


def _plan_by(fill: Callable[[Any, Any], Leases], what: Callable[[Any], str], request: Any, answer: Any) -> None:
    """Fill the answer, and once more in the same way if memory ran out."""

    def plan() -> Leases:
        return fill(request, answer)

    _guarded(request, answer, what, plan, plan)


def _guarded(
    request: Any, answer: Any, what: Callable[[Any], str], plan: Callable[[], Leases], again: Callable[[], Leases]
) -> None:
    """Run `plan`, and `again` if memory ran out. Nothing is raised: what fails goes into the answer after `what`.

    The library has filled in an error, which stays if even that fails.
    """
    outcome, tokens = answer.outcome, []
    try:
        leases = _fitting(plan)
        if leases is None:
            _free_pool()  # what CuPy keeps for later may be what is missing now
            leases = again()
        for struct, kept in leases:
            tokens.append(next(_tokens))
            struct.token = tokens[-1]
            _owned[struct.token] = kept
        outcome.error = 0
    except BaseException as e:  # an interrupt too: ctypes would print and forget it
        for token in tokens:
            _owned.pop(token, None)
        outcome.interrupted = isinstance(e, KeyboardInterrupt)
        code, text = _code_and_text(e)
        outcome.message = f"{what(request)}: {text}".encode()[:1023]
        outcome.error = code


def _fitting(plan: Callable[[], Leases]) -> Leases | None:
    """Run `plan`; None if memory ran out, with nothing left that its exception refers to."""
    try:
        return plan()
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
    return isinstance(e, MemoryError | OutOfMemoryError) or type(e).__name__ == "OutOfMemoryError"


def _what(request: Any) -> str:
    block = f"a {request.nrows} x {request.ncols} block with {request.nnz} nonzeros"
    return f"{request.format.decode()} of {block} on {abi.BACKENDS[request.backend]}"


def _what_product(request: Any) -> str:
    operands = ", ".join(
        f"{name} {o.nrows} x {o.ncols} with {o.nnz} nonzeros"
        for name, o in zip(Product(request.product).letters, request.operands, strict=False)
    )
    return f"sparse product {Product(request.product).formula} of {operands} on {abi.BACKENDS[request.backend]}"


def _what_sum(request: Any) -> str:
    return f"{request.ntargets} sums of {request.nterms} entries on {abi.BACKENDS[request.backend]}"


def _what_union(request: Any) -> str:
    patterns = " + ".join(
        f"{o.nrows} x {o.ncols} with {o.nnz} nonzeros" for o in (s.pattern for s in _summands_of(request))
    )
    return f"pattern of a sum {patterns} on {abi.BACKENDS[request.backend]}"


def _what_update(request: Any) -> str:
    o = request.target
    matrix = f"a {o.nrows} x {o.ncols} block with {o.nnz} nonzeros"
    return f"update {Update(request.update).name.lower()} of {matrix} on {abi.BACKENDS[request.backend]}"


def _answer(request: Any, answer: Any) -> Leases:
    cls = find_format(request.format.decode())
    options = parse_options(cls, request.options.decode())
    with _place(request) as backend:
        # formats keep the row pointer; columns are only read while building
        blocks = {"row_block": request.row_block, "col_block": request.col_block}
        csr = _pattern(request, backend, keep_columns=False, **blocks)
        if request.transposed:
            csr = transposed(csr, backend)
        stored = cls.rebuild(csr, backend, options) if request.products else cls.build(csr, backend, options)
        kept: list[Any] = [stored]
        for operation in Operation:
            kept += abi.export_plan(stored.plan(operation), answer.plans[operation])
        stats = stored.stats()
    native_library.cite(stored.stored_as)
    answer.nonempty_rows = stats.nonempty_rows
    answer.nstored = stats.nstored
    answer.bytes_held = stats.bytes_held
    answer.replan_after = stored.replan_after
    answer.summary = stored.summary().encode()[:255]
    answer.detail = stored.detail().encode()[:4095]
    return [(answer.outcome, kept)]


def _answer_product(request: Any, answer: Any) -> Leases:
    with _place(request) as backend:
        operands = _operand_patterns(request, backend)
        options = chain.parse_options(request.options.decode())
        planned = chain.plan_product(Product(request.product), operands, backend, options)
        pattern = planned.pattern
        rowptr = backend.to_host(pattern.rowptr)
        kept = [rowptr, pattern.colidx, *abi.export_plan(planned.numeric, answer.numeric)]
    native_library.cite("rmerge")
    answer.nrows, answer.ncols, answer.nnz = pattern.nrows, pattern.ncols, pattern.nnz
    answer.rowptr, answer.colidx = address(rowptr), address(pattern.colidx)
    answer.terms = planned.terms
    answer.bytes_needed, answer.bytes_held = planned.bytes_needed, planned.bytes_held
    answer.summary = planned.summary.encode()[:255]
    answer.detail = planned.detail.encode()[:4095]
    return [(answer.outcome, kept)]


def _answer_sum(request: Any, answer: Any) -> Leases:
    with _place(request) as backend:
        index = backend.adopt(_view(request.index, request.nterms, backend.index), keep=True)
        begins = None
        if request.begins:
            begins = backend.adopt(_view(request.begins, request.ntargets + 1, backend.index), keep=True)
        kept = abi.export_plan(gather.plan_sum(begins, index, tuple(request.sizes), backend), answer.sum)
    return [(answer.outcome, kept)]


def _answer_union(request: Any, answer: Any) -> Leases:
    shape, inner = (request.nrows, request.ncols), (request.low, request.high)
    sizes = tuple(s.pattern.nnz for s in request.summands)
    with _place(request) as backend:
        parts, ghosts = union.merge(shape, inner, [_summand(s, backend) for s in _summands_of(request)], backend)
        plans = []
        for part, struct in zip(parts, answer.parts, strict=True):
            plans.append(abi.export_plan(gather.known_sum(part.begins, part.index, sizes, backend), struct.sum))
            struct.nnz, struct.nterms = part.colidx.size, part.index.size
        kept = [ghosts := backend.to_host(ghosts)]
        for part, struct in zip(parts, answer.parts, strict=True):
            any_entries = part.colidx.size > 0
            rowptr = backend.to_host(part.rowptr) if any_entries else np.zeros(request.nrows + 1, backend.index)
            kept += [rowptr, part.colidx]
            struct.rowptr, struct.colidx = address(rowptr), address(part.colidx)
    answer.nghosts, answer.ghosts = ghosts.size, address(ghosts)
    return [(answer.outcome, kept), *zip(answer.parts, plans, strict=True)]


def _summands_of(request: Any) -> list[Any]:
    return request.summands[: request.nsummands]


def _summand(summand: Any, backend: Backend) -> union.Summand:
    o = summand.pattern
    pattern = _pattern(o, backend, keep_columns=False)
    places = _indices(summand.places, o.ncols, backend, keep=False)
    targets = _indices(summand.targets, o.nrows, backend, keep=False) if summand.targets else None
    return union.Summand(pattern, places, targets)


def _answer_update(request: Any, answer: Any) -> Leases:
    with _place(request) as backend:
        launches = _update_launches(request, backend)
        kept = abi.export_plan(launches or [], answer.update)
    answer.applies = launches is not None
    return [(answer.outcome, kept)]


def _update_launches(request: Any, backend: Backend) -> list[Launch] | None:
    """Only the arrays that an update needs come to the backend, and only those that its launches read stay there."""
    kind, target = Update(request.update), request.target
    if kind in (Update.SCALE, Update.ADD):
        return (update.plan_scale if kind is Update.SCALE else update.plan_add)(target.nnz, backend)
    if kind is Update.SCALE_ROWS:
        return update.plan_scale_rows(target.nnz, _indices(target.rowptr, target.nrows + 1, backend), backend)
    if kind is Update.SCALE_COLUMNS:
        return update.plan_scale_columns(_indices(target.colidx, target.nnz, backend), backend)
    into, added = (
        (_indices(o.rowptr, o.nrows + 1, backend, keep=False), _indices(o.colidx, o.nnz, backend, keep=False))
        for o in (target, request.added)
    )
    columns = _indices(request.columns, request.added.ncols, backend, keep=False) if request.columns else None
    return update.plan_add_subset(into, added, columns, backend)


def _indices(pointer: int | None, size: int, backend: Backend, *, keep: bool = True) -> Any:
    return backend.adopt(_view(pointer, size, backend.index), keep=keep)


def _operand_patterns(request: Any, backend: Backend) -> list[CsrPattern]:
    """The patterns of the operands; a matrix that comes twice is brought to the backend once."""
    operands = request.operands[: request.noperands]
    known: dict[tuple, CsrPattern] = {}
    for o in operands:
        if _identity(o) not in known:
            known[_identity(o)] = _pattern(o, backend)
    return [known[_identity(o)] for o in operands]


def _identity(operand: Any) -> tuple:
    return operand.rowptr, operand.colidx, operand.nrows, operand.ncols, operand.nnz


@functools.cache
def _cuda_backend(scalar: np.dtype, index: np.dtype, device: int) -> CudaBackend:
    """Made once: its pinned memory and the like take as long as a few launches."""
    return CudaBackend(scalar, index, device)


@contextlib.contextmanager
def _place(request: Any) -> Iterator[Backend]:
    """The backend of a request, with PETSc's device and stream current in CuPy."""
    scalar, index = SCALARS[request.scalar_bytes], INDICES[request.index_bytes]
    if abi.BACKENDS[request.backend] == "host":
        yield HostBackend(scalar, index)
        return
    backend = _cuda_backend(scalar, index, request.device)
    cuda = backend.xp.cuda
    with (
        cuda.Device(request.device),
        borrowed_stream(cuda, request.stream or 0, request.device),
        simple_reductions(backend.xp),
    ):
        yield backend


def _pattern(matrix: Any, backend: Backend, *, keep_columns: bool = True, **blocks: int) -> CsrPattern:
    """The pattern of a request or of an operand on the backend; a copy, its columns only if they are kept."""
    rowptr = _view(matrix.rowptr, matrix.nrows + 1, backend.index)
    colidx = _view(matrix.colidx, matrix.nnz, backend.index)
    rowptr, colidx = backend.adopt(rowptr, keep=True), backend.adopt(colidx, keep=keep_columns)
    return CsrPattern(matrix.nrows, matrix.ncols, rowptr, colidx, **blocks).validated(backend)


def _view(pointer: int | None, size: int, dtype: np.dtype) -> np.ndarray:
    """A NumPy array over memory of the caller."""
    if not size or not pointer:
        return np.zeros(size, dtype=dtype)
    memory: Any = (ctypes.c_char * (size * dtype.itemsize)).from_address(pointer)
    return np.frombuffer(memory, dtype=dtype)


def _release(token: int) -> None:
    _owned.pop(token, None)


def _free_pool() -> None:
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return
    with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):  # imported where there is no driver: nothing to free
        cupy.get_default_memory_pool().free_all_blocks()
