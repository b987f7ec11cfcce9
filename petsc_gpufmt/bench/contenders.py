"""Who computes A x: the formats of this package, PETSc's own types, CuPy."""

from __future__ import annotations

import re
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import BenchMatrix
from petsc_gpufmt.bench.places import Place
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.common.base import parse_options
from petsc_gpufmt.patterns.csr import CsrPattern

SLICE_ROWS = {"seqsell": 16, "seqaijellpack": sys.maxsize, "seqaijellpackr": sys.maxsize}
"""Types that pad rows -> how many rows are padded to the longest of them."""

MOST_STORED = 4
"""A type is left out where padding stores more than so many times the nonzeros: building it takes minutes."""


class Mult(ABC):
    """One prepared mult z = A x."""

    @abstractmethod
    def call(self) -> Any:
        """Compute, or queue the computation."""

    @abstractmethod
    def result(self) -> np.ndarray:
        """z of one call on a z that held NaN before, on the host."""

    @abstractmethod
    def close(self) -> None:
        """Free everything."""

    def describe(self) -> str:
        """How the matrix is stored, in words; empty if that is not known."""
        return ""


@dataclass(frozen=True)
class Contender(ABC):
    """Someone who computes A x.

    Attributes
    ----------
    name : for tables
    place : where it runs, "host" or "cuda"
    ours : whether this package provides it, and so whether it has to run
    """

    name: str
    place: str

    ours = False

    def obstacle(self, matrix: BenchMatrix) -> str | None:
        """Why `matrix` is not given to this contender; None if it is."""
        return None

    @abstractmethod
    def prepare(self, matrix: BenchMatrix, x: np.ndarray, place: Place) -> Mult:
        """Everything before the first mult; BenchError if a peer cannot."""


@dataclass(frozen=True)
class PetscContender(Contender):
    """A PETSc matrix type.

    Attributes
    ----------
    types : sequential types that an assembled AIJ matrix is converted to, one after the other
    options : PETSc options without the dash
    """

    types: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    ours: bool = False

    def obstacle(self, matrix: BenchMatrix) -> str | None:
        height = next((SLICE_ROWS[name] for name in self.types if name in SLICE_ROWS), 1)
        stored = sliced_entries(matrix.csr, min(height, matrix.csr.shape[0]))
        if stored <= MOST_STORED * matrix.csr.nnz:
            return None
        return f"padded rows would store {stored / matrix.csr.nnz:.0f} times the nonzeros"

    def prepare(self, matrix: BenchMatrix, x: np.ndarray, place: Place) -> Mult:
        from petsc4py import PETSc

        try:
            return PetscMult(self, matrix, x, place.vector_type)
        except PETSc.Error as e:
            raise BenchError(f"PETSc error {e.ierr}: {str(e).splitlines()[-1]}") from e


def sliced_entries(matrix: scipy.sparse.csr_matrix, height: int) -> int:
    """Entries that `matrix` has in slices of `height` rows, each padded to its longest row."""
    lengths = np.diff(matrix.indptr).astype(np.int64)
    starts = np.arange(0, lengths.size, height)
    return height * int(np.maximum.reduceat(lengths, starts).sum()) if lengths.size else 0


class PetscMult(Mult):
    def __init__(self, contender: PetscContender, matrix: BenchMatrix, x: np.ndarray, vector_type: str):
        from petsc4py import PETSc

        csr = matrix.csr
        arrays = csr.indptr, csr.indices, csr.data  # PETSc works on these, without a copy
        self.A = PETSc.Mat().createAIJWithArrays(csr.shape, arrays, comm=PETSc.COMM_SELF)
        self.A.setBlockSize(matrix.block_size)  # before 3.26 the call above leaves its `bsize` out
        self.A.setOptionsPrefix("bench_")
        database = PETSc.Options("bench_")
        for name, value in contender.options.items():
            database[name] = value
        self.x, self.z = (self._vector(size, vector_type) for size in (csr.shape[1], csr.shape[0]))
        try:
            for name in contender.types:
                self.A.convert(name)
            self.A.setFromOptions()
            self.x.setArray(x)
            self.z.set(np.nan)
            self.A.mult(self.x, self.z)  # formats read their options here
        except PETSc.Error:
            self.close()
            raise
        finally:
            for name in contender.options:
                database.delValue(name)

    @staticmethod
    def _vector(size: int, vector_type: str) -> Any:
        from petsc4py import PETSc

        vector = PETSc.Vec().create(PETSc.COMM_SELF)
        vector.setSizes(size)
        vector.setType(vector_type)
        return vector

    def call(self) -> None:
        self.A.mult(self.x, self.z)

    def result(self) -> np.ndarray:
        self.z.set(np.nan)
        self.call()
        return self.z.getArray(readonly=True).copy()

    def close(self) -> None:
        for item in (self.A, self.x, self.z):
            item.destroy()

    def describe(self) -> str:
        """The parameters that MatView() shows for our types."""
        from petsc4py import PETSc

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "info")
            viewer = PETSc.Viewer().createASCII(str(path), comm=PETSc.COMM_SELF)
            viewer.pushFormat(PETSc.Viewer.Format.ASCII_INFO)
            self.A.view(viewer)
            viewer.destroy()
            found = re.search(r"storage: \w+ on [\w ]+, (.*), nonzeros=", path.read_text())
        return found[1] if found else ""


@dataclass(frozen=True)
class CupyContender(Contender):
    """``A @ x`` of a ``cupyx.scipy.sparse.csr_matrix``, which calls cuSPARSE."""

    def prepare(self, matrix: BenchMatrix, x: np.ndarray, place: Place) -> Mult:
        return CupyMult(matrix.csr, x)


class CupyMult(Mult):
    def __init__(self, matrix: scipy.sparse.csr_matrix, x: np.ndarray):
        import cupy
        import cupyx.scipy.sparse

        self.A, self.x = cupyx.scipy.sparse.csr_matrix(matrix), cupy.asarray(x)

    def call(self) -> Any:
        return self.A @ self.x

    def result(self) -> np.ndarray:
        return self.call().get()

    def close(self) -> None:
        self.A = self.x = None


def format_options(variant: str) -> tuple[str, dict[str, Any]]:
    """Format name and options from ``pjds`` or ``pjds:slice_height=64,sigma_window=1``."""
    name, _, text = variant.partition(":")
    if name not in FORMATS:
        raise BenchError(f"--format {variant}: there is no format {name!r}, there are {', '.join(FORMATS)}")
    items = [item for item in text.split(",") if item]
    if not all("=" in item for item in items):
        raise BenchError(f"--format {variant}: write options as {name}:option=value,option=value")
    try:
        return name, parse_options(FORMATS[name], ";".join(items))
    except OptionError as e:
        raise BenchError(f"--format {variant}: {e}") from None


def check_formats(variants: Sequence[str]) -> None:
    """BenchError for a format or an option that there is not, and for a value that the format does not take."""
    scalar, index = native_library.real_types()
    one_entry = CsrPattern(1, 1, np.array([0, 1], dtype=index), np.array([0], dtype=index))
    backend = HostBackend(scalar, index)
    for variant in variants:
        name, options = format_options(variant)
        try:
            FORMATS[name].build(one_entry.validated(backend), backend, options)
        except OptionError as e:
            raise BenchError(f"--format {variant}: {e}") from None


# The format that a long solve settles on is the one to measure.
TIMED_AT_ONCE = {"mat_gpufmt_timed_after": "1"}


def option_name(format_name: str, key: str) -> str:
    """The PETSc option of a format; a key with a dot belongs to the format before the dot."""
    return f"mat_{key.replace('.', '_')}" if "." in key else f"mat_{format_name}_{key}"


def format_contender(variant: str, place: str) -> PetscContender:
    """One of this package's formats."""
    name, options = format_options(variant)
    chosen = {
        option_name(name, key): str(value)
        for key, value in options.items()
        if value != FORMATS[name].default_options.get(key)
    }
    if name == "gpufmt":
        chosen = {**TIMED_AT_ONCE, **chosen}
    return PetscContender(variant, place, types=(f"seqaij{name}",), options=chosen, ours=True)


def aijcusparse(algorithm: int) -> PetscContender:
    """PETSc's type on cuSPARSE with one of its two CSR algorithms."""
    return PetscContender(
        f"aijcusparse ALG{algorithm}",
        "cuda",
        types=("seqaijcusparse",),
        options={"mat_cusparse_spmv_alg": f"CSRMV_ALG{algorithm}"},
    )


# by way of seqsell: from AIJ at once, PETSc inserts without preallocation, for minutes
SELLCUDA = PetscContender("sellcuda", "cuda", types=("seqsell", "seqsellcuda"))

PETSC_DEVICE_PEERS = (aijcusparse(1), aijcusparse(2), SELLCUDA)
DEVICE_PEERS = (*PETSC_DEVICE_PEERS, CupyContender("CuPy csr", "cuda"))
HOST_PEERS = (PetscContender("aij", "host"),)


DEFAULT_VARIANTS = ("gpufmt", "pjds", "bsr")
HOST_FORMATS = ("pjds",)
HOST_NONZEROS = 8_000_000
"""Where there is a device, larger matrices are not measured on the host too: there a mult takes 60 ms."""


def default_formats(matrix: BenchMatrix) -> list[str]:
    """The automatic choice, and the format for matrices of this kind; all are among DEFAULT_VARIANTS."""
    return ["gpufmt", "bsr" if matrix.block_size > 1 else "pjds"]


def choose_contenders(
    matrix: BenchMatrix, places: Sequence[str], variants: Sequence[str] | None, peers: Sequence[Contender]
) -> list[Contender]:
    """Who is measured on one matrix: on a device `variants` (None: the default ones) and `peers`, on the host a few."""
    contenders: list[Contender] = []
    if "cuda" in places:
        contenders += [format_contender(variant, "cuda") for variant in variants or default_formats(matrix)]
        contenders += peers
    if "cuda" not in places or matrix.csr.nnz <= HOST_NONZEROS:
        contenders += [format_contender(variant, "host") for variant in variants or HOST_FORMATS]
        contenders += HOST_PEERS
    return contenders
