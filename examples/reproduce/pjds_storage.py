"""Storage of pJDS against ELLPACK on matrices like those of its paper.

    python pjds_storage.py [--slice-height 32]

Kreutzer, Hager, Wellein, Fehske, Basermann, Bishop, "Sparse matrix-vector multiplication on GPGPU clusters: a new
storage format and a scalable implementation", 2012: the data reductions of Table I, and section II-A: less than 0.01 %
of padding with slices of 32 rows.

The rows are sorted, cut and counted by the code that stores matrices of `-mat_type pjds`; there are no values. Of each
matrix the paper's section I-C gives dimension and mean row length, rounded, and figure 3 the row lengths, as a picture.
Here they follow a beta distribution with this mean between the shortest and the longest row. The longest is what the
mean and Table I imply (DLR1: 144 entries and 17.5 % less than ELLPACK make 174), for DLR1 and DLR2 a multiple of their
6 and 5 unknowns in a grid point. The shortest agrees with the text where it speaks of it (DLR1: half the longest; sAMG:
less than a quarter) and is assumed otherwise; it matters to the padding only.
"""

import argparse
from dataclasses import dataclass

import numpy as np

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.formats.common.sliced_rows import cut
from petsc_gpufmt.formats.pjds import SLICE_HEIGHTS
from petsc_gpufmt.patterns.csr import CsrPattern, RowCounts

SEED = 7


@dataclass(frozen=True)
class PaperMatrix:
    """Rows; entries of a row, longer than the shortest by multiples of `unknowns`; reduction in percent."""

    name: str
    nrows: int
    mean: float
    shortest: int
    longest: int
    unknowns: int
    reduction: float


MATRICES = (
    PaperMatrix("DLR1", 46_417 * 6, 144, 90, 174, 6, 17.5),
    PaperMatrix("DLR2", 108_396 * 5, 315, 50, 605, 5, 48.0),
    PaperMatrix("HMEp", 6_200_000, 15, 3, 24, 1, 36.0),
    PaperMatrix("sAMG", 3_400_000, 7, 4, 22, 1, 68.4),
)


def row_lengths(matrix: PaperMatrix) -> np.ndarray:
    """(nrows,) entries of each row."""
    share = (matrix.mean - matrix.shortest) / (matrix.longest - matrix.shortest)
    places = np.random.default_rng(SEED).beta(2 * share, 2 * (1 - share), matrix.nrows)
    places[[0, -1]] = 0, 1
    steps = (matrix.longest - matrix.shortest) // matrix.unknowns
    return matrix.shortest + matrix.unknowns * np.rint(steps * places).astype(np.int64)


def storage(lengths: np.ndarray, slice_height: int, backend: HostBackend) -> tuple[int, int, int]:
    """Entries that the matrix has, that pJDS stores, and that ELLPACK stores."""
    rowptr = np.concatenate([[0], np.cumsum(lengths)]).astype(backend.index)
    nnz, nrows = int(rowptr[-1]), lengths.size
    longest = int(lengths.max())
    counts = RowCounts(
        longest, nnz, descends=True, padding=(0, 0), lengths=()
    )  # of rows in their order, all but the first
    no_columns = np.broadcast_to(backend.index.type(0), nnz)  # columns play no part
    pattern = CsrPattern(nrows, 1, rowptr, no_columns, counts=counts)
    slices = cut(pattern, nrows, slice_height, backend)  # all rows are one window
    return nnz, slices.nstored, -(-nrows // slice_height) * slice_height * counts.longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slice-height", type=int, default=32, choices=SLICE_HEIGHTS, help="the paper's b_r")
    arguments = parser.parse_args()
    backend = HostBackend(*native_library.petsc_types())
    print("matrix     rows  mean row    non-zeros         pJDS      ELLPACK  reduction  in the paper  padding")
    for matrix in MATRICES:
        nnz, pjds, ellpack = storage(row_lengths(matrix), arguments.slice_height, backend)
        reduction, padding = 100 * (1 - pjds / ellpack), 100 * (pjds / nnz - 1)
        sizes = f"{matrix.nrows:8d} {nnz / matrix.nrows:9.2f} {nnz:12d} {pjds:12d} {ellpack:12d}"
        print(f"{matrix.name:6} {sizes} {reduction:8.1f} % {matrix.reduction:11.1f} % {padding:7.4f} %")


if __name__ == "__main__":
    main()
