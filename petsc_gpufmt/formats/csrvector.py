"""Vector CSR: the same number of threads for each row (Bell, Garland 2009: a warp; Reguly, Giles 2012: fewer)."""

from __future__ import annotations

from itertools import product as combinations
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import WARP, ceil_div, power_of_two
from petsc_gpufmt.formats.common.csr_arrays import AUTOMATIC, BLOCK_THREADS, CsrFormat
from petsc_gpufmt.option_value import AUTO
from petsc_gpufmt.patterns.csr import CsrPattern

THREADS_PER_ROW = (2, 4, 8, 16, 32)
ENTRIES_A_THREAD = 4  # are loaded at once


class CsrVector(CsrFormat):
    """One matrix in CSR, multiplied with `threads_per_row` threads of a warp for each row."""

    name = "csrvector"
    default_block_threads = 128
    default_options = {"threads_per_row": AUTOMATIC, "block_threads": AUTOMATIC, "index": AUTO}

    def __init__(self, csr: CsrPattern, backend: Backend, index: str, block_threads: int, threads_per_row: int):
        super().__init__(csr, backend, index, block_threads)
        self.threads_per_row = threads_per_row

    @classmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any]) -> CsrVector:
        """Copy the pattern. Raises OptionError for options that are not offered."""
        options = cls.with_measured(options, csr, backend)
        mean_length = csr.nnz / max(1, csr.nrows)
        threads_per_row = cls.choose(
            "threads_per_row", options, THREADS_PER_ROW, power_of_two(mean_length / ENTRIES_A_THREAD, 2, WARP)
        )
        block_threads = cls.choose("block_threads", options, BLOCK_THREADS, cls.default_block_threads)
        return cls(csr, backend, options["index"], block_threads, threads_per_row)

    @classmethod
    def tuning_space(cls, csr: CsrPattern) -> list[dict[str, int | str]]:
        return [
            {"threads_per_row": team, "block_threads": threads}
            for team, threads in combinations(THREADS_PER_ROW, BLOCK_THREADS)
        ]

    @property
    def nblocks(self) -> int:
        return ceil_div(self.nrows * self.threads_per_row, self.block_threads)

    @property
    def template_arguments(self) -> tuple[int, ...]:
        return (self.threads_per_row,)

    def summary(self) -> str:
        return f"{self.threads_per_row} threads a row, {super().summary()}"
