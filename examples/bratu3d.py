"""The 3-D Bratu problem of PETSc's SNES tutorial ex14, in petsc4py.

Solves -div(grad u) = lambda exp(u) in the unit cube, u = 0 on its surface, by seven-point differences on a DMDA and
Newton's method. Options: -par <lambda, default 6>, -da_grid_x/_y/_z <points, default 32> and every option of PETSc:

    mpiexec -n 2 python bratu3d.py -da_grid_x 64 -da_grid_y 64 -da_grid_z 64 -dm_mat_type pjds -ksp_type cg -log_view

Vectors are of the type that the matrix asks for, unless -dm_vec_type names one. On a GPU nothing leaves it: residual
and Jacobian are computed by CuPy where the vectors are, and the matrix takes its pattern and its values from
coordinates there.
"""

import contextlib
import sys

import numpy as np
import petsc4py

petsc4py.init(sys.argv)

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402  (registers the matrix types)
from petsc_gpufmt.device_arrays import array_module, vector_array  # noqa: E402

LAMBDA_MAX = 6.81  # the problem has no solution beyond
NEIGHBOURS = tuple((axis, step) for axis in range(3) for step in (-1, 1))  # before and after a point, along z, y, x


class Patch:
    """The part of the grid owned by this rank, in a ghosted local array indexed [z, y, x].

    ``owned`` selects the owned points there, and ``interior`` those of them that are not on the surface of the cube;
    ``inner`` selects the same ones in an array of the owned points alone.
    """

    def __init__(self, da):
        self.sizes = np.array(da.getSizes()[::-1])
        starts, widths = (np.array(corner[::-1]) for corner in da.getCorners())
        ghost_starts, ghost_widths = (np.array(corner[::-1]) for corner in da.getGhostCorners())
        self.shape, self.owned_shape = tuple(ghost_widths), tuple(widths)
        first, last = starts - ghost_starts, starts + widths - ghost_starts
        self.owned = boxes(first, last)
        inside = np.maximum(first, 1 - ghost_starts)
        outside = np.maximum(np.minimum(last, self.sizes - 1 - ghost_starts), inside)
        self.interior = boxes(inside, outside)
        self.inner = boxes(inside - first, outside - first)


def boxes(first, last):
    return tuple(slice(a, b) for a, b in zip(first, last, strict=True))


def moved(box, axis, step):
    """The box of the neighbours along an axis."""
    return *box[:axis], slice(box[axis].start + step, box[axis].stop + step), *box[axis + 1 :]


class Bratu:
    """Residual and Jacobian, both multiplied by the volume of a grid cell as in ex14.

    The DM is asked of the solver at each call, so that coarser grids of multigrid work too.
    """

    def __init__(self, parameter):
        self.parameter = parameter

    def coefficients(self, patch):
        """Weights of the second differences along z, y, x, and of the exponential.

        They are Python's floats: to multiply an array by a number of NumPy, CuPy would import SciPy, for 0.3 s.
        """
        spacing = 1.0 / (patch.sizes - 1)
        volume = float(spacing.prod())
        return (volume / spacing**2).tolist(), volume * self.parameter

    def residual(self, snes, x, f):
        da = snes.getDM()
        patch = Patch(da)
        weights, source = self.coefficients(patch)
        with ghosted_values(da, x, patch) as u, vector_array(f, "w") as values:
            xp, result, centre = array_module(u), values.reshape(patch.owned_shape), u[patch.interior]
            result[...] = u[patch.owned]
            inside = result[patch.inner]
            inside[...] = -source * xp.exp(centre)
            for axis, weight in enumerate(weights):
                before, after = (u[moved(patch.interior, axis, step)] for step in (-1, 1))
                inside += weight * (2.0 * centre - before - after)

    def jacobian(self, snes, x, operator, matrix):
        """The pattern is made once for a matrix."""
        da = snes.getDM()
        patch = Patch(da)
        weights, source = self.coefficients(patch)
        with ghosted_values(da, x, patch) as u:
            xp = array_module(u)
            if not matrix.getAttr("coordinates"):
                set_coordinates(matrix, *coordinates(da, patch, xp))
                matrix.setAttr("coordinates", True)
            values = xp.zeros((1 + len(NEIGHBOURS), *patch.owned_shape), PETSc.ScalarType)
            values[0] = 1.0
            for value, (axis, _) in zip(values[1:], NEIGHBOURS, strict=True):
                value[patch.inner] = -weights[axis]
            values[0][patch.inner] = 2.0 * sum(weights) - source * xp.exp(u[patch.interior])
        set_values(matrix, values.ravel())
        if operator != matrix:
            operator.assemble()


@contextlib.contextmanager
def ghosted_values(da, x, patch):
    """The owned and ghost values of x, to be read, indexed [z, y, x]."""
    local = da.getLocalVec()
    da.globalToLocal(x, local)
    with vector_array(local, "r") as values:
        yield values.reshape(patch.shape)
    da.restoreLocalVec(local)


def coordinates(da, patch, xp):
    """Rows and columns of the entries: the diagonal, then all neighbours on one side after the other.

    Points on the surface have neighbours too, with the value zero: so the pattern is symmetric. Where the grid ends,
    the column is -1, which leaves the entry out.
    """
    index = xp.asarray(da.getLGMap().getIndices()).reshape(patch.shape)
    around = xp.pad(index, 1, constant_values=-1)
    box = boxes(*np.array([(owned.start + 1, owned.stop + 1) for owned in patch.owned]).T)
    rows, columns = xp.empty((2, 1 + len(NEIGHBOURS), *patch.owned_shape), PETSc.IntType)
    rows[...] = columns[0] = index[patch.owned]
    for column, (axis, step) in zip(columns[1:], NEIGHBOURS, strict=True):
        column[...] = around[moved(box, axis, step)]
    return rows.ravel(), columns.ravel()


def on_host(array):
    return array if isinstance(array, np.ndarray) else array.get()


def takes_device_arrays(matrix, array):
    """Whether the array is on a device, and the matrix of a type of this package: petsc4py takes arrays of the host."""
    root = matrix.getType().removeprefix("seq").removeprefix("mpi")
    return not isinstance(array, np.ndarray) and root not in ("aij", "aijcusparse", "aijkokkos")


def set_coordinates(matrix, rows, columns):
    if takes_device_arrays(matrix, rows):
        petsc_gpufmt.set_preallocation_coo(matrix, rows, columns)
    else:
        matrix.setPreallocationCOO(on_host(rows), on_host(columns))


def set_values(matrix, values):
    if takes_device_arrays(matrix, values):
        petsc_gpufmt.set_values_coo(matrix, values)
    else:
        matrix.setValuesCOO(on_host(values))


def make_jacobian(da):
    """A matrix without a pattern: from coordinates it is known sooner than DMCreateMatrix() finds it on the host."""
    owned = int(np.prod(da.getCorners()[1]))
    matrix = PETSc.Mat().create(da.getComm())
    matrix.setSizes([(owned, None)] * 2)
    matrix.setType(PETSc.Options().getString("dm_mat_type", "aij"))
    matrix.setFromOptions()
    return matrix


def initial_guess(da, x, parameter):
    """The guess of ex14: a multiple of the square root of the distance to the surface."""
    patch, guesses = Patch(da), []
    for (start, stop), size in zip(da.getRanges()[::-1], patch.sizes, strict=True):
        points = np.arange(start, stop)
        distances = np.minimum(points, size - 1 - points) / (size - 1)
        guesses.append(parameter / (parameter + 1.0) * np.sqrt(distances))
    with vector_array(x, "w") as values:
        xp = array_module(values)
        along_z, along_y, along_x = (xp.asarray(guess) for guess in np.ix_(*guesses))
        values.reshape(patch.owned_shape)[...] = xp.minimum(xp.minimum(along_z, along_y), along_x)


def stop(message):
    """End all ranks with status 1, with one line from the first of them."""
    sys.exit(f"bratu3d: {message}" if PETSc.COMM_WORLD.rank == 0 else 1)


def reason_name(reason):
    names = {value: name for name, value in vars(PETSc.SNES.ConvergedReason).items() if isinstance(value, int)}
    return names.get(reason, str(reason))


def main():
    parameter = PETSc.Options().getReal("par", 6.0)
    if not 0.0 < parameter < LAMBDA_MAX:
        stop(f"-par {parameter:g} is out of range: choose lambda between 0 and {LAMBDA_MAX}, both excluded")

    da = PETSc.DMDA().create(dim=3, dof=1, sizes=(32, 32, 32), stencil_type="star", stencil_width=1, setup=False)
    da.setFromOptions()
    da.setUp()
    if min(da.getSizes()) < 2:
        stop(f"the grid is {da.getSizes()}: -da_grid_x, _y and _z must be at least 2")

    problem = Bratu(parameter)
    snes = PETSc.SNES().create()
    snes.setDM(da)
    snes.setFunction(problem.residual)
    colored = PETSc.Options().getBool("snes_fd_color", False)  # needs a pattern before the first Jacobian
    matrix = da.createMat() if colored else make_jacobian(da)
    if not PETSc.Options().hasName("dm_vec_type"):
        da.setVecType(matrix.getVecType())
    snes.setJacobian(problem.jacobian, matrix, matrix)
    snes.setFromOptions()

    x = da.createGlobalVec()
    initial_guess(da, x, parameter)
    snes.solve(None, x)

    # -snes_grid_sequence solves on finer grids and leaves the solution in the solver
    x = snes.getSolution()
    residual = x.duplicate()
    snes.computeFunction(x, residual)
    show = PETSc.Sys.Print
    grid = " x ".join(str(size) for size in snes.getDM().getSizes())
    types = f"matrix type {snes.getJacobian()[1].getType()}, vector type {x.getType()}"
    show(f"Bratu 3-D: lambda {parameter:g}, grid {grid}, MPI ranks {PETSc.COMM_WORLD.size}, {types}")
    show(f"Newton iterations {snes.getIterationNumber()}, linear iterations {snes.getLinearSolveIterations()}")
    show(f"converged reason {reason_name(snes.getConvergedReason())}, residual norm {residual.norm():.6e}")
    show(f"solution min {x.min()[1]:.12g}, max {x.max()[1]:.12g}")
    return 0 if snes.getConvergedReason() > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
