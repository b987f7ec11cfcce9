"""PETSc's products of sparse matrices as stages: transposes that gather values, and products of two matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backend import Backend
from petsc_gpufmt.csr import CsrPattern
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.csr_arrays import FILL_THREADS, VALUES_A_THREAD, WARP, power_of_two
from petsc_gpufmt.plan import Launch, Product, Slot, address
from petsc_gpufmt.spgemm.product import (
    BLOCK_THREADS,
    OPTION_NAMES,
    SparseProduct,
    default_option,
    require_memory,
)

# Bytes an entry that sorting a pattern by column takes: keys and order of the sort, twice, and the row of each entry.
TRANSPOSE_BYTES = 40


@dataclass(frozen=True)
class PlannedProduct:
    """A product of two or three matrices after its symbolic phase.

    Attributes
    ----------
    pattern : CsrPattern of the result, its rows sorted by column without repeats
    numeric : launches that fill slot RESULT (nnz of the result,) from slots A_VALUES, B_VALUES and C_VALUES
    terms : products of two numbers that `numeric` sums
    bytes_needed : bytes on the backend that planning and `numeric` take at most, as predicted: patterns of the operands
        and the result included, values of the operands left out
    bytes_held : bytes of the arrays that `numeric` reads and writes, slots left out
    summary, detail : the stages in words; detail has a line for each
    """

    pattern: CsrPattern
    numeric: list[Launch]
    terms: int
    bytes_needed: int
    bytes_held: int
    summary: str
    detail: str


@dataclass(frozen=True)
class Factor:
    """A matrix in a chain: its pattern, where its values are in a numeric phase (an array or a Slot), its name."""

    pattern: CsrPattern
    values: Any
    name: str


class Chain:
    """Stages of a product in the making; a numeric phase carries out `launches` in their order."""

    def __init__(self, operands: Sequence[CsrPattern], backend: Backend, options: dict[str, int | str]):
        self.backend, self.options = backend, options
        self.operand_arrays = [a for p in operands for a in (p.rowptr, p.colidx)]
        self.launches: list[Launch] = []
        self.lines: list[str] = []
        self.terms = self.bytes_needed = 0

    def transposed(self, factor: Factor) -> Factor:
        """The transpose, its values gathered into a buffer."""
        backend, pattern = self.backend, factor.pattern
        self._take(pattern.nnz * (TRANSPOSE_BYTES + backend.scalar.itemsize), f"the transpose of {factor.name}")
        transpose = pattern.transposed(backend.xp)
        values = backend.xp.empty(pattern.nnz, dtype=backend.scalar)
        if pattern.nnz:
            function = backend.function("csr", "csr_fill_values", (FILL_THREADS, VALUES_A_THREAD))
            blocks = -(-pattern.nnz // (FILL_THREADS * VALUES_A_THREAD))
            arguments = (backend.index.type(pattern.nnz), transpose.source, factor.values, values)
            self.launches.append(Launch(function, (blocks, 1, 1), (FILL_THREADS, 1, 1), arguments))
        return Factor(transpose, values, f"{factor.name}^T")

    def multiplied(self, left: Factor, right: Factor, values: Any = None) -> Factor:
        """left * right with its values in `values`, or in a buffer. `right` may have unsorted or repeated columns."""
        if not rows_rise(right.pattern, self.backend):
            right = self._multiplied(right, self._identity(right.pattern.ncols), None)
        return self._multiplied(left, right, values)

    def _multiplied(self, left: Factor, right: Factor, values: Any) -> Factor:
        held = self._bytes_so_far()
        stage = SparseProduct.build(left.pattern, right.pattern, self.backend, self.options)
        if values is None:
            self._take(stage.stats.nnz * self.backend.scalar.itemsize, "an intermediate matrix")
            values = self.backend.xp.empty(stage.stats.nnz, dtype=self.backend.scalar)
        self.launches += stage.numeric(left.values, right.values, values)
        self.terms += stage.stats.terms
        self.bytes_needed = max(self.bytes_needed, held + stage.stats.bytes_needed)
        self.lines.append(f"{left.name} {right.name}: {stage.summary()}")
        return Factor(stage.pattern, values, f"({left.name} {right.name})")

    def _identity(self, size: int) -> Factor:
        """Times the identity, a matrix gets sorted columns without repeats."""
        xp, index = self.backend.xp, self.backend.index
        pattern = CsrPattern(size, size, xp.arange(size + 1, dtype=index), xp.arange(size, dtype=index))
        return Factor(pattern, xp.ones(size, dtype=self.backend.scalar), "I")

    def _take(self, nbytes: int, what: str) -> None:
        require_memory(nbytes, self.backend, what)
        self.bytes_needed = max(self.bytes_needed, self._bytes_so_far() + nbytes)

    def _bytes_so_far(self) -> int:
        return distinct_bytes([*self.operand_arrays, *self.arrays()])

    def arrays(self) -> list[Any]:
        """What the launches so far refer to."""
        array_type = self.backend.xp.ndarray
        return [a for launch in self.launches for a in launch.arguments if isinstance(a, array_type)]


def distinct_bytes(arrays: Sequence[Any]) -> int:
    """Bytes of arrays, each counted once."""
    return sum({address(a): int(a.nbytes) for a in arrays}.values())


def plan_product(
    product: Product, operands: Sequence[CsrPattern], backend: Backend, options: dict[str, int | str]
) -> PlannedProduct:
    """The symbolic phase of `product` of two operands, or of three for A B C; `options` as for SparseProduct.

    The columns of the operands may be unsorted and may repeat. Raises what SparseProduct.build raises.
    """
    chain = Chain(operands, backend, options)
    slots = (Slot.A_VALUES, Slot.B_VALUES, Slot.C_VALUES)[: len(product.letters)]
    factors = [Factor(p, slot, name) for p, slot, name in zip(operands, slots, product.letters, strict=True)]
    result = STAGES[product](chain, *factors)
    pattern = result.pattern
    size = f"{pattern.nrows} x {pattern.ncols} with {pattern.nnz} nonzeros"
    return PlannedProduct(
        pattern=pattern,
        numeric=chain.launches,
        terms=chain.terms,
        bytes_needed=chain.bytes_needed,
        bytes_held=distinct_bytes(chain.arrays()),
        summary=f"{product.formula}, {size}, {chain.terms} terms",
        detail="\n".join(chain.lines),
    )


def _ab(chain: Chain, A: Factor, B: Factor) -> Factor:
    return chain.multiplied(A, B, Slot.RESULT)


def _atb(chain: Chain, A: Factor, B: Factor) -> Factor:
    return chain.multiplied(chain.transposed(A), B, Slot.RESULT)


def _abt(chain: Chain, A: Factor, B: Factor) -> Factor:
    return chain.multiplied(A, chain.transposed(B), Slot.RESULT)


def _ptap(chain: Chain, A: Factor, P: Factor) -> Factor:
    product = chain.multiplied(A, P)
    return chain.multiplied(chain.transposed(P), product, Slot.RESULT)


def _rart(chain: Chain, A: Factor, R: Factor) -> Factor:
    product = chain.multiplied(A, chain.transposed(R))
    return chain.multiplied(R, product, Slot.RESULT)


def _abc(chain: Chain, A: Factor, B: Factor, C: Factor) -> Factor:
    return chain.multiplied(A, chain.multiplied(B, C), Slot.RESULT)


STAGES = {
    Product.AB: _ab,
    Product.ATB: _atb,
    Product.ABT: _abt,
    Product.PTAP: _ptap,
    Product.RART: _rart,
    Product.ABC: _abc,
}


def rows_rise(pattern: CsrPattern, backend: Backend) -> bool:
    """Whether the columns of each row are sorted and do not repeat."""
    if pattern.nnz < 2:
        return True
    falls = backend.xp.zeros(1, dtype=np.int32)
    lanes = power_of_two(pattern.nnz / pattern.nrows, 2, WARP)
    function = backend.function("spgemm", "spgemm_rows_fall", (BLOCK_THREADS, lanes))
    blocks = -(-pattern.nrows * lanes // BLOCK_THREADS)
    arguments = (backend.index.type(pattern.nrows), pattern.rowptr, pattern.colidx, falls)
    backend.run([Launch(function, (blocks, 1, 1), (BLOCK_THREADS, 1, 1), arguments)])
    return not int(falls[0])  # waits for the device


def parse_options(text: str) -> dict[str, int | str]:
    """Options of a product from "name=value;...". OptionError for a name or a kind of value that there is not."""
    options: dict[str, int | str] = {}
    for item in filter(None, text.split(";")):
        name, _, value = item.partition("=")
        kind = type(default_option(name))
        try:
            options[name] = kind(value)
        except ValueError:
            raise OptionError(f"{OPTION_NAMES[name]} {value}: a whole number is needed") from None
    return options
