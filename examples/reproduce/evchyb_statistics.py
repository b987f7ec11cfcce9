"""Statistics of matrices in EVC-HYB, with the columns of table 3 of its paper.

    python evchyb_statistics.py                           # two stencils
    python evchyb_statistics.py pwtk.mtx.gz 27point:60x3 # files, stencils on a grid, stencils of dense blocks

Guo, Gropp, Olson, "A hybrid format for better performance of sparse matrix-vector multiplication on a GPU", 2016. Rows
are sorted by length, those of up to 128 entries are stored as ELL in slices of 32, the others as CSR padded to 32
(vCSR). I_split is the row, in the sorted order, at which the parts meet; NNZ_ELL and NNZ_vCSR count what the parts
store, padding included; the last column is padding in percent of the non-zeros.

Run it on matrices of the paper, from the SuiteSparse Matrix Collection (sparse.tamu.edu), to compare with its rows.
The matrices are stored by the code of `-mat_type evchyb`, on the host and with the slices that it has on a device.
"""

import argparse
import sys

import numpy as np

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import SPECS, BenchMatrix, make_matrix
from petsc_gpufmt.formats.common.columns import FULL_ONLY
from petsc_gpufmt.formats.evchyb.evchyb import EvcHyb
from petsc_gpufmt.formats.evchyb.order import ALL_ROWS
from petsc_gpufmt.patterns.csr import CsrPattern

WARP = 32
DEFAULT_MATRICES = ("7point:30", "27point:12x6")
PAPER_OPTIONS = {"split_length": 128, "sigma_window": ALL_ROWS, "index": FULL_ONLY}


def store(matrix: BenchMatrix, backend: HostBackend) -> EvcHyb:
    """The pattern of a matrix as in the paper."""
    (nrows, ncols), csr = matrix.csr.shape, matrix.csr
    return EvcHyb.build(
        CsrPattern(nrows, ncols, csr.indptr, csr.indices), backend, {**EvcHyb.default_options, **PAPER_OPTIONS}
    )


def statistics(stored: EvcHyb) -> tuple[float, ...]:
    """A row of table 3: NROW, NNZ, N_nzr, I_split, NNZ_ELL, its share, NNZ_vCSR, its share, NNZ added; shares in %."""
    split = stored.slices.nell * stored.height
    ell, vcsr = stored.nstored_ell, stored.nstored - stored.nstored_ell
    shares = [100 * part / max(1, stored.nstored) for part in (ell, vcsr)]
    mean, added = stored.nnz / max(1, stored.nrows), 100 * (stored.nstored - stored.nnz) / max(1, stored.nnz)
    return stored.nrows, stored.nnz, mean, split, ell, shares[0], vcsr, shares[1], added


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrices", nargs="*", default=DEFAULT_MATRICES, help=f"each {SPECS}")
    arguments = parser.parse_args()
    backend = HostBackend(*native_library.petsc_types())
    backend.simd_width = WARP
    print(f"{'matrix':28}     NROW       NNZ  N_nzr   I_split   NNZ_ELL % NNZ_ELL  NNZ_vCSR % NNZ_vCSR  % NNZ added")
    for spec in arguments.matrices:
        try:
            matrix = make_matrix(spec, backend.scalar, backend.index, np.random.default_rng(7))
        except BenchError as e:
            print(e, file=sys.stderr)
            return 1
        row = "{:9d} {:9d} {:6.1f} {:9d} {:9d} {:9.2f} {:9d} {:10.2f} {:12.2f}"
        print(f"{matrix.name:28}{row.format(*statistics(store(matrix, backend)))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
