"""The readers of files of the package: valid small files of each, and what holds of whatever they return."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse

from petsc_gpufmt import tuned_options
from petsc_gpufmt.analysis import petsc_binary
from petsc_gpufmt.analysis.source import read_source
from petsc_gpufmt.backends.kernel_modules import Module
from petsc_gpufmt.backends.kernel_store import Compiled, Folder
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import make_matrix
from petsc_gpufmt.bench.matrix_files import file_sizes
from petsc_gpufmt.bench.report.page import KINDS, kind_of, make_page, shown_runs
from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.errors import GpufmtError
from petsc_gpufmt.scaling.ncu import read_counts
from reliability import mutations

F8, I4 = np.dtype(np.float64), np.dtype(np.int32)
MODULE = Module("formats/pjds", ("pjds_spmv<1,7>", "pjds_slice_sizes"))
COMPILED = Compiled({"pjds_spmv<1,7>": "_Z9pjds", "pjds_slice_sizes": "_Z16pjds"}, b"\x7fELF\n\n\x00machine code" * 9)
BYTES_A_ROW = 200
"""What readers of matrices may take for a row or column that a file only counts: row pointers, and copies of them."""


@dataclass(frozen=True)
class Reader:
    """A reader of files.

    Attributes
    ----------
    suffix : of its files
    seeds : valid files
    mutate : changes one of them
    read : reads a file, and raises AssertionError if what it returns breaks an invariant
    errors : what it may raise, with a text of one line
    claims : bytes of memory that a file may ask for without having them
    """

    suffix: str
    seeds: Callable[[], list[bytes]]
    mutate: mutations.Mutation
    read: Callable[[Path], None]
    errors: tuple[type[Exception], ...]
    claims: Callable[[Path], int] = lambda path: 0


def _matrices() -> list[scipy.sparse.coo_matrix]:
    rng = np.random.default_rng(1)
    square = scipy.sparse.random(9, 9, 0.3, random_state=rng, format="coo")
    return [
        square,
        scipy.sparse.coo_matrix(square + square.T),
        scipy.sparse.random(5, 12, 0.3, random_state=rng, format="coo"),
    ]


@cache
def matrix_market() -> list[bytes]:
    general, symmetric, wide = _matrices()
    written = []
    for matrix, words in (
        (general, {}),
        (symmetric, {"symmetry": "symmetric"}),
        (wide, {"field": "pattern"}),
        (wide.toarray(), {}),
        (scipy.sparse.coo_matrix((np.arange(1, 4), ([0, 1, 2], [2, 1, 0])), (3, 3)), {"field": "integer"}),
        (scipy.sparse.coo_matrix(general * 1j), {}),
    ):
        file = io.BytesIO()
        scipy.io.mmwrite(file, matrix, **words)
        written.append(file.getvalue())
    return written


@cache
def npz() -> list[bytes]:
    written = []
    for form in ("csr", "csc", "coo", "dia", "bsr"):
        file = io.BytesIO()
        scipy.sparse.save_npz(file, _matrices()[0].asformat(form))
        compression = zipfile.ZIP_STORED if form == "coo" else zipfile.ZIP_DEFLATED
        written.append(mutations.archive_of(mutations.members_of(file.getvalue()), compression))
    return written


@cache
def petsc_files() -> list[bytes]:
    written = []
    for matrix in _matrices():
        csr = scipy.sparse.csr_matrix(matrix)
        head = np.array([petsc_binary.MATRIX, *csr.shape, csr.nnz])
        parts = (head, np.diff(csr.indptr), csr.indices)
        written.append(b"".join(part.astype(">i4").tobytes() for part in parts) + csr.data.astype(">f8").tobytes())
    return written


@cache
def tuning_files() -> list[bytes]:
    own = {"gpu": "T", "formats": {"pjds": {"short": {"slice_height": 8, "index": "full"}, "": {}}}, "measured": {}}
    facts = {"measured": {"pjds": {"short": {"seconds": {"7point:50": 1e-5}, "driver": "580"}}}}
    return [json.dumps(own, indent=1).encode(), json.dumps({**own, **facts}).encode()]


@cache
def result_files() -> list[bytes]:
    """A run of each kind of benchmark, with two of its cases."""
    found: dict[str, bytes] = {}
    for path in sorted((Path(__file__).resolve().parents[2] / "benchmarks" / "results").glob("*.json")):
        for run in read_runs(path):
            small = {**run, "cases": run["cases"][:2]}
            if kind_of(run) in KINDS and run["cases"]:
                found.setdefault(kind_of(run), json.dumps({"schema": 1, "runs": [small]}, indent=1).encode())
    return list(found.values())


@cache
def module_files() -> list[bytes]:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as place:
        folder = Folder(place, "sm_90", F8, I4)
        folder.write(MODULE, COMPILED)
        return [Path(folder.file(MODULE)).read_bytes()]


def of_module(data: bytes, rng: random.Random) -> bytes:
    """Half of them sealed anew, so that what is behind the digest is seen too."""
    if rng.random() < 0.5:
        return mutations.of_bytes(data, rng)
    contents = mutations.of_bytes(data.partition(b"\n")[2], rng)
    return Folder("", "sm_90", F8, I4)._header(contents) + b"\n" + contents


def counter_files() -> list[bytes]:
    lines = ["==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for metric, unit, value in (
        ("dram__bytes.sum", "byte", "1,234,567"),
        ("l1tex__t_sector_hit_rate.pct", "%", "40.5"),
        ("lts__t_sector_hit_rate.pct", "%", "60"),
    ):
        lines.append(f'"0","void pjds_spmv<1, 7>(Pjds)","{metric}","{unit}","{value}"')
    columns = '"ID","Kernel Name","dram__bytes.sum","l1tex__t_sector_hit_rate.pct","lts__t_sector_hit_rate.pct"'
    raw = [columns, '"","","Mbyte","%","%"', '"0","pjds_spmv(Pjds)","1.5","10","20"']
    return ["\n".join(part).encode() for part in (lines, raw)]


def check_matrix(matrix: scipy.sparse.csr_matrix) -> None:
    """A CSR matrix as PETSc takes it: every column in range, rows sorted, indices of PETSc's type."""
    nrows, ncols = matrix.shape
    assert matrix.indptr.size == nrows + 1 and matrix.indptr[0] == 0, "row pointer"
    assert matrix.indptr[-1] == matrix.indices.size == matrix.data.size, "sizes of arrays"
    assert (np.diff(matrix.indptr) >= 0).all(), "row pointer falls"
    if matrix.indices.size:
        assert 0 <= matrix.indices.min() and matrix.indices.max() < ncols, "column out of range"
        inside = np.ones(matrix.indices.size, dtype=bool)
        begins = matrix.indptr[:-1]
        inside[begins[begins < inside.size]] = False
        assert (np.diff(matrix.indices, prepend=0)[inside] > 0).all(), "columns do not ascend"


def read_for_analysis(path: Path) -> None:
    check_matrix(read_source(str(path), F8, I4).matrix)


def read_for_bench(path: Path) -> None:
    check_matrix(make_matrix(str(path), F8, I4, np.random.default_rng(0)).csr)


def read_both_ways(path: Path) -> None:
    """As `analyze` and as `bench` and `model` do: what one refuses the other may take, as sizes count otherwise."""
    try:
        read_for_analysis(path)
    except BenchError as e:
        first_line_of(e)
    read_for_bench(path)


def first_line_of(error: Exception) -> str:
    """The text of an error; AssertionError unless it is one line."""
    text = str(error)
    assert text and "\n" not in text and len(text) < 2000, f"not one clear line: {text[:200]!r}"
    return text


def read_options(path: Path) -> None:
    """As in the user's cache: a damaged file is a warning of one line, and counts as empty."""
    tuned_options.known_options.cache_clear()
    target = tuned_options.cache_file("T")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.replace(path, target)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        known = tuned_options.known_options("T")
    for warning in told:
        first_line_of(warning.message)
    for keys in known.values():
        for options in keys.values():
            for value in options.values():
                assert type(value) is int or value.isidentifier(), f"an option is {value!r}"


def read_page(path: Path) -> None:
    page = make_page(shown_runs(read_runs(path)))
    assert page.startswith("# Results"), "no page"


def read_module(path: Path) -> None:
    folder = Folder(str(path.parent), "sm_90", F8, I4)
    os.makedirs(folder.path, exist_ok=True)
    os.replace(path, folder.file(MODULE))
    data = Path(folder.file(MODULE)).read_bytes()
    found, (head, _, contents) = folder.read(MODULE), data.partition(b"\n")
    if found is not None:
        assert head == folder._header(contents), "the digest does not fit"
        assert tuple(found.symbols) == MODULE.names, "other kernels"


def read_counters(path: Path) -> None:
    for counted in read_counts(path).values():
        assert counted.volume >= 0 and 0 <= counted.first_hits <= 1 and 0 <= counted.second_hits <= 1, str(counted)


def rows_claimed(path: Path) -> int:
    try:
        nrows, ncols, _ = file_sizes(path)
    except Exception:
        return 0
    return BYTES_A_ROW * (abs(nrows) + abs(ncols))


TYPED = (BenchError, GpufmtError)
READERS = {
    "Matrix Market": Reader(".mtx", matrix_market, mutations.of_bytes, read_both_ways, TYPED, rows_claimed),
    "Matrix Market, packed": Reader(
        ".mtx.gz",
        lambda: [gzip.compress(text, mtime=0) for text in matrix_market()],
        mutations.of_gzip,
        read_both_ways,
        TYPED,
        rows_claimed,
    ),
    "PETSc binary": Reader(".petsc", petsc_files, mutations.of_bytes, read_for_analysis, TYPED),
    "SciPy .npz": Reader(".npz", npz, mutations.of_zip, read_both_ways, TYPED, rows_claimed),
    "tuned options": Reader(".json", tuning_files, mutations.of_bytes, read_options, ()),
    "compiled kernels": Reader(".module", module_files, of_module, read_module, ()),
    "results of bench": Reader(".json", result_files, mutations.of_bytes, read_page, TYPED),
    "counters of ncu": Reader(".csv", counter_files, mutations.of_bytes, read_counters, TYPED),
}


def mutated(name: str, seed: int, number: int) -> bytes:
    """The file of that number: the same for the same seed."""
    rng = random.Random(zlib.crc32(f"{name} {seed} {number}".encode()))
    seeds = READERS[name].seeds()
    return READERS[name].mutate(seeds[rng.randrange(len(seeds))], rng)
