"""The matrix HMEp of Kreutzer et al. 2012: the Holstein-Hubbard model of a ring, by exact diagonalization.

    H = -t sum_<ij>,s (c+_is c_js + h.c.) + U sum_i n_i,up n_i,down + w sum_m b+_m b_m
        - g w sum_m sum_i u_mi n_i (b+_m + b_m)

Electrons of both spins hop on a ring; phonons live in the modes u_m of the lattice but the uniform one, which the
number of electrons alone drives, and which is left out: five modes of six sites. With three electrons of each spin and
at most 15 phonons these are 20 * 20 * 15504 = 6,201,600 states. Electrons vary slowest: hopping is then what the paper
calls contiguous off-diagonals of length 15,000.

The paper does not say which orthonormal modes its matrix has; all of them describe the same solid, but they differ in
how many densities of electrons do not couple to a mode at all, and so in the non-zeros. FOURIER modes, cosines and
sines, have the most of such zeros; GENERAL ones the fewest: uniform densities couple to none, all others to each.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse

from petsc_gpufmt.bench.matrices import BenchMatrix, check_sizes

FOURIER, GENERAL = "Fourier", "general"
ZERO = 1e-9
HOPPING, REPULSION, COUPLING, FREQUENCY = 1.0, 4.0, 1.5, 0.5


@dataclass(frozen=True)
class HolsteinHubbard:
    """A ring of `sites`, half filled, with at most `phonons` phonons in the sites - 1 modes of the kind `modes`.

    Values are in units of the hopping: U = 4, w = 0.5, g = 1.5; they do not change the pattern.
    """

    sites: int = 6
    phonons: int = 15
    modes: str = GENERAL
    repulsion: float = REPULSION
    coupling: float = COUPLING

    @cached_property
    def spins(self) -> np.ndarray:
        """(configurations, sites) 0 or 1: electrons of one spin."""
        half = self.sites // 2
        return np.array([c for c in itertools.product((0, 1), repeat=self.sites) if sum(c) == half])

    @cached_property
    def phonon_states(self) -> np.ndarray:
        """(states, modes) numbers of phonons, in lexicographic order."""
        numbers = itertools.product(range(self.phonons + 1), repeat=self.sites - 1)
        return np.array([state for state in numbers if sum(state) <= self.phonons])

    @property
    def nrows(self) -> int:
        return len(self.spins) ** 2 * len(self.phonon_states)

    @cached_property
    def densities(self) -> np.ndarray:
        """(electron states, sites): electrons of both spins on each site; the state of spin down varies fastest."""
        return (self.spins[:, None, :] + self.spins[None, :, :]).reshape(-1, self.sites)

    @cached_property
    def couplings(self) -> np.ndarray:
        """(electron states, modes): sum over sites of u_mi n_i, exactly 0 where it vanishes."""
        found = self.densities @ self._modes().T
        return np.where(np.abs(found) < ZERO, 0.0, found)

    def _modes(self) -> np.ndarray:
        """(modes, sites), orthonormal, each orthogonal to the uniform one."""
        site, wave = np.arange(self.sites), 2 * np.pi * np.arange(1, self.sites // 2 + 1) / self.sites
        waves = [f(k * site) for k in wave for f in (np.cos, np.sin)][: self.sites - 1]
        if self.modes == GENERAL:  # the waves turned by as good as any rotation
            turned = np.linalg.qr(np.vander(1.0 + site[: self.sites - 1] / self.sites))[0]
            return turned @ np.array([wave / np.linalg.norm(wave) for wave in waves])
        return np.array([wave / np.linalg.norm(wave) for wave in waves])

    @cached_property
    def hopping(self) -> scipy.sparse.csr_matrix:
        """(electron states, electron states), with the signs of fermions."""
        number = {tuple(c): k for k, c in enumerate(self.spins)}
        rows, columns, values = [], [], []
        for here, left in itertools.product(range(len(self.spins)), range(self.sites)):
            right, there = (left + 1) % self.sites, self.spins[here].copy()
            if there[left] != there[right]:
                there[[left, right]] = there[[right, left]]
                passed = self.sites // 2 - 1 if right == 0 else 0  # around the ring, past all others
                rows.append(here), columns.append(number[tuple(there)]), values.append(-HOPPING * (-1) ** passed)
        n = len(self.spins)
        of_one = scipy.sparse.csr_matrix((values, (rows, columns)), (n, n))
        one = scipy.sparse.identity(n)
        both = scipy.sparse.csr_matrix(scipy.sparse.kron(of_one, one) + scipy.sparse.kron(one, of_one))
        both.sort_indices()
        return both

    def row_lengths(self) -> np.ndarray:
        """(nrows,) entries of each row: the diagonal, hops, and a phonon more or less in every mode that couples."""
        neighbours = (self.phonon_states > 0) + (self.phonon_states.sum(1) < self.phonons)[:, None].astype(int)
        phonons = (self.couplings != 0).astype(int) @ neighbours.T
        return (1 + np.diff(self.hopping.indptr)[:, None] + phonons).ravel()

    def matrix(self, scalar: np.dtype, index: np.dtype) -> BenchMatrix:
        """The matrix with its physical values; BenchError if it is beyond the indices or the memory."""
        lengths = self.row_lengths()
        nnz, nrows, nphonon = int(lengths.sum()), self.nrows, len(self.phonon_states)
        check_sizes("HMEp", nrows, nrows, nnz, index)
        rowptr = np.zeros(nrows + 1, dtype=index)
        np.cumsum(lengths, out=rowptr[1:])
        colidx, values = np.empty(nnz, dtype=index), np.empty(nnz, dtype=scalar)
        places, raised = self._phonon_neighbours()
        state, energy = np.arange(nphonon), FREQUENCY * self.phonon_states.sum(1)
        for electrons in range(len(self.densities)):
            hops = self.hopping[electrons]
            before = int((hops.indices < electrons).sum())
            columns = np.insert(places + electrons * nphonon, [0] * before, 0, axis=1)
            columns = np.pad(columns, ((0, 0), (0, hops.nnz - before)))
            entries, modes = np.empty(columns.shape), len(self.couplings[0])
            at_hops = [*range(before), *range(before + 2 * modes + 1, columns.shape[1])]
            columns[:, at_hops] = hops.indices * nphonon + state[:, None]
            entries[:, at_hops] = hops.data
            strength = -self.coupling * FREQUENCY * self.couplings[electrons]
            lower = np.arange(before, before + modes)
            entries[:, lower] = strength * np.sqrt(self.phonon_states)
            entries[:, lower[-1] + 1] = self.repulsion * (self.densities[electrons] == 2).sum() + energy
            entries[:, lower[-1] + 2 + np.arange(modes)] = (strength * np.sqrt(self.phonon_states + 1))[:, ::-1]
            kept = np.ones(columns.shape, dtype=bool)
            coupled = self.couplings[electrons] != 0
            kept[:, lower] = coupled & (self.phonon_states > 0)
            kept[:, lower[-1] + 2 + np.arange(modes)] = coupled[::-1] & raised[:, None]
            part = slice(rowptr[electrons * nphonon], rowptr[(electrons + 1) * nphonon])
            colidx[part], values[part] = columns[kept], entries[kept]
        matrix = scipy.sparse.csr_matrix((nrows, nrows), dtype=scalar)
        matrix.data, matrix.indices, matrix.indptr = values, colidx, rowptr  # the constructor would check every entry
        matrix.has_sorted_indices = matrix.has_canonical_format = True
        return BenchMatrix("HMEp", matrix)

    def _phonon_neighbours(self) -> tuple[np.ndarray, np.ndarray]:
        """(states, 2 modes + 1) states with one phonon less in mode 0, 1, ..., the state, one more in ..., 1, 0.

        They ascend; where there is none, the number means nothing. And (states,) whether one more is possible.
        """
        states, base = self.phonon_states, self.phonons + 2
        weights = base ** np.arange(states.shape[1])[::-1]
        keys = states @ weights
        less = [np.searchsorted(keys, keys - weight) for weight in weights]
        more = [np.searchsorted(keys, keys + weight) for weight in weights[::-1]]
        return np.stack([*less, np.arange(len(states)), *more], axis=1), states.sum(1) < self.phonons
