"""Scalar CSR: one thread a row (Bell, Garland 2009; the baseline of Guo, Gropp, Olson 2016, section 1)."""

from __future__ import annotations

from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.formats.common.csr_arrays import CsrFormat


class CsrScalar(CsrFormat):
    """One matrix in CSR, multiplied with one thread a row."""

    name = "csrscalar"
    default_block_threads = 128

    @property
    def nblocks(self) -> int:
        return ceil_div(self.nrows, self.block_threads)
