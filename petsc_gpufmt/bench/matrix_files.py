"""Matrices in files, Matrix Market's (.mtx, .mtx.gz) and SciPy's (.npz), as anybody may have written or damaged."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from petsc_gpufmt.bench.errors import BenchError

OPENED_BY: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
CHUNK = 1 << 20
SHORTEST_ENTRY = {"coordinate": 4, "array": 1}
"""Bytes: "1 1" and the end of its line. An array that is symmetric has half of its entries, of two bytes."""

LONGEST_REASON = 200


@contextlib.contextmanager
def of_a_matrix(path: Path) -> Iterator[None]:
    """BenchError, of one line, for whatever SciPy and what it uses raise where a file is none of a matrix."""
    try:
        yield
    except BenchError:
        raise
    except MemoryError as e:
        raise BenchError(f"--matrix {path}: it does not fit into the memory of this machine") from e
    except Exception as e:  # each of SciPy, NumPy, zipfile, zlib and tokenize has its own
        reason = " ".join(str(e).split())[:LONGEST_REASON] or type(e).__name__
        raise BenchError(
            f"--matrix {path}: not a sparse matrix in Matrix Market (.mtx, .mtx.gz) or SciPy (.npz) form: {reason}"
        ) from e


def file_sizes(path: Path) -> tuple[int, int, int]:
    """Rows, columns and entries that the head of a file tells; no entries for .npz, where the shape alone is told."""
    if path.suffix == ".npz":
        _check_members(path)
        with np.load(path, allow_pickle=False) as archive:
            nrows, ncols = archive["shape"]
        sizes = int(nrows), int(ncols), 0
    else:
        sizes = scipy.io.mminfo(path)[:3]
    if min(sizes) < 0:
        raise ValueError(f"its head says {sizes[0]} x {sizes[1]} with {sizes[2]} entries")
    return sizes


def read_matrix(path: Path) -> scipy.sparse.csr_matrix:
    """The matrix in a file, as it is stored there."""
    matrix = scipy.sparse.load_npz(path) if path.suffix == ".npz" else _read_text(path)
    if hasattr(matrix, "check_format"):  # compressed: SciPy takes indices of .npz as they are
        matrix.check_format(full_check=True)
        if (matrix.indptr[1:] < matrix.indptr[:-1]).any():  # SciPy looks at differences, which may overflow
            raise ValueError("its row or column pointer falls")
    return scipy.sparse.csr_matrix(matrix)


def _read_text(path: Path) -> Any:
    """The matrix of a Matrix Market file; ValueError before memory is taken for entries that the file cannot have.

    SciPy's reader looks for the end of a line behind its buffer where a number is followed by something else and then
    a zero byte or the end of the file, and divides by the rows of an array. None of these reaches it.
    """
    nrows, ncols, entries, layout = scipy.io.mminfo(path)[:4]
    nbytes, last, opened = 0, b"", OPENED_BY.get(path.suffix, open)
    with opened(path, "rb") as file:
        while chunk := file.read(CHUNK):
            if b"\0" in chunk:
                raise ValueError("it has zero bytes and is no text")
            nbytes, last = nbytes + len(chunk), chunk[-1:]
    if SHORTEST_ENTRY[layout] * entries > nbytes:
        raise ValueError(f"truncated: its head says {entries} entries, and it has {nbytes} bytes")
    if layout == "array" and not entries:
        return scipy.sparse.csr_matrix((nrows, ncols))
    if last == b"\n":
        return scipy.io.mmread(path)
    with opened(path, "rb") as file:
        return scipy.io.mmread(io.BytesIO(file.read() + b"\n"))


def _check_members(path: Path) -> None:
    """ValueError for an array whose head says more than the archive has of it, which NumPy would take memory for."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                if np.lib.format.read_magic(file) == (1, 0):
                    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
                else:
                    shape, _, dtype = np.lib.format.read_array_header_2_0(file)
            if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(f"truncated: its array {member.filename!r} is shorter than its head says")
