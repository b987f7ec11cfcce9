"""Who computes A x: the formats of this package, PETSc's own types, CuPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.places import Place
from petsc_gpufmt.formats.base import parse_options
from petsc_gpufmt.registry import FORMATS


class Product(ABC):
    """One prepared product z = A x."""

    @abstractmethod
    def call(self) -> Any:
        """Compute, or queue the computation."""

    @abstractmethod
    def result(self) -> np.ndarray:
        """z of one call on a z that held NaN before, on the host."""

    @abstractmethod
    def close(self) -> None:
        """Free everything."""


@dataclass(frozen=True)
class Contender(ABC):
    """Someone who computes A x.

    Attributes
    ----------
    name : for tables
    place : where the product runs, "host" or "cuda"
    ours : whether this package provides it, and so whether it has to run
    """

    name: str
    place: str

    ours = False

    @abstractmethod
    def prepare(self, matrix: scipy.sparse.csr_matrix, x: np.ndarray, place: Place) -> Product:
        """Everything before the first product."""


@dataclass(frozen=True)
class PetscContender(Contender):
    """A PETSc matrix type.

    Attributes
    ----------
    matrix_type : the type that is assembled
    options : PETSc options without the dash
    conversions : types that the matrix goes through after the assembly
    """

    matrix_type: str = "seqaij"
    options: dict[str, str] = field(default_factory=dict)
    conversions: tuple[str, ...] = ()
    ours: bool = False

    def prepare(self, matrix: scipy.sparse.csr_matrix, x: np.ndarray, place: Place) -> Product:
        return PetscProduct(self, matrix, x, place.vector_type)


class PetscProduct(Product):
    def __init__(self, contender: PetscContender, matrix: scipy.sparse.csr_matrix, x: np.ndarray, vector_type: str):
        from petsc4py import PETSc

        self.A = PETSc.Mat().create(PETSc.COMM_SELF)
        self.A.setSizes(matrix.shape)
        self.A.setOptionsPrefix("bench_")
        self.A.setType(contender.matrix_type)
        database = PETSc.Options("bench_")
        for name, value in contender.options.items():
            database[name] = value
        self.A.setFromOptions()
        self.A.setPreallocationCSR((matrix.indptr, matrix.indices, matrix.data))
        for name in contender.conversions:
            self.A.convert(name)
        self.x, self.z = (self._vector(size, vector_type) for size in (matrix.shape[1], matrix.shape[0]))
        self.x.setArray(x)
        self.z.set(np.nan)
        try:
            self.A.mult(self.x, self.z)  # formats read their options here
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


@dataclass(frozen=True)
class CupyContender(Contender):
    """``A @ x`` of a ``cupyx.scipy.sparse.csr_matrix``, which calls cuSPARSE."""

    def prepare(self, matrix: scipy.sparse.csr_matrix, x: np.ndarray, place: Place) -> Product:
        return CupyProduct(matrix, x)


class CupyProduct(Product):
    def __init__(self, matrix: scipy.sparse.csr_matrix, x: np.ndarray):
        import cupy
        import cupyx.scipy.sparse

        self.A, self.x = cupyx.scipy.sparse.csr_matrix(matrix), cupy.asarray(x)

    def call(self) -> Any:
        return self.A @ self.x

    def result(self) -> np.ndarray:
        return self.call().get()

    def close(self) -> None:
        import cupy

        self.A = self.x = None
        cupy.get_default_memory_pool().free_all_blocks()


def format_options(variant: str) -> tuple[str, dict[str, int]]:
    """Format name and options from ``pjds`` or ``pjds:slice_height=64,sigma_window=1``."""
    name, _, text = variant.partition(":")
    if name not in FORMATS:
        raise BenchError(f"--format {variant}: there is no format {name!r}, there are {', '.join(FORMATS)}")
    given = dict(item.partition("=")[::2] for item in text.split(",") if item)
    if not all(value.lstrip("-").isdigit() for value in given.values()):
        raise BenchError(f"--format {variant}: write options as {name}:option=number,option=number")
    return name, parse_options(FORMATS[name], ";".join(f"{key}={value}" for key, value in given.items()))


def format_contender(variant: str, place: str) -> PetscContender:
    """One of this package's formats."""
    name, options = format_options(variant)
    chosen = {
        f"mat_{name}_{key}": str(value) for key, value in options.items() if value != FORMATS[name].default_options[key]
    }
    return PetscContender(variant, place, matrix_type=f"seqaij{name}", options=chosen, ours=True)


def all_contenders(variants: list[str], places: list[str]) -> list[Contender]:
    """Every contender that can run in `places`, this package's `variants` first."""
    contenders: list[Contender] = []
    if "cuda" in places:
        contenders += [format_contender(variant, "cuda") for variant in variants]
        for number in (1, 2):
            algorithm = {"mat_cusparse_spmv_alg": f"CSRMV_ALG{number}"}
            contenders.append(
                PetscContender(f"aijcusparse ALG{number}", "cuda", matrix_type="seqaijcusparse", options=algorithm)
            )
        # by way of seqsell: from AIJ at once, PETSc inserts without preallocation, for minutes
        contenders.append(PetscContender("sellcuda", "cuda", conversions=("seqsell", "seqsellcuda")))
        contenders.append(CupyContender("CuPy csr", "cuda"))
    contenders += [format_contender(variant, "host") for variant in variants]
    contenders.append(PetscContender("aij", "host"))
    return contenders
