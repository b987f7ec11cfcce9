"""What the library asks the planner for: each kind of request in words, and how it is answered."""

from __future__ import annotations

import itertools
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.driver import DriverError
from petsc_gpufmt.backends.plan import Fused, Launch, Operation, Product, ScaleAndAdd, address
from petsc_gpufmt.choice.registry import find_format
from petsc_gpufmt.errors import GpufmtError
from petsc_gpufmt.formats.common.base import Format, parse_options
from petsc_gpufmt.patterns import coo, entry_sum, narrow, norms, scale_and_add, union, zero_rows
from petsc_gpufmt.patterns.csr import CsrPattern, gather_indices, plan_gather, validated_patterns
from petsc_gpufmt.patterns.lengths import lengths
from petsc_gpufmt.patterns.transpose import counted_transpose, transposed
from petsc_gpufmt.planning import abi
from petsc_gpufmt.planning.abi import Ask
from petsc_gpufmt.planning.given import host_view, indices, on_backend, operand_patterns, pattern_of
from petsc_gpufmt.planning.held_patterns import HeldPattern
from petsc_gpufmt.planning.kinds import Kind, Leases, fill_matrix, sizes_of
from petsc_gpufmt.planning.krylov_requests import KRYLOV_KINDS
from petsc_gpufmt.planning.multigrid_requests import MULTIGRID_KINDS

_stored_numbers = itertools.count(1)
_stored: WeakValueDictionary[int, Format] = WeakValueDictionary()  # the matrices of stores that are in use


def _what_store(request: Any) -> str:
    return f"{request.format.decode()} of {sizes_of(request, 'block')}"


def _what_fused(request: Any) -> str:
    return f"plan {Fused(request.fused).name.lower()} of a stored matrix"


def _what_product(request: Any) -> str:
    operands = ", ".join(
        f"{name} {o.nrows} x {o.ncols} with {o.nnz} nonzeros"
        for name, o in zip(Product(request.product).letters, request.operands, strict=False)
    )
    return f"sparse product {Product(request.product).formula} of {operands}"


def _what_entry_sum(request: Any) -> str:
    return f"{request.ntargets} sums of {request.nterms} entries"


def _what_union(request: Any) -> str:
    patterns = " + ".join(
        f"{o.nrows} x {o.ncols} with {o.nnz} nonzeros" for o in (s.pattern for s in _summands_of(request))
    )
    return f"pattern of a sum {patterns}"


def _what_scale_and_add(request: Any) -> str:
    return f"{ScaleAndAdd(request.scale_and_add).name.lower()} of {sizes_of(request.target, 'block')}"


def _what_coo(request: Any) -> str:
    size = f"{request.block.nrows} x {request.block.ncols}"
    return f"pattern of a {size} matrix from {request.nentries + request.nmore} coordinates"


def _what_outside(request: Any) -> str:
    return f"coordinates, of {request.nentries}, outside of a {request.block.nrows} x {request.block.ncols} block"


def _what_gather(request: Any) -> str:
    return f"{request.nentries} entries, of {request.nnz}, that are gathered"


def _what_peer(_: Any) -> str:
    return "halo exchanges through memory of other ranks"


def _what_lengths(_: Any) -> str:
    return "lengths of rows"


def _what_loop(_: Any) -> str:
    return "the condition of a loop in a CUDA graph"


def _fill_store(request: Any, answer: Any, backend: Backend) -> Leases:
    cls = find_format(request.format.decode())
    options = parse_options(cls, request.options.decode())
    # formats keep the row pointer; columns are only read while building
    blocks = {"row_block": request.row_block, "col_block": request.col_block}
    csr = pattern_of(request, backend, keep_columns=False, **blocks).validated(backend)
    if request.transposed:
        csr = counted_transpose(csr, backend)
    stored = cls.rebuild(csr, backend, options) if request.mults else cls.build(csr, backend, options)
    kept: list[Any] = [stored]
    for operation in Operation:
        kept += abi.export_plan(stored.plan(operation), answer.plans[operation])
    stats = stored.stats()
    native_library.cite(stored.stored_as)
    answer.nonempty_rows = stats.nonempty_rows
    answer.nstored = stats.nstored
    answer.bytes_held = stats.bytes_held
    answer.replan_after = stored.replan_after
    answer.stored = next(_stored_numbers)
    _stored[answer.stored] = stored
    answer.summary = stored.summary().encode()[:255]
    answer.detail = stored.detail().encode()[:4095]
    return [(answer.outcome, kept)]


def _fill_fused(request: Any, answer: Any, backend: Backend) -> Leases:
    stored = _stored.get(request.stored)
    if stored is None:
        raise GpufmtError(f"no matrix has the number {request.stored}: ask while its store is in use")
    # solvers that want them are for real numbers
    launches = None if request.place.is_complex else stored.fused(Fused(request.fused))
    answer.offered = launches is not None
    return [(answer.outcome, [stored, *abi.export_plan(launches or [], answer.plan)])]


def _fill_product(request: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.spgemm import chain  # not before a product: most programs multiply by vectors first

    operands = operand_patterns(request, backend)
    options = chain.parse_options(request.options.decode())
    planned = chain.plan_product(Product(request.product), operands, backend, options)
    kept = fill_matrix(answer, planned.pattern, planned.numeric)
    native_library.cite("rmerge")
    answer.terms = planned.terms
    if request.described:  # which takes as long as to plan a stage of a small product
        answer.bytes_needed, answer.bytes_held = planned.bytes_needed, planned.bytes_held
        answer.summary = planned.summary.encode()[:255]
        answer.detail = planned.detail.encode()[:4095]
    return [(answer.outcome, kept)]


def _fill_entry_sum(request: Any, answer: Any, backend: Backend) -> Leases:
    index = backend.adopt(host_view(request.index, request.nterms, backend.index), keep=True)
    begins = None
    if request.begins:
        begins = backend.adopt(host_view(request.begins, request.ntargets + 1, backend.index), keep=True)
    kept = abi.export_plan(entry_sum.plan_entry_sum(begins, index, tuple(request.sizes), backend), answer.sum)
    return [(answer.outcome, kept)]


def _fill_union(request: Any, answer: Any, backend: Backend) -> Leases:
    shape, inner = (request.nrows, request.ncols), (request.low, request.high)
    sizes = tuple(s.pattern.nnz for s in request.summands)
    parts, ghosts = union.merge(shape, inner, _summands(_summands_of(request), backend), backend)
    plans = []
    for part, struct in zip(parts, answer.parts, strict=True):
        plans.append(abi.export_plan(entry_sum.known_entry_sum(part.begins, part.index, sizes, backend), struct.sum))
        struct.nnz, struct.nterms = part.colidx.size, part.index.size
    ghosts = backend.to_host(ghosts)
    kept: list[Any] = [ghosts]
    for part, struct, ncols in zip(parts, answer.parts, (request.high - request.low, ghosts.size), strict=True):
        held = HeldPattern(CsrPattern(request.nrows, ncols, part.rowptr, part.colidx))
        kept.append(held)
        struct.held = held.number
        struct.rowptr, struct.colidx = address(part.rowptr), address(part.colidx)
    answer.nghosts, answer.ghosts = ghosts.size, address(ghosts)
    return [(answer.outcome, kept), *zip(answer.parts, plans, strict=True)]


def _summands_of(request: Any) -> list[Any]:
    return request.summands[: request.nsummands]


def _summands(structs: list[Any], backend: Backend) -> list[union.Summand]:
    patterns = validated_patterns([pattern_of(s.pattern, backend, keep_columns=False) for s in structs], backend)
    summands = []
    for s, pattern in zip(structs, patterns, strict=True):
        places = indices(s.places, pattern.ncols - (s.last - s.first), backend, keep=False)
        targets = indices(s.targets, pattern.nrows, backend, keep=False) if s.targets else None
        shifted = union.Shifted(s.first, s.last, s.shift)
        rows = union.RowRange(s.first_row, s.last_row, bool(s.outside))
        summands.append(union.Summand(pattern, places, targets, shifted, rows))
    return summands


def _fill_scale_and_add(request: Any, answer: Any, backend: Backend) -> Leases:
    kind, target, missing = ScaleAndAdd(request.scale_and_add), request.target, None
    launches: list[Launch] | None
    if kind is ScaleAndAdd.ZERO_ROWS:
        launches, missing = _zero_rows_launches(target, backend)
    elif kind in (ScaleAndAdd.SUM_SQUARES, ScaleAndAdd.SUM_ROWS, ScaleAndAdd.SUM_COLUMNS):
        launches = _norm_launches(kind, target, backend)
    else:
        launches = _scale_and_add_launches(request, backend)
    kept = [missing, *abi.export_plan(launches or [], answer.scale_and_add)]
    answer.applies = launches is not None
    answer.no_diagonal = None if missing is None else address(missing)
    return [(answer.outcome, kept)]


def _fill_peer(_: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.halo.peer import BLOCK_ENTRIES, exchange_launches

    kept: list[Any] = []
    for step, launch in exchange_launches(backend).items():
        kept += abi.export_plan([launch], answer.steps[step])
        answer.block_entries[step] = BLOCK_ENTRIES[step]
    return [(answer.outcome, kept)]


def _fill_lengths(_: Any, answer: Any, backend: Backend) -> Leases:
    made = lengths(backend)
    answer.seen = address(made.seen)
    return [(answer.outcome, [made.seen, *abi.export_plan(made.launches, answer.lengths)])]


def _fill_loop(_: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.backends.loop import loop_condition

    launches: list[Launch] = []
    try:
        launches = [loop_condition(backend)]
    except MemoryError:
        raise
    except (GpufmtError, DriverError) as e:
        answer.why_not = str(e).encode()[:255]
    return [(answer.outcome, abi.export_plan(launches, answer.condition))]


def _fill_gather(request: Any, answer: Any, backend: Backend) -> Leases:
    entries = host_view(request.entries, request.nentries, backend.index)
    index = backend.adopt(entries, keep=True)
    if request.colidx:
        colidx = on_backend(request.colidx, request.nnz, backend.index, backend)
        host_view(request.columns, request.nentries, backend.index)[:] = gather_indices(backend, colidx, index)
    return [(answer.outcome, abi.export_plan(plan_gather(index, backend), answer.gather))]


def _zero_rows_launches(target: Any, backend: Backend) -> tuple[list[Launch], np.ndarray | None]:
    rowptr = indices(target.rowptr, target.nrows + 1, backend)
    places, missing = zero_rows.find_diagonal(rowptr, indices(target.colidx, target.nnz, backend, keep=False), backend)
    return zero_rows.plan_zero_rows(rowptr, target.ncols, places, backend), missing


def _norm_launches(kind: ScaleAndAdd, target: Any, backend: Backend) -> list[Launch]:
    if kind is ScaleAndAdd.SUM_SQUARES:
        return norms.plan_sum_of_squares(target.nnz, backend)
    if kind is ScaleAndAdd.SUM_ROWS:
        return norms.plan_absolute_sums(indices(target.rowptr, target.nrows + 1, backend), None, backend)
    columns = transposed(pattern_of(target, backend, keep_columns=False).validated(backend), backend)
    return norms.plan_absolute_sums(columns.rowptr, columns.source, backend)


def _scale_and_add_launches(request: Any, backend: Backend) -> list[Launch] | None:
    """Only the arrays that a change needs come to the backend, and only those that its launches read stay there."""
    kind, target = ScaleAndAdd(request.scale_and_add), request.target
    if kind in (ScaleAndAdd.SCALE, ScaleAndAdd.ADD):
        return (scale_and_add.plan_scale if kind is ScaleAndAdd.SCALE else scale_and_add.plan_add)(target.nnz, backend)
    if kind is ScaleAndAdd.NARROW:
        return narrow.plan_narrow(target.nnz, backend)
    if kind is ScaleAndAdd.SCALE_ROWS:
        return scale_and_add.plan_scale_rows(target.nnz, indices(target.rowptr, target.nrows + 1, backend), backend)
    if kind is ScaleAndAdd.SCALE_COLUMNS:
        return scale_and_add.plan_scale_columns(indices(target.colidx, target.nnz, backend), backend)
    if kind is ScaleAndAdd.ZERO_ROWS_OFFDIAG:
        rowptr = indices(target.rowptr, target.nrows + 1, backend)
        return zero_rows.plan_zero_rows(rowptr, target.ncols, None, backend)
    if kind is ScaleAndAdd.SET_DIAGONAL:
        rowptr = indices(target.rowptr, target.nrows + 1, backend, keep=False)
        return scale_and_add.plan_set_diagonal(rowptr, indices(target.colidx, target.nnz, backend, keep=False), backend)
    into, added = (
        (indices(o.rowptr, o.nrows + 1, backend, keep=False), indices(o.colidx, o.nnz, backend, keep=False))
        for o in (target, request.added)
    )
    columns = indices(request.columns, request.added.ncols, backend, keep=False) if request.columns else None
    return scale_and_add.plan_add_subset(into, added, columns, backend)


def _coordinates(request: Any, backend: Backend) -> tuple[Any, Any]:
    given = backend.view if request.on_device else host_view
    rows, cols = (given(pointer, request.nentries, backend.index) for pointer in (request.rows, request.cols))
    return rows, cols


def _block(request: Any) -> coo.Block:
    block = request.block
    return coo.Block(block.first_row, block.nrows, block.first_col, block.ncols)


def _fill_outside(request: Any, answer: Any, backend: Backend) -> Leases:
    rows, cols = map(backend.adopt, _coordinates(request, backend))
    found = coo.outside(_block(request), rows, cols, backend)
    answer.count = found.shape[1]
    answer.rows, answer.cols, answer.numbers = map(address, found)
    answer.all_rows, answer.all_cols = address(rows), address(cols)
    return [(answer.outcome, [found, rows, cols])]


def _fill_coo(request: Any, answer: Any, backend: Backend) -> Leases:
    block, index = _block(request), backend.index
    assembly = coo.assemble(
        (block.nrows, block.ncols),
        *_coordinates(request, backend),
        backend,
        block=block if request.is_part else None,
        more=(host_view(request.more_rows, request.nmore, index), host_view(request.more_cols, request.nmore, index)),
        numbers=host_view(request.numbers, request.nentries + request.nmore, index) if request.numbers else None,
    )
    pattern = assembly.pattern
    sums = abi.export_plan(assembly.plan_sum(backend, tuple(request.sizes)), answer.sum)
    answer.nnz, answer.nterms = pattern.nnz, assembly.nterms
    answer.rowptr, answer.colidx = address(pattern.rowptr), address(pattern.colidx)
    if assembly.begins is not None:
        answer.begins = address(assembly.begins)
    if assembly.index is not None:
        answer.index = address(assembly.index)
    answer.summary = assembly.summary().encode()[:255]
    sums += [assembly.begins, assembly.index]
    return [(answer.outcome, [pattern.rowptr, pattern.colidx]), (answer, sums)]


def _once_for_all(request: Any) -> None:
    request.mults = 0  # a second look takes more memory than the first, and is no reason to fail


KINDS = {
    Ask.STORE: Kind(abi.StoreRequestStruct, abi.StoreAnswerStruct, _what_store, _fill_store, _once_for_all),
    Ask.FUSED: Kind(abi.FusedRequestStruct, abi.FusedAnswerStruct, _what_fused, _fill_fused),
    Ask.PRODUCT: Kind(abi.ProductRequestStruct, abi.ProductAnswerStruct, _what_product, _fill_product),
    Ask.ENTRY_SUM: Kind(abi.EntrySumRequestStruct, abi.EntrySumAnswerStruct, _what_entry_sum, _fill_entry_sum),
    Ask.UNION: Kind(abi.UnionRequestStruct, abi.UnionAnswerStruct, _what_union, _fill_union),
    Ask.SCALE_AND_ADD: Kind(
        abi.ScaleAndAddRequestStruct, abi.ScaleAndAddAnswerStruct, _what_scale_and_add, _fill_scale_and_add
    ),
    Ask.COO: Kind(abi.CooRequestStruct, abi.CooAnswerStruct, _what_coo, _fill_coo),
    Ask.OUTSIDE: Kind(abi.OutsideRequestStruct, abi.OutsideAnswerStruct, _what_outside, _fill_outside),
    Ask.GATHER: Kind(abi.GatherRequestStruct, abi.GatherAnswerStruct, _what_gather, _fill_gather),
    Ask.PEER: Kind(abi.PeerRequestStruct, abi.PeerAnswerStruct, _what_peer, _fill_peer),
    Ask.LENGTHS: Kind(abi.LengthsRequestStruct, abi.LengthsAnswerStruct, _what_lengths, _fill_lengths),
    Ask.LOOP: Kind(abi.LoopRequestStruct, abi.LoopAnswerStruct, _what_loop, _fill_loop),
    **MULTIGRID_KINDS,
    **KRYLOV_KINDS,
}
