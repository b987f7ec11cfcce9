"""The balanced BSR layout: long block rows cut into segments, and their results added up.

    python bsr_balanced.py [--block-size 2] [--limit 3] [--lengths 5 2 3 11 6 1 8]

Abdelfattah, Ltaief, Keyes, Dongarra, "Performance optimization of sparse matrix-vector multiplication for
multi-component PDE-based applications using GPUs", 2016, section 5.5 and figure 8: no segment has more than lambda
blocks, the segment pointer tells which belong to a block row, and a reduction adds them up. The default is a matrix of
seven block rows with lambda = 3 whose segment pointer is that of the figure, 0 2 3 4 8 10 11 14. The script prints the
segments and compares the product with that of the same matrix without a cut.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Operation, Slot
from petsc_gpufmt.formats.bsr.bsr import Bsr
from petsc_gpufmt.formats.bsr.parameters import NEVER
from petsc_gpufmt.patterns.csr import CsrPattern

FIGURE_8_LENGTHS = (5, 2, 3, 11, 6, 1, 8)  # blocks in each block row: any that need as many segments as in the figure


def blocked_pattern(lengths: Sequence[int], size: int, index: np.dtype) -> CsrPattern:
    """Block row i has lengths[i] dense blocks, the first ones of the row."""
    rows = np.repeat(lengths, size) * size
    rowptr = np.concatenate([[0], np.cumsum(rows)]).astype(index)
    colidx = np.concatenate([np.arange(n) for n in rows]).astype(index)
    return CsrPattern(rows.size, max(lengths) * size, rowptr, colidx, row_block=size, col_block=size)


def store(pattern: CsrPattern, limit: int, values: np.ndarray, backend: HostBackend) -> Bsr:
    """The matrix with block rows cut at `limit` blocks."""
    stored = Bsr.build(pattern, backend, {**Bsr.default_options, "lambda": limit})
    backend.run(stored.plan(Operation.REFRESH), {Slot.VALUES: values})
    return stored


def multiply(stored: Bsr, x: np.ndarray) -> np.ndarray:
    z = np.empty(stored.nrows, dtype=x.dtype)
    stored.backend.run(stored.plan(Operation.MULT), {Slot.X: x, Slot.Z: z})
    return z


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--block-size", type=int, default=2, help="rows and columns of a block (default 2)")
    parser.add_argument("--limit", type=int, default=3, help="the paper's lambda (default 3)")
    parser.add_argument("--lengths", type=int, nargs="+", default=FIGURE_8_LENGTHS, help="blocks in each block row")
    arguments = parser.parse_args()
    lengths = arguments.lengths
    if arguments.block_size < 1 or arguments.limit < 1 or min(lengths) < 0 or not max(lengths):
        parser.error("--block-size and --limit must be at least 1, --lengths not negative and not all 0")
    backend = HostBackend(*native_library.petsc_types())
    rng = np.random.default_rng(7)
    pattern = blocked_pattern(lengths, arguments.block_size, backend.index)
    values, x = (rng.standard_normal(n).astype(backend.scalar) for n in (pattern.nnz, pattern.ncols))
    balanced, whole = (store(pattern, limit, values, backend) for limit in (arguments.limit, NEVER))
    if balanced.segment_ptr is None:
        print(f"no block row has more than {arguments.limit} blocks: there is nothing to cut")
        return 0
    print(f"blocks of block rows    {' '.join(map(str, lengths))}")
    print(f"segment pointer         {' '.join(map(str, balanced.segment_ptr))}")
    print(f"blocks of segments      {' '.join(map(str, np.diff(balanced.segment_offsets)))}")
    expected = multiply(whole, x)
    difference = np.abs(multiply(balanced, x) - expected).max() / np.abs(expected).max()
    print(f"largest difference from the product without a cut: {difference:.1e} of the largest result")
    return 0 if difference < len(lengths) * max(lengths) * np.finfo(backend.scalar).eps else 1


if __name__ == "__main__":
    sys.exit(main())
