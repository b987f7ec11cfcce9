"""PETSc's products of sparse matrices as stages: transposes that gather values, and products of two matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Launch, Product, Slot, address
from petsc_gpufmt.patterns.csr import CsrPattern, gather_values
from petsc_gpufmt.patterns.transpose import Transposition, bytes_to_transpose
from petsc_gpufmt.spgemm.census import UnsortedError, require_memory
from petsc_gpufmt.spgemm.product import SparseProduct, checked_options, product_option

SLOTS = (Slot.A_VALUES, Slot.B_VALUES, Slot.C_VALUES)
NOT_ARRAYS = (int, np.generic, type(None))  # of the arguments of a launch


@dataclass(slots=True)
class Factor:
    """A matrix in a chain: its pattern, where its values are in a numeric phase (an array or a Slot), its name."""

    pattern: CsrPattern
    values: Any
    name: str


class Chain:
    """Stages of a product in the making; a numeric phase carries out `launches` in their order.

    What can wait is done while the host would wait for what the device counts: transposes are filled, and the launches
    of a stage are made in the next one.
    """

    def __init__(self, operands: Sequence[CsrPattern], backend: Backend, options: dict[str, int | str]):
        self.backend, self.options = backend, checked_options(options)
        self.launches: list[Launch] = []
        self.stages: list[tuple[str, SparseProduct]] = []  # with the names of the factors
        self._without_launches: list[tuple[SparseProduct, Any, Any, Any]] = []  # with values of both factors and result
        self._steps: list[tuple[int, int]] = []  # launches before each, bytes that it takes beside arrays
        self._unfinished: tuple[Factor, Transposition] | None = None  # its longest row is read in the next stage
        self._patterns = list(operands)

    def transposed(self, factor: Factor, *, finished: bool = True) -> Factor:
        """The transpose, its values gathered into a buffer.

        If it need not be finished, that waits for the next stage, where it may only be the left factor: a symbolic
        phase takes its rows in any order. But rows that are merged in pieces have these from the symbolic phase on.
        """
        backend, pattern = self.backend, factor.pattern
        nbytes = bytes_to_transpose(pattern, backend) + pattern.nnz * backend.scalar.itemsize
        self._take(nbytes, f"the transpose of {factor.name}")
        transposition = Transposition(pattern, backend, with_values=True)
        transpose = Factor(transposition.pattern, transposition.values, f"{factor.name}^T")
        if finished or self.options["accumulator"] == "merge":
            transpose.pattern = transposition.finish()  # waits for the device
        else:
            self._unfinished = transpose, transposition
        self._patterns.append(transpose.pattern)
        if pattern.nnz:
            source = transpose.pattern.source
            self.launches.append(gather_values(backend, pattern.nnz, source, factor.values, transpose.values))
        return transpose

    def multiplied(self, left: Factor, right: Factor, values: Any = None) -> Factor:
        """left * right with its values in `values`, or in a buffer. `right` may have unsorted or repeated columns."""
        try:
            stage = self._stage(left, right)
        except UnsortedError:
            stage = None
        if stage is None:  # what has failed is garbage by now
            right = self.multiplied(right, self._identity(right.pattern.ncols))
            stage = self._stage(left, right)
        if values is None:
            self._take(stage.pattern.nnz * self.backend.scalar.itemsize, "an intermediate matrix")
            (values,) = self.backend.empty((stage.pattern.nnz, self.backend.scalar))
        self._without_launches.append((stage, left.values, right.values, values))
        self.stages.append((f"{left.name} {right.name}", stage))
        return Factor(stage.pattern, values, f"({left.name} {right.name})")

    def _stage(self, left: Factor, right: Factor) -> SparseProduct:
        """The symbolic phase of left * right; what was unfinished is finished after it."""
        backend, options, carried, kept = self.backend, self.options, None, 0
        if self._unfinished:
            transpose, transposition = self._unfinished
            carried, kept = transposition.longest, transposition.bytes_held
            if transpose is left:
                transposition.fill()
        meanwhile = self._meanwhile if self._unfinished or self._without_launches else None
        stage = SparseProduct.of(left.pattern, right.pattern, backend, options, carried, meanwhile)
        self._steps.append((len(self.launches), stage.bytes_needed + kept))
        if self._unfinished:
            transpose, transposition = self._unfinished
            transpose.pattern = transposition.finish(stage.rows.carried)  # waits for the device without terms
            self._unfinished = None
        return stage

    def _meanwhile(self) -> None:
        if self._unfinished:
            self._unfinished[1].fill()
        self.make_launches()

    def make_launches(self) -> None:
        """The launches of the stages that have none yet."""
        while self._without_launches:
            stage, *values = self._without_launches.pop(0)
            self.launches += stage.numeric(*values)

    def _identity(self, size: int) -> Factor:
        """Times the identity, a matrix gets sorted columns without repeats."""
        backend = self.backend
        numbers = backend.adopt(np.arange(size + 1, dtype=backend.index))
        pattern = CsrPattern(size, size, numbers, numbers[:size], longest=min(size, 1))
        return Factor(pattern, backend.adopt(np.ones(size, dtype=backend.scalar)), "I")

    def _take(self, nbytes: int, what: str) -> None:
        require_memory(nbytes, self.backend, what)
        self._steps.append((len(self.launches), nbytes))

    def bytes_needed_and_held(self) -> tuple[int, int]:
        """Of the step that needs most, with the arrays of patterns and of launches before it; of all launches' arrays.

        Each array is counted once.
        """
        of_patterns = {address(a): int(a.nbytes) for p in self._patterns for a in (p.rowptr, p.colidx)}
        arrays: dict[int, int] = {}
        needed = before = 0
        total = sum(of_patterns.values())  # of patterns, and of arrays that are no pattern's
        for nlaunches, nbytes in [*self._steps, (len(self.launches), 0)]:
            for launch in self.launches[before:nlaunches]:
                for a in launch.flattened()[0]:
                    if not isinstance(a, NOT_ARRAYS) and (place := address(a)) not in arrays:
                        arrays[place] = int(a.nbytes)
                        total += 0 if place in of_patterns else arrays[place]
            before = nlaunches
            needed = max(needed, nbytes + total)
        return needed, sum(arrays.values())


class PlannedProduct:
    """A product of two or three matrices after its symbolic phase.

    Attributes
    ----------
    pattern : CsrPattern of the result, its rows sorted by column without repeats
    numeric : launches that fill slot RESULT (nnz of the result,) from slots A_VALUES, B_VALUES and C_VALUES
    """

    def __init__(self, product: Product, chain: Chain, pattern: CsrPattern):
        self.pattern, self.numeric = pattern, chain.launches
        self._product, self._chain = product, chain

    @cached_property
    def _bytes(self) -> tuple[int, int]:
        return self._chain.bytes_needed_and_held()

    @property
    def terms(self) -> int:
        """Products of two numbers that `numeric` sums."""
        return sum(stage.terms for _, stage in self._chain.stages)

    @property
    def bytes_needed(self) -> int:
        """Bytes on the backend that planning and `numeric` take at most, as predicted.

        Patterns of the operands and the result are included, values of the operands left out.
        """
        return self._bytes[0]

    @property
    def bytes_held(self) -> int:
        """Bytes of the arrays that `numeric` reads and writes, slots left out."""
        return self._bytes[1]

    @property
    def summary(self) -> str:
        """The product in one line."""
        C = self.pattern
        return f"{self._product.formula}, {C.nrows} x {C.ncols} with {C.nnz} nonzeros, {self.terms} terms"

    @property
    def detail(self) -> str:
        """A line for each stage."""
        return "\n".join(f"{names}: {stage.summary()}" for names, stage in self._chain.stages)


def plan_product(
    product: Product, operands: Sequence[CsrPattern], backend: Backend, options: dict[str, int | str]
) -> PlannedProduct:
    """The symbolic phase of `product` of two operands, or of three for A B C and A^T B C.

    The columns of the operands may be unsorted and may repeat; `options` are as for SparseProduct. Raises what
    SparseProduct.build raises.
    """
    chain = Chain(operands, backend, options)
    factors = [Factor(*operand) for operand in zip(operands, SLOTS, product.letters, strict=False)]
    result = STAGES[product](chain, *factors)
    chain.make_launches()
    return PlannedProduct(product, chain, result.pattern)


def _ab(chain: Chain, A: Factor, B: Factor) -> Factor:
    return chain.multiplied(A, B, Slot.RESULT)


def _atb(chain: Chain, A: Factor, B: Factor) -> Factor:
    return chain.multiplied(chain.transposed(A, finished=False), B, Slot.RESULT)


def _abt(chain: Chain, A: Factor, B: Factor) -> Factor:
    return chain.multiplied(A, chain.transposed(B), Slot.RESULT)


def _ptap(chain: Chain, A: Factor, P: Factor) -> Factor:
    return _atbc(chain, P, A, P)


def _rart(chain: Chain, A: Factor, R: Factor) -> Factor:
    product = chain.multiplied(A, chain.transposed(R))
    return chain.multiplied(R, product, Slot.RESULT)


def _abc(chain: Chain, A: Factor, B: Factor, C: Factor) -> Factor:
    return chain.multiplied(A, chain.multiplied(B, C), Slot.RESULT)


def _atbc(chain: Chain, A: Factor, B: Factor, C: Factor) -> Factor:
    transpose = chain.transposed(A, finished=False)  # first: its longest row is known with B C
    return chain.multiplied(transpose, chain.multiplied(B, C), Slot.RESULT)


STAGES: dict[Product, Callable[..., Factor]] = {
    Product.AB: _ab,
    Product.ATB: _atb,
    Product.ABT: _abt,
    Product.PTAP: _ptap,
    Product.RART: _rart,
    Product.ABC: _abc,
    Product.ATBC: _atbc,
}


def parse_options(text: str) -> dict[str, int | str]:
    """Options of a product from "name=value;...". OptionError for a name or a kind of value that there is not."""
    options: dict[str, int | str] = {}
    for item in filter(None, text.split(";")):
        name, _, value = item.partition("=")
        options[name] = product_option(name, value)
    return options
