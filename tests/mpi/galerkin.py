"""GAMG with our type beside aij: coarse matrices, iterations, solutions; set up anew, and with new values.

A scalar problem with jumps, seven points a row as the Bratu problem has, and elasticity with blocks of 3 and a
near-null space. The hierarchies of two runs are not compared with each other: the rigid body modes of two nodes are
linearly dependent, and what GAMG's orthogonalisation makes of them is rounding, and on several ranks aggregates are
others. So each product is compared with
PETSc's of the same operands.
"""

import sys
from pathlib import Path

import numpy as np
from dense import COMM, FORMAT, TYPE, random_vector, scalars
from petsc4py import PETSc

sys.path.append(str(Path(__file__).parents[2] / "examples"))

import elasticity3d  # noqa: E402

ALGORITHM_OPTIONS = ("matmatmult_via", "matptap_via")
EPS = np.finfo(PETSc.RealType).eps
JACOBI = {"mg_levels_pc_type": "jacobi", "mg_levels_ksp_type": "chebyshev", "pc_gamg_coarse_eq_limit": 20}
CASES = {
    "anew": {},
    "interpolation kept": {"pc_gamg_reuse_interpolation": "true"},
    "unsmoothed": {"pc_gamg_agg_nsmooths": 0},
    "no square graph": {"pc_gamg_aggressive_coarsening": 0, "pc_gamg_threshold": 0.02},
    "coarse grids on few ranks": {"pc_gamg_process_eq_limit": 100, "pc_gamg_reuse_interpolation": "true"},
}


class Scalar:
    """Seven-point differences of a diffusion with jumps on a cube."""

    name, shape = "scalar", (9, 8, 7)

    def __init__(self, matrix_type):
        self.da = PETSc.DMDA().create(dim=3, dof=1, sizes=self.shape, stencil_type="star", stencil_width=1, setup=False)
        self.da.setMatType(matrix_type)
        self.da.setUp()
        self.matrix = self.da.createMat()

    def set_values(self, step):
        """The diagonal changes with the step, as from Newton step to Newton step."""
        row, column = PETSc.Mat.Stencil(), PETSc.Mat.Stencil()
        ranges = self.da.getRanges()
        for k in range(*ranges[2]):
            for j in range(*ranges[1]):
                for i in range(*ranges[0]):
                    row.index = (i, j, k)
                    total = 0.0
                    for offset in ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)):
                        near = (i + offset[0], j + offset[1], k + offset[2])
                        weight = 100.0 if min(i, near[0]) > 4 else 1.0
                        total += weight
                        if all(0 <= n < size for n, size in zip(near, self.shape, strict=True)):
                            column.index = near
                            self.matrix.setValueStencil(row, column, -weight)
                    self.matrix.setValueStencil(row, row, total - 0.02 * (step + 1))
        self.matrix.assemble()


class Elasticity:
    """The cube of examples/elasticity3d.py: its ball is stiffer in each step."""

    name = "elasticity"

    def __init__(self, matrix_type):
        self.da = elasticity3d.create_grid(5)
        self.da.setMatType(matrix_type)
        self.cube = elasticity3d.Cube(self.da)
        self.matrix = elasticity3d.create_matrix(self.da, self.cube)

    def set_values(self, step):
        self.matrix.setValuesCOO(scalars(self.cube.values(10.0 ** (step - 2))))


def hierarchy(pc):
    """Operators and prolongators from the finest level down."""
    levels = pc.getMGLevels()
    operators = [pc.getMGSmoother(level).getOperators()[1] for level in range(levels - 1, 0, -1)]
    operators.append(pc.getMGCoarseSolve().getOperators()[1])
    return operators, [pc.getMGInterpolation(level) for level in range(levels - 1, 0, -1)]


def check_products(pc, what):
    """Each coarse matrix is what PETSc's own algorithm makes of the finer one and the prolongator."""
    operators, prolongators = hierarchy(pc)
    assert len(operators) > 1, f"{what}: one level only"
    for A in (*operators, *prolongators):
        assert A.getType().endswith(f"aij{FORMAT}"), f"{what}: a level of type {A.getType()}"
    choose_algorithm(None)
    for level, (A, P, coarse) in enumerate(zip(operators, prolongators, operators[1:], strict=False)):
        A, P, coarse = (matrix.copy().convert("aij") for matrix in (A, P, coarse))
        expected = A.ptap(P)
        largest = expected.norm(PETSc.NormType.INFINITY)
        expected.axpy(-1.0, coarse, PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)
        error = expected.norm(PETSc.NormType.INFINITY)
        assert error <= 1e4 * EPS * largest, f"{what}: coarse matrix {level} is off by {error} of {largest}"


def choose_algorithm(name):
    """That of all products to come; ours is the default with a device, without one it is PETSc's."""
    database = PETSc.Options()
    for option in ALGORITHM_OPTIONS:
        database.delValue(option)
        if name:
            database[option] = name


def run(problem_class, matrix_type, options, what):
    """Iterations and solution of each of two steps."""
    prefix = f"{matrix_type}_"
    database = PETSc.Options()
    problem = problem_class(matrix_type)
    for key, value in options.items():
        database[prefix + key] = value
    ksp = PETSc.KSP().create(COMM)
    ksp.setOptionsPrefix(prefix)
    ksp.setType("cg")
    ksp.getPC().setType("gamg")
    ksp.setTolerances(rtol=1e-8)
    ksp.setErrorIfNotConverged(True)
    ksp.setFromOptions()
    x, b = problem.matrix.createVecs()
    random_vector(b, 31)
    steps = []
    for step in range(2):
        problem.set_values(step)
        choose_algorithm("rmerge" if matrix_type == TYPE else None)
        ksp.setOperators(problem.matrix)
        ksp.solve(b, x)
        steps.append((ksp.getIterationNumber(), x.getArray().copy()))
        if matrix_type == TYPE:
            check_products(ksp.getPC(), f"{what}, step {step}")
    for key in options:
        database.delValue(prefix + key)
    return steps


for problem_class, names in ((Scalar, list(CASES)), (Elasticity, ["anew", "interpolation kept", "no square graph"])):
    for name in names:
        options = {**JACOBI, **CASES[name]}
        what = f"{problem_class.name}, {name}"
        expected = run(problem_class, "aij", options, what)
        found = run(problem_class, TYPE, options, what)
        for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            assert ours[0] <= theirs[0] + 1, f"{what}, step {step}: {ours[0]} iterations, aij {theirs[0]}"
            close = np.allclose(ours[1], theirs[1], rtol=0.0, atol=1e-5 * np.abs(theirs[1]).max(initial=1.0))
            assert close, f"{what}, step {step}: another solution than with aij"
