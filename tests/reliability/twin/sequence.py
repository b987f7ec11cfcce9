"""A sequence: drawn from a seed, run on siblings that are compared after each step, shrunk if they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.choice.registry import FORMATS
from reliability.twin import entries, failing, products, structure, vectors  # noqa: F401  they fill the table
from reliability.twin.matrices import (
    AIJ,
    COMM,
    MAGNITUDES,
    OURS,
    WAYS,
    WORLD,
    Pattern,
    Sibling,
    layouts,
    made,
    pattern_version,
    random_pattern,
    random_split,
    random_values,
    set_usual_options,
)
from reliability.twin.operations import OPERATIONS, Operation, Step
from reliability.twin.petsc_faults import left_out

LENGTH = 50
LARGEST = 2.0**60  # of a magnitude: beyond it all siblings are scaled down, exactly
NAMES = tuple(OPERATIONS)
VIA = ("matmatmult_via", "mattransposematmult_via", "matmattransmult_via", "matptap_via", "matrart_via")

Call = tuple[str, int]
Defect = Callable[[Sibling, str], None]


@dataclass(frozen=True)
class Walk:
    """All but `calls` is drawn from the seed: so calls can be left out, and the others stay what they are."""

    seed: int
    calls: tuple[Call, ...]

    @classmethod
    def drawn(cls, seed: int, length: int = LENGTH) -> Walk:
        rng = np.random.default_rng([seed, 1])
        chosen = rng.integers(0, len(NAMES), length)
        numbers = rng.integers(0, 10**6, length)
        return cls(seed, tuple((NAMES[i], int(n)) for i, n in zip(chosen, numbers, strict=True)))

    def words(self) -> list[str]:
        """Arguments that repeat it."""
        return ["--seed", str(self.seed), "--calls", *(f"{name}:{number}" for name, number in self.calls)]


class DifferenceError(Exception):
    """What differs between the siblings, on this rank or on another one."""


def difference(walk: Walk, defect: Defect | None = None) -> str:
    """Run it; what differs on the first rank where anything does, empty if nothing."""
    siblings: list[Sibling] = []
    found = ""
    native_library.load().GpufmtManagedSimulate(int(_ours_multiply(walk.seed)))
    native_library.load().GpufmtManagedManyRows(8)  # most matrices of sequences have more
    try:
        _run(walk, siblings, defect)
    except DifferenceError as difference:
        found = str(difference)
    except PETSc.Error as error:  # not of an operation: a matrix is not usable any more
        found = f"error {error.ierr} while siblings are compared: {error}"
    for s in siblings:
        with suppress(PETSc.Error):
            s.close()
    native_library.load().GpufmtManagedSimulate(0)
    try:
        PETSc.garbage_cleanup()
    except PETSc.Error as error:  # the first thing that went wrong says more
        found = found or f"error {error.ierr} while siblings are destroyed: {error}"
    return found


def _ours_multiply(seed: int) -> bool:
    """Every other walk makes sparse products by ours, with arrays as on a device; the rest by PETSc's."""
    return seed % 2 == 1


@contextmanager
def _our_products() -> Iterator[None]:
    """Sparse products by ours; type aij would not know the word."""
    options = PETSc.Options()
    for name in VIA:
        options[name] = "rmerge"
    try:
        yield
    finally:
        for name in VIA:
            options.delValue(name)


def _begin(seed: int, siblings: list[Sibling]) -> str:
    """Make the siblings; how often all entries are compared."""
    rng = np.random.default_rng([seed, 2])
    name = tuple(FORMATS)[int(rng.integers(len(FORMATS)))]
    way = str(rng.choice(WAYS))
    block = int(rng.choice([1, 1, 1, 2, 3]))
    m = int(rng.choice([0, 1, 3, 7, 12, 18, 26], p=[0.02, 0.05, 0.13, 0.2, 0.2, 0.2, 0.2])) * block
    n = m if rng.random() < 0.75 else int(rng.integers(1, 20)) * block
    rows = random_split(rng, m, block)
    sizes = (rows, rows if m == n and rng.random() < 0.8 else random_split(rng, n, block))
    pattern = random_pattern(rng, m, n)
    values = random_values(rng, pattern.rows.size)
    spare = random_pattern(rng, m, n)
    spare_seed = int(rng.integers(10**6))
    plain = "mpiaij" if way == "parallel type" else "aij"
    for kind, mat_type in ((AIJ, plain), (OURS, f"{plain}{name}"), (MAGNITUDES, plain)):
        siblings.append(s := Sibling(kind, mat_type, plain, tuple(FORMATS)))
        s.replace(made("convert" if kind == MAGNITUDES else way, s, pattern, values, sizes, block))
        s.replace(s.matrix(spare, np.random.default_rng(spare_seed), sizes), "B")
        if kind == MAGNITUDES and way == "coo":
            s.A.scale(1.5)  # the way gives each value once more, halved
    return ("always", "by a product", "at the end")[int(rng.integers(3))]


def _run(walk: Walk, siblings: list[Sibling], defect: Defect | None) -> None:
    look = _begin(walk.seed, siblings)
    rounds = 4
    check = {"always": _all_entries, "by a product": _one_product, "at the end": lambda *_: None}[look]
    _check_of(siblings, check, rounds, "as it was made")
    for place, (name, number) in enumerate(walk.calls):
        operation = OPERATIONS[name]
        what = f"after {name}:{number}, call {place + 1} of {len(walk.calls)}"
        m, n = siblings[0].A.getSize()
        aij, ours, _ = siblings
        patterns = Pattern.of(aij.A, ours.A), Pattern.of(aij.B, ours.B)
        results = _call(operation, number, siblings, patterns, defect, name, _ours_multiply(walk.seed))
        rounds_of_result = (2 if operation.doubles else 1) * rounds + operation.rounds(m, n)
        _agree(_compared(results, rounds_of_result), what)
        if operation.writes:
            rounds = rounds_of_result
            _forget_coordinates(siblings)
            _scale_down(siblings)
        _check_of(siblings, check, rounds, what)
    _check_of(siblings, _all_entries, rounds, "at the end")


def _forget_coordinates(siblings: list[Sibling]) -> None:
    """Of a matrix whose pattern has been another one meanwhile."""
    aij = siblings[0]
    if "coordinates" in aij.kept and aij.kept["coordinates"][1] != pattern_version(aij.A):
        left_out("MatSetValuesCOO() after other entries")
        for s in siblings:
            s.keep("coordinates")
            del s.kept["coordinates"]


def _call(
    operation: Operation,
    number: int,
    siblings: list[Sibling],
    patterns: tuple[Pattern, Pattern],
    defect: Defect | None,
    name: str,
    ours_multiply: bool,
) -> list[Any]:
    """What the operation gives for each sibling; it is not tried with magnitudes if it fails for the first two."""
    results: list[Any] = []
    failed = False
    for s in siblings:
        if s.kind == MAGNITUDES and failed:
            _raise_magnitudes(siblings)
            here = any(isinstance(result, Failed) for result in results)
            return [*results, None] if here else [None, None, None]  # what other ranks give has no bound
        step = Step(number, np.random.default_rng(number), *patterns)
        try:
            with _our_products() if ours_multiply and s.kind == OURS else nullcontext():
                results.append(operation.function(s, step))
            if defect and s.kind == OURS:
                defect(s, name)
        except PETSc.Error as error:
            results.append(Failed(error.ierr))
        except (ValueError, TypeError) as error:
            results.append(Failed(str(error)))
        if _on_any_rank(isinstance(results[-1], Failed)):
            failed = True  # perhaps between two values, of a block alone too
            for A in (s.A, s.B):
                A.setOption(A.Option.UNUSED_NONZERO_LOCATION_ERR, False)
                A.assemble()
    return results


def _raise_magnitudes(siblings: list[Sibling]) -> None:
    """To at least what is in the matrices after an operation that has failed, and may have inserted entries before."""
    aij, _, magnitudes = siblings
    for A, M in ((aij.A, magnitudes.A), (aij.B, magnitudes.B)):
        if layouts(A) != layouts(M):
            continue
        found = np.abs(vectors.dense_rows(A))
        set_usual_options(M)
        for row, column in np.argwhere(found > vectors.dense_rows(M)):
            M.setValue(M.getOwnershipRange()[0] + row, column, found[row, column])
        M.assemble()


def _on_any_rank(true: bool) -> bool:
    return any(WORLD.allgather(true)) if COMM.size > 1 else true


@dataclass(frozen=True)
class Failed:
    """How an operation failed."""

    code: int | str


def _compared(results: Sequence[Any], rounds: int) -> str:
    """What differs between the first two of three results, empty if nothing; reals by the third one."""
    aij, ours, magnitudes = results
    if isinstance(aij, np.ndarray) and isinstance(ours, np.ndarray) and aij.dtype == PETSc.ScalarType:
        if aij.shape != ours.shape:
            return f"shape {ours.shape}, of type aij {aij.shape}"
        bound = (rounds + 2) * np.finfo(PETSc.RealType).eps * magnitudes
        wrong = ~(np.abs(aij - ours) <= bound)
        if wrong.any():
            at = tuple(int(i[0]) for i in np.nonzero(wrong))
            return f"{ours[at]!r} at {at}, of type aij {aij[at]!r}, off by at most {bound[at]:.3g} if right"
        return ""
    if isinstance(aij, list) and isinstance(ours, list) and len(aij) == len(ours):
        thirds = magnitudes if isinstance(magnitudes, list) and len(magnitudes) == len(aij) else [None] * len(aij)
        found = (_compared(three, rounds) for three in zip(aij, ours, thirds, strict=True))
        return next(filter(None, found), "")
    if isinstance(aij, np.ndarray) or isinstance(ours, np.ndarray):
        same = type(aij) is type(ours) and np.array_equal(aij, ours)
    else:
        same = type(aij) is type(ours) and not isinstance(aij, list) and aij == ours
        same = same or (isinstance(aij, list) and isinstance(ours, list) and not aij and not ours)
    return "" if same else f"{_shown(ours)}, of type aij {_shown(aij)}"


def _shown(what: Any) -> str:
    return " ".join(repr(what).split())[:100]


def _agree(found: str, what: str) -> None:
    """DifferenceError on all ranks if there is one on any."""
    found = next(filter(None, WORLD.allgather(found)), "") if COMM.size > 1 else found
    if found:
        raise DifferenceError(f"{what}: {found}")


def _check_of(siblings: list[Sibling], check: Callable[[Sibling], Any], rounds: int, what: str) -> None:
    extra = max(siblings[0].A.getSize()) + 3
    _agree(_compared([check(s) for s in siblings], rounds + extra), f"{what}, compared then")


def _all_entries(s: Sibling) -> list[Any]:
    both = [vectors.entries(s, A) for A in (s.A, s.B)]
    return [*both, [_own_type(s, A) for A in (s.A, s.B)]]


def _own_type(s: Sibling, A: PETSc.Mat) -> bool:
    """Whether a matrix of ours still is one."""
    return s.kind != OURS or A.getType().removeprefix("seq").removeprefix("mpi") in {f"aij{name}" for name in FORMATS}


def _one_product(s: Sibling) -> Any:
    return vectors.mult(s, Step(0, np.random.default_rng(7), None, None))


def _scale_down(siblings: list[Sibling]) -> None:
    """By the same power of two, which is exact."""
    for name in "AB":
        largest = getattr(siblings[2], name).norm(PETSc.NormType.INFINITY)
        if largest > LARGEST:
            for s in siblings:
                getattr(s, name).scale(2.0 ** -int(np.log2(largest)))


def shrunk(walk: Walk, differs: Callable[[Walk], bool], tries: int = 400) -> Walk:
    """The shortest walk found that still differs: pieces are left out, halves first, at last single calls."""
    calls, piece = walk.calls, max(1, len(walk.calls) // 2)
    while True:
        begin = 0
        shorter = False
        while begin < len(calls) and tries > 0:
            fewer = (*calls[:begin], *calls[begin + piece :])
            tries -= 1
            if differs(Walk(walk.seed, fewer)):
                calls, shorter = fewer, True
            else:
                begin += piece
        if tries <= 0 or (piece == 1 and not shorter):
            return Walk(walk.seed, calls)
        piece = max(1, piece // 2)
