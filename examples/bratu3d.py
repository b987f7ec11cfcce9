"""The 3-D Bratu problem of PETSc's SNES tutorial ex14, in petsc4py.

Solves -div(grad u) = lambda exp(u) in the unit cube, u = 0 on its surface, by seven-point differences on a DMDA and
Newton's method. Options: -par <lambda, default 6>, -da_grid_x/_y/_z <points, default 32> and every option of PETSc:

    mpiexec -n 2 python bratu3d.py -da_grid_x 64 -da_grid_y 64 -da_grid_z 64 -dm_mat_type pjds -ksp_type cg -log_view

With -dm_vec_type cuda nothing leaves the device: residual and Jacobian are computed by CuPy where the vectors are, and
the matrix takes its pattern and its values from coordinates there.
"""

import contextlib
import sys

import numpy as np
import petsc4py

petsc4py.init(sys.argv)

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402  (registers the matrix types)

LAMBDA_MAX = 6.81  # the problem has no solution beyond
BEFORE_AND_AFTER = (-1, 1)  # steps to the neighbours along an axis


class Patch:
    """The part of the grid owned by this rank, in a ghosted local array indexed [z, y, x].

    ``owned`` selects the owned points and ``interior`` those of them that are not on the surface of the cube.
    """

    def __init__(self, da):
        self.sizes = np.array(da.getSizes()[::-1])
        starts, widths = (np.array(corner[::-1]) for corner in da.getCorners())
        ghost_starts, ghost_widths = (np.array(corner[::-1]) for corner in da.getGhostCorners())
        self.shape = tuple(ghost_widths)
        first, last = starts - ghost_starts, starts + widths - ghost_starts
        self.owned = tuple(slice(a, b) for a, b in zip(first, last, strict=True))
        first = np.maximum(first, 1 - ghost_starts)
        last = np.maximum(np.minimum(last, self.sizes - 1 - ghost_starts), first)
        self.interior = tuple(slice(a, b) for a, b in zip(first, last, strict=True))

    def neighbours(self, array, axis):
        """The values before and after the interior points along an axis."""
        for step in BEFORE_AND_AFTER:
            box = list(self.interior)
            box[axis] = slice(box[axis].start + step, box[axis].stop + step)
            yield array[tuple(box)]


class Bratu:
    """Residual and Jacobian, both multiplied by the volume of a grid cell as in ex14.

    The DM is asked of the solver at each call, so that coarser grids of multigrid work too.
    """

    def __init__(self, parameter):
        self.parameter = parameter

    def coefficients(self, patch):
        """Weights of the second differences along z, y, x, and of the exponential."""
        spacing = 1.0 / (patch.sizes - 1)
        volume = spacing.prod()
        return volume / spacing**2, volume * self.parameter

    def residual(self, snes, x, f):
        da = snes.getDM()
        patch = Patch(da)
        weights, source = self.coefficients(patch)
        u = ghosted_values(da, x, patch)
        result = u.copy()
        centre = u[patch.interior]
        inside = -source * array_module(x).exp(centre)
        for axis, weight in enumerate(weights):
            inside += weight * (2.0 * centre - sum(patch.neighbours(u, axis)))
        result[patch.interior] = inside
        with array_of(f, "w") as values:
            values[:] = result[patch.owned].ravel()

    def jacobian(self, snes, x, operator, matrix):
        da = snes.getDM()
        patch = Patch(da)
        weights, source = self.coefficients(patch)
        xp = array_module(x)
        if matrix.getAttr("coo") is None:
            set_coordinates(matrix, *coordinates(da, patch, xp))
            matrix.setAttr("coo", True)
        u = ghosted_values(da, x, patch)
        diagonal = xp.ones_like(u)
        diagonal[patch.interior] = 2.0 * weights.sum() - source * xp.exp(u[patch.interior])
        interior = xp.zeros_like(u)
        interior[patch.interior] = 1.0
        interior = interior[patch.owned].ravel()
        others = [-weight * interior for weight in weights for _ in BEFORE_AND_AFTER]
        set_values(matrix, xp.concatenate([diagonal[patch.owned].ravel(), *others]))
        if operator != matrix:
            operator.assemble()


def array_module(x):
    """CuPy for vectors on a device, else NumPy."""
    if "cuda" not in x.getType():
        return np
    import cupy

    return cupy


@contextlib.contextmanager
def array_of(x, mode):
    """The local values of a vector, where they are, to be read ("r") or written ("w")."""
    if "cuda" not in x.getType():
        yield x.getArray(readonly=mode == "r")
        return
    cupy = array_module(x)
    pointer = x.getCUDAHandle(mode)
    memory = cupy.cuda.UnownedMemory(pointer, x.getLocalSize() * PETSc.ScalarType().itemsize, x)
    cupy.cuda.Device().synchronize()  # PETSc and CuPy may work on different streams
    yield cupy.ndarray(x.getLocalSize(), PETSc.ScalarType, cupy.cuda.MemoryPointer(memory, 0))
    cupy.cuda.Device().synchronize()
    x.restoreCUDAHandle(pointer, mode)


def ghosted_values(da, x, patch):
    """A copy of the owned and ghost values of x, indexed [z, y, x]."""
    local = da.getLocalVec()
    da.globalToLocal(x, local)
    with array_of(local, "r") as values:
        copy = values.reshape(patch.shape).copy()
    da.restoreLocalVec(local)
    return copy


def coordinates(da, patch, xp):
    """Row and column of each entry: the diagonal, then the neighbours before and after each owned point, axis by axis.

    Points on the surface have neighbours too, with the value zero: so the pattern is symmetric. Where the grid ends,
    the column is -1, which leaves the entry out.
    """
    index = xp.asarray(da.getLGMap().getIndices()).reshape(patch.shape)
    around = xp.pad(index, 1, constant_values=-1)
    row = index[patch.owned].ravel()
    columns = [row]
    for axis in range(3):
        for step in BEFORE_AND_AFTER:
            box = [slice(owned.start + 1, owned.stop + 1) for owned in patch.owned]
            box[axis] = slice(box[axis].start + step, box[axis].stop + step)
            columns.append(around[tuple(box)].ravel())
    return xp.concatenate([row] * len(columns)), xp.concatenate(columns)


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
    x = da.getGlobalVec()
    matrix = PETSc.Mat().create(da.getComm())
    matrix.setSizes([x.getSizes()] * 2)
    da.restoreGlobalVec(x)
    matrix.setType(PETSc.Options().getString("dm_mat_type", "aij"))
    matrix.setFromOptions()
    return matrix


def initial_guess(da, x, parameter):
    """The guess of ex14: a multiple of the square root of the distance to the surface."""
    xp, patch, distances = array_module(x), Patch(da), []
    for (start, stop), size in zip(da.getRanges()[::-1], patch.sizes, strict=True):
        points = xp.arange(start, stop)
        distances.append(xp.minimum(points, size - 1 - points) / (size - 1))
    z, y, x_ = xp.ix_(*distances)
    with array_of(x, "w") as values:
        values[:] = (parameter / (parameter + 1.0) * xp.sqrt(xp.minimum(xp.minimum(z, y), x_))).ravel()


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
    matrix_type = snes.getJacobian()[1].getType()
    show(f"Bratu 3-D: lambda {parameter:g}, grid {grid}, MPI ranks {PETSc.COMM_WORLD.size}, matrix type {matrix_type}")
    show(f"Newton iterations {snes.getIterationNumber()}, linear iterations {snes.getLinearSolveIterations()}")
    show(f"converged reason {reason_name(snes.getConvergedReason())}, residual norm {residual.norm():.6e}")
    show(f"solution min {x.min()[1]:.12g}, max {x.max()[1]:.12g}")
    return 0 if snes.getConvergedReason() > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
