"""Scalar CSR: one thread a row (Bell, Garland 2009; the baseline of Guo, Gropp, Olson 2016, section 1)."""

from __future__ import annotations

from petsc_gpufmt.backend import Backend
from petsc_gpufmt.csr import CsrPattern
from petsc_gpufmt.formats.columns import AUTOMATIC
from petsc_gpufmt.formats.csr_arrays import BLOCK_THREADS, CsrFormat
from petsc_gpufmt.tuning import tuned

DEFAULT_BLOCK_THREADS = 128


class CsrScalar(CsrFormat):
    """One matrix in CSR, multiplied with one thread a row."""

    name = "csrscalar"
    default_options = {"block_threads": AUTOMATIC, "index": AUTOMATIC}

    @classmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, int]) -> CsrScalar:
        """Copy the pattern. Raises OptionError for options that are not offered."""
        measured = tuned(backend, cls.name, cls.tuning_key(csr))
        block_threads = cls.choose("block_threads", options, BLOCK_THREADS, measured, DEFAULT_BLOCK_THREADS)
        return cls(csr, backend, options["index"], block_threads)

    @classmethod
    def tuning_space(cls, csr: CsrPattern) -> list[dict[str, int]]:
        return [{"block_threads": threads} for threads in BLOCK_THREADS]

    @property
    def nblocks(self) -> int:
        return -(-self.nrows // self.block_threads)
