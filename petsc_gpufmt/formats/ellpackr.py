"""ELLPACK-R (Vazquez, Fernandez, Garzon 2011): ELLPACK with row lengths, at which threads stop.

The storage is that of ELLPACK; padding is not read. The kernel is listing 1 of Kreutzer et al. 2012.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.formats.ellpack import Ellpack
from petsc_gpufmt.patterns.csr import CsrPattern


class EllpackR(Ellpack):
    """One matrix in ELLPACK-R.

    Attributes
    ----------
    rowmax : (nrows,) index; entries of each row
    height, col, val : see Ellpack
    """

    name = "ellpackr"

    def __init__(self, csr: CsrPattern, backend: Backend, options: dict[str, int], lengths: Any, longest: int):
        super().__init__(csr, backend, options, lengths, longest)
        self.rowmax = lengths

    def row_arguments(self) -> tuple[Any, ...]:
        return np.int64(self.height), self.rowmax

    def entries_read(self) -> int:
        return self.nnz

    def row_entries(self, position: int) -> np.ndarray:
        count = int(self.backend.to_host(self.rowmax[position]))
        return np.arange(count, dtype=np.int64) * self.height + position
