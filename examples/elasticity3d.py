"""Linear elasticity in three dimensions, as in PETSc's KSP tutorial ex56, in petsc4py: 3 x 3 blocks for GAMG.

A unit cube of trilinear hexahedra with a soft ball in its middle stands clamped on one face and carries its own
weight. The rigid body modes are the near-null space that GAMG builds its prolongators from. The problem is solved
twice, the second time with another stiffness of the ball: new values in the same pattern, so with
-pc_gamg_reuse_interpolation the coarse matrices take the numeric phase of their products alone. Options:
-ne <elements along an edge, default 10>, -alpha <stiffness of the ball relative to the rest, default 1e-3> and every
option of PETSc:

    mpiexec -n 2 python elasticity3d.py -ne 30 -dm_mat_type pjds -mg_levels_pc_type jacobi -log_view
"""

import itertools
import sys

import numpy as np
import petsc4py

petsc4py.init(sys.argv)

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401  (registers the matrix types, the only line that concerns them)

POISSON_RATIO = 0.25
BALL_RADIUS = 0.25
CORNERS = np.array(list(itertools.product((0, 1), repeat=3)))  # of an element, indexed [corner, axis]; axes are z, y, x


def element_stiffness(edge):
    """Stiffness of a cube of Young's modulus 1 by 2 x 2 x 2 Gauss points, indexed [corner, corner, axis, axis]."""
    shear = 0.5 / (1.0 + POISSON_RATIO)
    lame = POISSON_RATIO / ((1.0 + POISSON_RATIO) * (1.0 - 2.0 * POISSON_RATIO))
    stiffness = np.zeros((8, 8, 3, 3))
    signs = 2.0 * CORNERS - 1.0
    for point in signs / np.sqrt(3.0):
        factors = (1.0 + signs * point) / 2.0  # of the shape functions, along each axis
        gradients = np.empty((8, 3))
        for axis in range(3):
            others = [k for k in range(3) if k != axis]
            gradients[:, axis] = signs[:, axis] / edge * factors[:, others].prod(axis=1)
        gradients = gradients[:, ::-1]  # displacements are ordered x, y, z
        outer = np.einsum("ai,bj->abij", gradients, gradients)
        trace = np.einsum("abii->ab", outer)
        stiffness += lame * outer + shear * (outer.transpose(0, 1, 3, 2) + trace[..., None, None] * np.eye(3))
    return stiffness * (edge / 2.0) ** 3


def over_axes(combine, along):
    """One array of three axes from one array along each of them."""
    z, y, x = along
    return combine(combine(z[:, None, None], y[:, None]), x)


class Cube:
    """The owned nodes of this rank, and the matrix entries in their rows.

    A node is coupled to 27 nodes, itself included; nodes on the clamped face z = 0 to themselves alone.
    """

    def __init__(self, da):
        self.da = da
        self.elements = da.getSizes()[0] - 1
        starts, widths = (np.array(corner[::-1]) for corner in da.getCorners())
        self.nodes = [np.arange(start, start + width) for start, width in zip(starts, widths, strict=True)]
        self.shape = tuple(widths)
        self.offsets = list(itertools.product((-1, 0, 1), repeat=3))
        self.exists = np.stack([self.coupled(offset) for offset in self.offsets], axis=-1)

    def coupled(self, offset):
        """Whether the node at an offset from each owned node has an entry in its row."""
        numbers = [nodes + step for nodes, step in zip(self.nodes, offset, strict=True)]
        inside = [(n >= 0) & (n <= self.elements) for n in numbers]
        coupled = over_axes(np.logical_and, inside)
        if any(offset):
            free = (self.nodes[0] > 0) & (numbers[0] > 0)
            coupled = coupled & free[:, None, None]
        return coupled

    def coordinates(self):
        """Rows and columns of all entries: node by node, neighbour by neighbour, block by block."""
        ghost_start = np.array(self.da.getGhostCorners()[0][::-1])
        ghost_shape = self.da.getGhostCorners()[1][::-1]
        index = self.da.getLGMap().getBlockIndices().reshape(ghost_shape)
        first = [nodes - start for nodes, start in zip(self.nodes, ghost_start, strict=True)]
        own = index[np.ix_(*first)]
        rows = np.broadcast_to(own[..., None], self.exists.shape)[self.exists]
        columns = np.zeros(self.exists.shape, dtype=PETSc.IntType)
        for k, offset in enumerate(self.offsets):
            places = [(f + step).clip(0, size - 1) for f, step, size in zip(first, offset, ghost_shape, strict=True)]
            columns[..., k] = index[np.ix_(*places)]
        columns = columns[self.exists]
        within = np.arange(3, dtype=PETSc.IntType)
        shape = (rows.size, 3, 3)
        return (
            np.broadcast_to(3 * rows[:, None, None] + within[:, None], shape).ravel(),
            np.broadcast_to(3 * columns[:, None, None] + within, shape).ravel(),
        )

    def modulus(self, element, alpha):
        """Young's modulus of the elements at an offset (0 or -1) from the owned nodes, 0 outside of the cube."""
        numbers = [nodes + step for nodes, step in zip(self.nodes, element, strict=True)]
        distance = over_axes(np.add, [((n + 0.5) / self.elements - 0.5) ** 2 for n in numbers])
        inside = over_axes(np.logical_and, [(n >= 0) & (n < self.elements) for n in numbers])
        return np.where(inside, np.where(distance < BALL_RADIUS**2, alpha, 1.0), 0.0)

    def values(self, alpha):
        """Values of all entries, in the order of coordinates()."""
        stiffness = element_stiffness(1.0 / self.elements)
        blocks = np.zeros((*self.exists.shape, 3, 3))
        for row, row_corner in enumerate(CORNERS):
            modulus = self.modulus(-row_corner, alpha)[..., None, None]
            for column, column_corner in enumerate(CORNERS):
                k = self.offsets.index(tuple(column_corner - row_corner))
                blocks[..., k, :, :] += modulus * stiffness[row, column]
        clamped = self.nodes[0] == 0
        blocks[clamped, ..., self.offsets.index((0, 0, 0)), :, :] = np.eye(3) / self.elements
        return blocks[self.exists].ravel()

    def weight(self):
        """The load vector: each free node carries its part of the cube's weight, along -z."""
        vector = self.da.createGlobalVec()
        load = np.zeros((*self.shape, 3))
        parts = [np.where((nodes == 0) | (nodes == self.elements), 0.5, 1.0) / self.elements for nodes in self.nodes]
        load[..., 2] = -over_axes(np.multiply, parts)
        load[self.nodes[0] == 0] = 0.0
        vector.setArray(load.ravel())
        return vector


def create_matrix(da, cube):
    """The matrix of the DM's type with its pattern and near-null space, without values."""
    matrix = da.createMat()
    matrix.setPreallocationCOO(*cube.coordinates())
    matrix.setOption(PETSc.Mat.Option.SPD, True)
    da.setUniformCoordinates(0.0, 1.0, 0.0, 1.0, 0.0, 1.0)
    matrix.setNearNullSpace(PETSc.NullSpace().createRigidBody(da.getCoordinates()))
    return matrix


def create_grid(elements):
    nodes = elements + 1
    da = PETSc.DMDA().create(dim=3, dof=3, sizes=(nodes,) * 3, stencil_type="box", stencil_width=1, setup=False)
    da.setMatType("aij")
    da.setFromOptions()
    da.setUp()
    return da


def stop(message):
    """End all ranks with status 1, with one line from the first of them."""
    sys.exit(f"elasticity3d: {message}" if PETSc.COMM_WORLD.rank == 0 else 1)


def main():
    options = PETSc.Options()
    elements, alpha = options.getInt("ne", 10), options.getReal("alpha", 1e-3)
    if elements < 2:
        stop(f"-ne {elements} is out of range: an edge needs at least 2 elements")
    if alpha <= 0.0:
        stop(f"-alpha {alpha:g} is out of range: the stiffness of the ball must be positive")

    da = create_grid(elements)
    cube = Cube(da)
    matrix = create_matrix(da, cube)
    ksp = PETSc.KSP().create()
    ksp.setType("cg")
    ksp.getPC().setType("gamg")
    ksp.setTolerances(rtol=1e-8)
    ksp.setFromOptions()
    b = cube.weight()
    x = b.duplicate()
    show = PETSc.Sys.Print
    show(f"Elasticity 3-D: {elements}^3 elements, MPI ranks {PETSc.COMM_WORLD.size}, matrix type {matrix.getType()}")
    for stiffness in (alpha, 10.0 * alpha):
        matrix.setValuesCOO(cube.values(stiffness))
        ksp.setOperators(matrix)
        ksp.solve(b, x)
        lowest = x.strideMin(2)[1]
        iterations, reason = ksp.getIterationNumber(), ksp.getConvergedReason()
        show(f"ball {stiffness:g}: iterations {iterations}, reason {reason}, lowest displacement {lowest:.10g}")
        if reason <= 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
