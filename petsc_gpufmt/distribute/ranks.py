"""What ranks tell each other: by index sets, since petsc4py has no collectives of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from petsc_gpufmt.errors import DistributionError


def from_all(numbers: Any, comm: Any) -> np.ndarray:
    """The integers of all ranks, one rank after the other: of PETSc.IntType. Collective."""
    from petsc4py import PETSc

    own = PETSc.IS().createGeneral(np.ascontiguousarray(numbers, dtype=PETSc.IntType), comm=comm)
    everything = own.allGather()
    gathered = np.array(everything.getIndices())
    for index_set in (own, everything):
        index_set.destroy()
    return gathered


def bounds_of(local: int, comm: Any) -> np.ndarray:
    """Where the parts of the ranks begin if this one has `local` items, and where the last ends: (size + 1,) int64."""
    return np.concatenate([[0], np.cumsum(from_all([local], comm), dtype=np.int64)])


def agree(problem: str, comm: Any) -> None:
    """Raise DistributionError on all ranks if one has a problem: the first rank's that has. Collective."""
    text = np.frombuffer(f"{problem}\0".encode(), dtype=np.uint8)
    problems = from_all(text, comm).astype(np.uint8).tobytes().decode().split("\0")
    for each in filter(None, problems):
        raise DistributionError(each)


def agree_on(what: str, values: tuple[int, ...], comm: Any) -> None:
    """Raise DistributionError on all ranks unless all have the same values. Collective."""
    given = from_all(values, comm).reshape(-1, len(values))
    if (given != given[0]).any():
        raise DistributionError(f"{what} must be the same on all ranks, and are not")
