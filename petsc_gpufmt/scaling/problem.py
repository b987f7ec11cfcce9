"""The matrix of a prediction: what the choice of a format knows of it, and what each rank has of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import check_matrix, grid_and_block, stencil_steps
from petsc_gpufmt.choice.profile import Profile
from petsc_gpufmt.choice.sample import SECTOR_BYTES
from petsc_gpufmt.formats.common.known import NOTHING
from petsc_gpufmt.formats.pjds import FEW_ENTRIES
from petsc_gpufmt.scaling.partition import PatternRows, StencilRows
from petsc_gpufmt.tune.matrices import POWER_LAW, make_pattern

# A stencil of about so many entries is made to see its rows; a larger one has the same.
PROFILED_ENTRIES = 1_000_000
# A plane of more points takes too long to look at.
MOST_POINTS = 4096


@dataclass(frozen=True)
class Problem:
    """A matrix, or a stencil that grows with the ranks.

    Attributes
    ----------
    name : as it was asked for
    profile : of the whole matrix on one rank
    rows : which ranks share
    stencil : name, points in each direction and block size; None if the matrix is no stencil
    """

    name: str
    profile: Profile
    rows: PatternRows | StencilRows
    stencil: tuple[str, int, int] | None = None

    def grown(self, ranks: int) -> StencilRows:
        """As many planes for each rank as the whole has on one; BenchError if the matrix is no stencil."""
        if not self.stencil:
            raise BenchError(
                f"--weak with --matrix {self.name}: only a stencil grows with the ranks, such as 7point:200"
            )
        stencil, points, block_size = self.stencil
        return StencilRows(stencil, points * ranks, points, block_size)

    def alpha(self, scalar_bytes: int) -> float:
        """Share of the reads of x that go to memory, by the sample of the profile; 1 / N_nzr without one."""
        least = 1 / max(1.0, self.profile.mean)
        return min(1.0, max(least, self.profile.sectors * SECTOR_BYTES / scalar_bytes))


def make_problem(spec: str, backend: Backend) -> Problem:
    """What `spec` names: powerlaw:ROWS, or what `bench mult` takes; stencils may be larger than memory.

    Raises BenchError for a matrix that cannot be made.
    """
    grid = grid_and_block(spec)
    if grid is None:
        if not spec.startswith(f"{POWER_LAW}:"):
            check_matrix(spec, backend.index)
        csr = make_pattern(spec, backend)
        if not csr.nnz:
            raise BenchError(f"--matrix {spec}: there are no entries to multiply with; choose another matrix")
        rows = PatternRows(np.asarray(csr.rowptr), np.asarray(csr.colidx), (csr.nrows, csr.ncols))
        return Problem(spec, Profile.of(csr, backend), rows)
    stencil, points, block_size = grid
    if points > MOST_POINTS:
        raise BenchError(f"--matrix {spec}: choose up to {MOST_POINTS} grid points in each direction")
    entries = len(stencil_steps(stencil)) * block_size**2
    profiled = min(points, max(3, round((PROFILED_ENTRIES / entries) ** (1 / 3))))
    smaller = Profile.of(make_pattern(f"{stencil}:{profiled}x{block_size}", backend), backend)
    whole = StencilRows(stencil, points, points, block_size)
    profile = scaled(smaller, whole.nrows, whole.nrows, whole.nnz)
    padding = (profile.sliced_entries - whole.nnz) * profiled // points  # it is at the ends of lines
    profile = replace(profile, sliced_entries=whole.nnz + padding, sorted_entries=whole.nnz + padding)
    return Problem(spec, profile, whole, grid)


def scaled(profile: Profile, nrows: int, ncols: int, nnz: int) -> Profile:
    """The profile of a part, or of a larger matrix, whose rows are like those of `profile`."""
    of_rows, of_entries = nrows / max(1, profile.nrows), nnz / max(1, profile.nnz)
    return replace(
        profile,
        nrows=nrows,
        ncols=ncols,
        nnz=nnz,
        longest=min(profile.longest, nnz),
        empty_rows=round(of_rows * profile.empty_rows),
        sliced_entries=round(of_entries * profile.sliced_entries),
        sorted_entries=round(of_entries * profile.sorted_entries),
        long_rows=round(of_rows * profile.long_rows),
        lengths=tuple(round(of_rows * count) for count in profile.lengths),
        npatterns=profile.npatterns if nnz >= FEW_ENTRIES else 0,
        known=NOTHING,
    )
