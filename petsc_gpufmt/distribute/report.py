"""How even a distribution is: rows, non-zeros and halo of each rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.distribute.own_rows import check_matrix, own_rows
from petsc_gpufmt.distribute.ranks import from_all


@dataclass(frozen=True)
class Balance:
    """What each rank has, known on all ranks.

    Attributes
    ----------
    rows, nonzeros : (size,) int64
    halo : (size,) int64 or None
        Entries of x that a rank needs and another has, each counted once; None: columns were not given.
    """

    rows: np.ndarray
    nonzeros: np.ndarray
    halo: np.ndarray | None

    def largest_over_mean(self, what: str) -> float:
        """Of "rows", "nonzeros" or "halo": what the rank that has most has, over the mean; 1 if none has any.

        Raises ValueError for the halo where it is not known.
        """
        counts = getattr(self, what)
        if counts is None:
            raise ValueError("the halo is not known: the lengths of rows were given, and no columns")
        return float(counts.max() / counts.mean()) if counts.any() else 1.0

    def __str__(self) -> str:
        lines = []
        for what, name in (("rows", "rows"), ("nonzeros", "non-zeros"), ("halo", "halo entries")):
            counts = getattr(self, what)
            if counts is not None:
                ratio = self.largest_over_mean(what)
                lines.append(f"{name}: {counts.min()} to {counts.max()} a rank, the largest {ratio:.2f} of the mean")
        return "\n".join(lines)


def balance(matrix: Any) -> Balance:
    """How evenly a matrix lies on its ranks. Collective.

    Parameters
    ----------
    matrix : petsc4py.PETSc.Mat of type aij or one of its kinds, assembled

    Raises DistributionError, on all ranks, for another matrix.
    """
    check_matrix(matrix)
    rowptr, colidx = own_rows(matrix)
    first, last = matrix.getOwnershipRangeColumn()
    outside = np.unique(colidx[(colidx < first) | (colidx >= last)])
    counts = from_all([rowptr.size - 1, colidx.size, outside.size], matrix.getComm()).astype(np.int64)
    return Balance(*counts.reshape(-1, 3).T.copy())


def halo_sizes(owners: np.ndarray, columns: np.ndarray, column_owners: np.ndarray, comm: Any) -> np.ndarray:
    """Halo entries of each rank if rows were dealt out anew: (size,) int64. Collective.

    Entry k of this rank goes to rank owners[k], and has column columns[k]; column j goes to rank column_owners[j].
    Several ranks may have entries of a column for one and the same: a matrix with a row for each rank tells them once.
    """
    from petsc4py import PETSc

    size, ncolumns = comm.getSize(), column_owners.size
    outside = column_owners[columns] != owners
    pairs = np.unique(owners[outside].astype(np.int64) * ncolumns + columns[outside])
    needed = PETSc.Mat().create(comm)
    needed.setSizes(((1, size), (None, ncolumns)))
    needed.setType(PETSc.Mat.Type.AIJ)
    ranks, numbers = np.divmod(pairs, max(ncolumns, 1))
    needed.setPreallocationCOO(ranks.astype(PETSc.IntType), numbers.astype(PETSc.IntType))
    needed.setValuesCOO(np.zeros(pairs.size, dtype=PETSc.ScalarType))
    counts = from_all([needed.getRow(comm.getRank())[0].size], comm)
    needed.destroy()
    return counts.astype(np.int64)
