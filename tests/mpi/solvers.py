"""Krylov methods and preconditioners take as many iterations, to the same solution, with our type as with aij."""

import numpy as np
from dense import COMM, TYPE, distribute, layouts, random_vector, rounding
from petsc4py import PETSc

GRID = 8
HOLES = ("none_on_first", "none_on_middle", "none_on_last")
GAMG = {"pc_type": "gamg", "pc_gamg_coarse_eq_limit": 10, "pc_gamg_gpufmt_order": "petsc"}  # with agg's aggregates
SOLVERS = {
    "cg_jacobi": {"ksp_type": "cg", "pc_type": "jacobi"},
    "gmres_ilu": {"ksp_type": "gmres", "pc_type": "bjacobi", "sub_pc_type": "ilu"},
    "sor": {"ksp_type": "gmres", "pc_type": "sor"},
    "asm": {"ksp_type": "gmres", "pc_type": "asm"},
    "bicg": {"ksp_type": "bicg", "pc_type": "jacobi"},
    "gamg": {"ksp_type": "cg", **GAMG},
    "gamg_jacobi": {"ksp_type": "cg", "mg_levels_pc_type": "jacobi", **GAMG},
}


def poisson(grid):
    """Five-point differences on a square grid, dense."""
    line = 2.0 * np.eye(grid) - np.eye(grid, k=1) - np.eye(grid, k=-1)
    return np.kron(line, np.eye(grid)) + np.kron(np.eye(grid), line)


def solve(A, name, solves=1):
    """Iterations of each solve and the last solution; the values of the matrix change after each solve."""
    ksp = PETSc.KSP().create(COMM)
    ksp.setOptionsPrefix(f"{name}_")
    database = PETSc.Options(f"{name}_")
    for key, value in SOLVERS[name].items():
        database[key] = value
    ksp.setTolerances(rtol=1e-4)
    ksp.setErrorIfNotConverged(True)
    ksp.setFromOptions()
    x, b = A.createVecs()
    random_vector(b, 21)
    iterations = []
    for _ in range(solves):
        ksp.setOperators(A)
        ksp.solve(b, x)
        iterations.append(ksp.getIterationNumber())
        A.shift(0.5)
    ksp.destroy()
    return iterations, x.getArray().copy()


def compare(name, layout, local, solves=1):
    dense = poisson(GRID)
    expected, solution = solve(distribute(dense, "aij", local, local), name, solves)
    iterations, ours = solve(distribute(dense, TYPE, local, local), name, solves)
    assert iterations == expected, f"{name}, {layout}: {iterations} iterations, aij {expected}"
    difference = np.abs(ours - solution).max(initial=0.0)
    limit = rounding(1e-10) * np.abs(solution).max(initial=1.0)
    assert difference <= limit, f"{name}, {layout}: solutions differ by {difference}"


def check_solvers():
    local = layouts(GRID**2)["balanced"]
    for name in SOLVERS:
        compare(name, "balanced", local, solves=2 if name in ("gmres_ilu", "gamg") else 1)


def check_ranks_without_rows():
    named = layouts(GRID**2)
    for hole in HOLES:
        if hole in named:
            compare("gamg", hole, named[hole])


def check_one_row_in_total():
    for layout in ("balanced", "all_on_last"):
        local = layouts(1)[layout]
        for name in ("gmres_ilu", "gamg"):
            iterations, solution = solve(distribute(np.full((1, 1), 4.0), TYPE, local, local), name)
            assert iterations[0] <= 1 and solution.size == local


def check_fieldsplit():
    """Blocks cut out of our matrix, each with a preconditioner of its own."""
    dense = poisson(GRID)
    dense[1::2, 1::2] += np.eye(len(dense) // 2)
    results = []
    for matrix_type in ("aij", TYPE):
        A = distribute(dense, matrix_type)
        first, last = A.getOwnershipRange()
        database = PETSc.Options("split_")
        database["fieldsplit_even_pc_type"] = "bjacobi"
        database["fieldsplit_odd_pc_type"] = "jacobi"
        ksp = PETSc.KSP().create(COMM)
        ksp.setOptionsPrefix("split_")
        ksp.setOperators(A)
        pc = ksp.getPC()
        pc.setType("fieldsplit")
        rows = np.arange(first, last, dtype=PETSc.IntType)
        fields = [(name, PETSc.IS().createGeneral(rows[rows % 2 == k], COMM)) for k, name in enumerate(("even", "odd"))]
        pc.setFieldSplitIS(*fields)
        ksp.setErrorIfNotConverged(True)
        ksp.setFromOptions()
        x, b = A.createVecs()
        random_vector(b, 22)
        ksp.solve(b, x)
        results.append((ksp.getIterationNumber(), x.getArray().copy()))
    (expected, solution), (iterations, ours) = results
    assert iterations == expected, f"fieldsplit: {iterations} iterations, aij {expected}"
    assert np.allclose(ours, solution, rtol=rounding(1e-9), atol=rounding(1e-12))


check_solvers()
check_ranks_without_rows()
check_one_row_in_total()
check_fieldsplit()
