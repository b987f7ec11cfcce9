"""Who computes sparse products: this package by itself and through PETSc, PETSc's own types, CuPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import scipy.sparse

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Product, Slot, ceil_div
from petsc_gpufmt.bench.cusparse_spgemm import ALGORITHMS, CusparseSpgemm
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.places import Place
from petsc_gpufmt.bench.spgemm_contender import PreparedProduct, SpgemmContender, host_csr, once_each
from petsc_gpufmt.bench.spgemm_tasks import ProductTask, row_lengths
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.spgemm.splitting import WIDTHS

OURS = "rmerge"
PRODUCTS = {"AB": Product.AB, "PtAP": Product.PTAP}


class PlannedRun(PreparedProduct):
    """Our plans, without PETSc: what the planner makes and the C library replays."""

    def __init__(self, task: ProductTask, options: dict[str, int | str], backend: Backend):
        self.backend, self.options, self.product = backend, options, PRODUCTS[task.kind]
        self.shape = task.reference.C.matrix.shape
        self.patterns = once_each(task.operands, self._pattern)
        values = once_each(task.operands, lambda operand: backend.adopt(operand.data))
        self.slots: dict[Slot, Any] = dict(zip((Slot.A_VALUES, Slot.B_VALUES), values, strict=True))
        self.planned: Any = None
        self.replayed: Callable[[], None] = lambda: None

    def _pattern(self, operand: scipy.sparse.csr_matrix) -> CsrPattern:
        nrows, ncols = operand.shape
        pattern = CsrPattern(nrows, ncols, self.backend.adopt(operand.indptr), self.backend.adopt(operand.indices))
        return pattern.validated(self.backend)  # finds its longest row, as where the planner brings it to a device

    def cold(self) -> None:
        from petsc_gpufmt.spgemm.chain import plan_product

        self.planned = plan_product(self.product, self.patterns, self.backend, self.options)
        (self.slots[Slot.RESULT],) = self.backend.empty((self.planned.pattern.nnz, self.backend.scalar))
        self.replayed = self.backend.prepared(self.planned.numeric, self.slots)
        self.numeric()

    def numeric(self) -> None:
        self.replayed()

    def drop(self) -> None:
        self.planned, self.replayed = None, lambda: None
        self.slots.pop(Slot.RESULT, None)

    def result(self) -> scipy.sparse.csr_matrix:
        C = self.planned.pattern
        arrays = (self.backend.to_host(array) for array in (C.rowptr, C.colidx, self.slots[Slot.RESULT]))
        return host_csr(self.shape, *arrays)

    def describe(self) -> str:
        return self.planned.detail

    def close(self) -> None:
        self.drop()
        self.patterns, self.slots = [], {}


@dataclass(frozen=True)
class PlannedContender(SpgemmContender):
    """Our products with some of their options changed."""

    options: dict[str, int | str] = field(default_factory=dict)

    ours = True
    sorts = True
    in_pool = True

    @property
    def forced(self) -> bool:
        return bool(self.options)

    def prepare(self, task: ProductTask, place: Place) -> PreparedProduct:
        return PlannedRun(task, self.options, place.backend)


class PetscRun(PreparedProduct):
    """MatMatMult or MatPtAP, and the same with MAT_REUSE_MATRIX."""

    has_first = True

    def __init__(self, task: ProductTask, types: Sequence[str]):
        self.task, self.types = task, types
        self.shape = task.reference.C.matrix.shape
        self.C: Any = None
        self.made: list[Any] = []
        self.renew()

    def renew(self) -> None:
        self.close()
        try:
            self.left, self.right = once_each(self.task.operands, lambda operand: self._matrix(operand, self.types))
        except BaseException:
            self.close()
            raise
        self.call = self.left.matMult if self.task.kind == "AB" else self.left.ptap

    def _matrix(self, operand: scipy.sparse.csr_matrix, types: Sequence[str]) -> Any:
        from petsc4py import PETSc

        arrays = operand.indptr, operand.indices, operand.data  # PETSc works on these, without a copy
        matrix = PETSc.Mat().createAIJWithArrays(operand.shape, arrays, comm=PETSc.COMM_SELF)
        self.made.append(matrix)
        for name in types:
            matrix.convert(name)
        return matrix

    def cold(self) -> None:
        self.C = self.call(self.right)

    def numeric(self) -> None:
        self.call(self.right, self.C)

    def drop(self) -> None:
        if self.C is not None:
            self.C.destroy()
        self.C = None

    def result(self) -> scipy.sparse.csr_matrix:
        from petsc4py import PETSc

        if "aij" in self.C.getType():
            return host_csr(self.shape, *self.C.getValuesCSR())
        C = self.C.convert("aij", PETSc.Mat())
        arrays = C.getValuesCSR()
        C.destroy()
        return host_csr(self.shape, *arrays)

    def close(self) -> None:
        self.drop()
        for matrix in self.made:
            matrix.destroy()
        self.made = []


@dataclass(frozen=True)
class PetscSpgemm(SpgemmContender):
    """A PETSc matrix type.

    Attributes
    ----------
    types : sequential types that an assembled AIJ matrix is converted to, one after the other
    package : external package that PETSc must have been configured with, empty if none
    """

    types: tuple[str, ...] = ()
    package: str = ""
    ours: bool = False

    def obstacle(self, task: ProductTask) -> str | None:
        from petsc4py import PETSc

        missing = self.package and not PETSc.Sys.hasExternalPackage(self.package)
        return f"this PETSc was configured without {self.package}" if missing else None

    def prepare(self, task: ProductTask, place: Place) -> PreparedProduct:
        return PetscRun(task, self.types)


class CsrRun(PreparedProduct):
    """``A @ B`` or ``P.T @ (A @ P)`` of the CSR matrices of SciPy or CuPy, made by `matrix` of SciPy's."""

    has_numeric = False

    def __init__(self, task: ProductTask, matrix: Callable[[Any], Any]):
        self.kind = task.kind
        self.C: Any = None
        self.left, self.right = once_each(task.operands, matrix)

    def cold(self) -> None:
        product = self.left @ self.right
        self.C = product if self.kind == "AB" else self.right.T.tocsr() @ product

    def numeric(self) -> None:
        raise BenchError("SciPy and CuPy have no numeric phase of its own")

    def drop(self) -> None:
        self.C = None

    def result(self) -> scipy.sparse.csr_matrix:
        C = self.C.get() if hasattr(self.C, "get") else self.C
        return host_csr(C.shape, C.indptr, C.indices, C.data)

    def close(self) -> None:
        self.C = self.left = self.right = None


@dataclass(frozen=True)
class CupySpgemm(SpgemmContender):
    """``A @ B`` of ``cupyx.scipy.sparse.csr_matrix``, which calls cuSPARSE."""

    in_pool = True

    def prepare(self, task: ProductTask, place: Place) -> PreparedProduct:
        import cupyx.scipy.sparse

        return CsrRun(task, cupyx.scipy.sparse.csr_matrix)


@dataclass(frozen=True)
class AijcusparseSpgemm(PetscSpgemm):
    """PETSc's type whose products are cuSPARSE's.

    Where cuSPARSE has not the resources for a product, this type ends the process with a segmentation violation, so
    CuPy, which reports it, goes first.
    """

    types: tuple[str, ...] = ("seqaijcusparse",)

    def prepare(self, task: ProductTask, place: Place) -> PreparedProduct:
        trial = CupySpgemm("CuPy", self.place).prepare(task, place)
        try:
            trial.cold()
        except Exception as e:
            raise BenchError(f"cuSPARSE fails ({e}), and this type would end the process") from e
        finally:
            trial.close()
        return PetscRun(task, self.types)


@dataclass(frozen=True)
class ScipySpgemm(SpgemmContender):
    """``A @ B`` of ``scipy.sparse.csr_matrix``: rows come out unsorted, and without entries that cancel to 0."""

    def prepare(self, task: ProductTask, place: Place) -> PreparedProduct:
        return CsrRun(task, lambda operand: operand)


def planned_contender(variant: str, place: str) -> PlannedContender:
    """Our products by ``rmerge`` or ``rmerge:accumulator=merge,merge_width=8``."""
    from petsc_gpufmt.spgemm.chain import parse_options

    name, _, text = variant.partition(":")
    try:
        options = parse_options(text.replace(",", ";"))
    except OptionError as e:
        raise BenchError(f"--variant {variant}: {e}") from None
    if name != OURS:
        raise BenchError(f"--variant {variant}: write {OURS}, or {OURS}:option=value,option=value")
    return PlannedContender(variant, place, options)


def merge_widths() -> list[str]:
    """The variants of the sweep over the sub-warp widths (figures 3.1 and 3.5)."""
    return [f"{OURS}:accumulator=merge,merge_width={width}" for width in WIDTHS]


def default_variants() -> list[str]:
    """The choice by row, each accumulator alone, and the sweep over the widths."""
    return [OURS, f"{OURS}:accumulator=hash", *merge_widths()]


def merge_calls(longest_row: int, width: int) -> int:
    """Calls of MulLimited that RMerge takes for a left matrix, "iterations" of the paper (listing 2)."""
    calls = 1
    while longest_row > width:
        longest_row = ceil_div(longest_row, width)
        calls += 1
    return calls


def left_rows(task: ProductTask) -> int:
    """Length of the longest row of A, the left factor of the first product."""
    return int(row_lengths(task.operands[0]).max(initial=0))


def spgemm_contenders(places: Sequence[str], variants: Sequence[str] | None) -> list[SpgemmContender]:
    """Who is measured: on the device, if there is one, our `variants` (None: the default ones) and its peers."""
    place = "cuda" if "cuda" in places else "host"
    ours = [planned_contender(variant, place) for variant in variants or default_variants()]
    through_petsc = PetscSpgemm("gpufmt", place, ("seqaijgpufmt",), ours=True)
    hypre = PetscSpgemm("hypre", place, ("hypre",), "hypre")
    scipy_on_host = ScipySpgemm("SciPy", "host")
    if place == "host":
        return [*ours, through_petsc, PetscSpgemm("aij", place), hypre, scipy_on_host]
    cusparse = [CusparseSpgemm(f"cuSPARSE {name}", place, algorithm=name) for name in ALGORITHMS]
    cupy, aijcusparse = CupySpgemm("CuPy", place), AijcusparseSpgemm("aijcusparse", place)
    return [*ours, through_petsc, *cusparse, cupy, aijcusparse, hypre, scipy_on_host]
