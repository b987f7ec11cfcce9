"""What a contender for sparse products has to offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from petsc_gpufmt.bench.places import Place
from petsc_gpufmt.bench.spgemm_tasks import ProductTask


class PreparedProduct(ABC):
    """One product with its operands in place."""

    has_numeric = True
    has_first = False

    @abstractmethod
    def cold(self) -> None:
        """Both phases. An earlier result has been dropped."""

    def renew(self) -> None:
        """Put new operands in place, of which nothing is known yet; where `has_first`."""
        raise NotImplementedError

    @abstractmethod
    def numeric(self) -> None:
        """The values of the result again, on its pattern."""

    @abstractmethod
    def drop(self) -> None:
        """Free the result and everything that was made for it."""

    @abstractmethod
    def result(self) -> scipy.sparse.csr_matrix:
        """The last result, on the host, as it came out."""

    def describe(self) -> str:
        """How it is computed, in words; empty if that is not known."""
        return ""

    def close(self) -> None:
        """Free everything."""
        self.drop()


@dataclass(frozen=True)
class SpgemmContender(ABC):
    """Someone who computes sparse products.

    Attributes
    ----------
    name : for tables
    place : where products run, "host" or "cuda"
    ours : whether this package provides it, and so whether it has to run
    sorts : whether the rows of a result have to be sorted
    in_pool : whether all device memory that it takes comes from CuPy's pool, and so is known
    """

    name: str
    place: str

    ours = False
    sorts = False
    in_pool = False

    @property
    def forced(self) -> bool:
        """Whether options were given that may not suit every matrix."""
        return False

    def obstacle(self, task: ProductTask) -> str | None:
        """Why `task` is not given to this contender; None if it is."""
        return None

    @abstractmethod
    def prepare(self, task: ProductTask, place: Place) -> PreparedProduct:
        """Bring the operands in place; BenchError if a peer cannot."""


def host_csr(shape: tuple[int, int], rowptr: np.ndarray, columns: np.ndarray, values: np.ndarray) -> Any:
    """A SciPy matrix of these arrays, in the order in which they are."""
    matrix = scipy.sparse.csr_matrix(shape, dtype=values.dtype)
    matrix.data, matrix.indices, matrix.indptr = values, columns, rowptr  # the constructor would check every entry
    return matrix


def once_each(operands: Sequence[Any], make: Callable[[Any], Any]) -> list[Any]:
    """make(operand) for each; equal operands give the same object."""
    made: dict[int, Any] = {}
    for operand in operands:
        if id(operand) not in made:
            made[id(operand)] = make(operand)
    return [made[id(operand)] for operand in operands]
