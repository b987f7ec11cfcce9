"""ELLPACK, the baseline of pJDS (Kreutzer et al. 2012, section II-A; Vazquez, Fernandez, Garzon 2011).

The entries of each row are shifted to the left and padded to the longest row, and the rectangle is stored column by
column. The number of rows is padded to whole warps. Every thread computes all entries of its row, padding too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.formats.common.ell import EllFormat, row_lengths
from petsc_gpufmt.patterns.csr import CsrPattern


class Ellpack(EllFormat):
    """One matrix in ELLPACK.

    Attributes
    ----------
    height : rows padded to a multiple of the backend's simd_width
    col, val : (longest * height,) entry j of row i at j * height + i; see EllFormat
    """

    name = "ellpack"
    fill_stem = "ellpack"
    default_options = {"block_threads": 0}

    def __init__(self, csr: CsrPattern, backend: Backend, options: dict[str, int], lengths: Any, longest: int):
        super().__init__(csr, backend, options, lengths, longest)
        self.height = ceil_div(csr.nrows, backend.simd_width) * backend.simd_width
        self.store(self.height * longest, csr)

    @classmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, int]) -> Ellpack:
        """Pad. OutOfMemoryError if the longest row makes the rectangle too large, OptionError for bad options."""
        return cls(csr, backend, cls.with_measured(options, csr, backend), *row_lengths(csr, backend))

    def row_arguments(self) -> tuple[Any, ...]:
        return self.place_arguments()

    def place_arguments(self) -> tuple[Any, ...]:
        return np.int64(self.height), self.backend.index.type(self.longest)

    def positions(self) -> int:
        return self.height

    def entries_read(self) -> int:
        return self.nrows * self.longest

    def row_entries(self, position: int) -> np.ndarray:
        return np.arange(self.longest, dtype=np.int64) * self.height + position

    def summary(self) -> str:
        return f"{self.height} x {self.longest}, {self.block_threads} threads a block"
