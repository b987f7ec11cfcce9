"""Linear elasticity in three dimensions: trilinear cubes on a grid of nodes, one face of which is held.

The matrix of a grid is made of those of its three directions: integrals over a cube are products of integrals over an
interval, and a sum over the cubes around a node is a product of sums over the intervals around its three coordinates.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from petsc_gpufmt.bench.matrices import blocked_pattern, stencil_pattern

BLOCK = 3
"""Displacements of a node along z, y and x, in this order."""

YOUNG, POISSON = 1.0, 0.25
LAME = YOUNG * POISSON / ((1 + POISSON) * (1 - 2 * POISSON))
SHEAR = YOUNG / (2 * (1 + POISSON))

STEPS = (-1, 0, 1)
MASS = np.array([[2, 1], [1, 2]]) / 6
STIFFNESS = np.array([[1.0, -1.0], [-1.0, 1.0]])
SLOPE = np.array([[-1.0, -1.0], [1.0, 1.0]]) / 2
"""Integrals over an interval of length 1 with the hat functions a and b of its ends: of a b, a' b' and a' b."""


class Direction(NamedTuple):
    """The nodes in one direction, each with itself and its two neighbours: all arrays are (nodes, 3)."""

    mass: np.ndarray
    stiffness: np.ndarray
    slope: np.ndarray
    slope_of_other: np.ndarray
    inside: np.ndarray

    @classmethod
    def of(cls, nodes: int, held: bool) -> Direction:
        """`nodes` in a row; with `held` another one before them, whose displacement is 0."""
        numbers = np.arange(nodes)
        inside = (numbers[:, None] + STEPS >= 0) & (numbers[:, None] + STEPS < nodes)
        before, behind = (numbers > 0) | held, numbers < nodes - 1  # there is an interval

        def bands(integrals: np.ndarray) -> np.ndarray:
            sums = np.zeros((nodes, 3))
            sums[:, 0:2] += before[:, None] * integrals[1]  # the node is the end of this interval
            sums[:, 1:3] += behind[:, None] * integrals[0]
            return sums

        return cls(bands(MASS), bands(STIFFNESS), bands(SLOPE), bands(SLOPE.T), inside)

    def of_row(self, rows: slice) -> Direction:
        return Direction(*(array[rows] for array in self))


def elasticity_pattern(nodes: int, index: np.dtype, planes: range) -> tuple[np.ndarray, np.ndarray]:
    """Row pointer and columns of the rows of `elasticity_values`: those of a 27-point stencil of 3 x 3 blocks."""
    return blocked_pattern(*stencil_pattern("27point", nodes, index, planes), BLOCK)


def elasticity_values(nodes: int, scalar: np.dtype, planes: range, held: bool = True) -> np.ndarray:
    """Entries of the rows of some planes of nodes^3 nodes, in the order of `elasticity_pattern`: (nnz,).

    The face below the first plane is held, and has no rows: then the matrix is positive definite. Else nothing is.
    """
    z, across = Direction.of(nodes, held), Direction.of(nodes, False)
    found = []
    for plane in planes:
        directions = (z.of_row(slice(plane, plane + 1)), across, across)
        inside = _products([direction.inside for direction in directions])
        blocks = _blocks(directions).reshape(nodes**2, BLOCK, 27, BLOCK)
        chosen = np.broadcast_to(inside.reshape(nodes**2, 1, 27, 1), blocks.shape)
        found.append(blocks[chosen].astype(scalar))
    return np.concatenate(found) if found else np.empty(0, dtype=scalar)


def _products(factors: list[np.ndarray]) -> np.ndarray:
    """For nodes of a plane and their neighbours, products of what belongs to each direction: (ny, nx, 3, 3, 3)."""
    of_z, of_y, of_x = factors
    return of_z[0][None, None, :, None, None] * of_y[:, None, None, :, None] * of_x[None, :, None, None, :]


def _blocks(directions: tuple[Direction, ...]) -> np.ndarray:
    """LAME div u div v + 2 SHEAR e(u) : e(v) for the nodes of a plane: (ny, nx, 3 of v, 3, 3, 3 steps, 3 of u)."""
    gradients = {}  # (i, j) -> integrals of the i-th derivative of v and the j-th of u
    for i, j in itertools.product(range(BLOCK), repeat=2):
        factors = [direction.mass for direction in directions]
        if i == j:
            factors[i] = directions[i].stiffness
        else:
            factors[i], factors[j] = directions[i].slope, directions[j].slope_of_other
        gradients[i, j] = _products(factors)
    laplacian = gradients[0, 0] + gradients[1, 1] + gradients[2, 2]
    blocks = np.empty((*laplacian.shape[:2], BLOCK, *laplacian.shape[2:], BLOCK))
    for i, j in gradients:
        blocks[:, :, i, :, :, :, j] = LAME * gradients[i, j] + SHEAR * gradients[j, i] + (i == j) * SHEAR * laplacian
    return blocks
