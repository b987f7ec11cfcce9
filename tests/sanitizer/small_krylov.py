"""Small Krylov methods on the GPU, for compute-sanitizer: each step, fused products, single precision, whole solves.

Exits with status 1 if a result is not that of the host. Each array has memory of its own, so that an access outside
shows.
"""

import sys
from unittest import mock

import numpy as np
import scipy.sparse
from builders import CsrMatrix
from petsc_products import petsc_matrix
from running_steps import RunningSteps
from small_products import OTHER_KERNELS, small_matrices
from small_programs import right_or_wrong
from solves import make_solver, right_hand_side, run, solve
from stored_matrix import StoredMatrix
from summands import Summand

import petsc_gpufmt  # noqa: F401
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Fused, Slot, address
from petsc_gpufmt.bench.places import SEED
from petsc_gpufmt.choice.registry import FORMATS, find_format
from petsc_gpufmt.krylov import bcgs, cg, chebyshev, gmres, jacobi, mixedcg, steps
from petsc_gpufmt.patterns import narrow

FEW_BLOCKS = 3
SIZES = (1, 33, 777, 2 * FEW_BLOCKS * steps.BLOCK_THREADS * steps.ITEMS + 77)  # rows: a thread has several at last
NORMS = (0, 1, 2, 3)  # none, preconditioned, unpreconditioned, natural
COMMON = {"limit": -1.0, "divergence": np.inf, "most": 10**6, "iteration": steps.RECORDS - 1, "alone": 1}
RESTARTS = (1, gmres.BATCH + 3)
FUSING = ("pjds", "bsr", "csradaptive")
FACTORS = (0.5, -2.0, 3.0)
FACTOR_SLOTS = (Slot.ALPHA, Slot.BETA, Slot.GAMMA)
POINT_BLOCKS = (3, chebyshev.MOST_POINT_BLOCK)


# ---- steps ----


def ran(running, numbers, **fields):
    """What steps leave one after the other: vectors, other arrays, and the state as it was written before each."""
    for number in numbers:
        if fields:
            running.write(**fields)
        running.run(number)
    backend = running.backend
    left = [
        running[slot.name]
        for slot, v in running.vectors.items()
        if v is not None and not isinstance(v, np.generic) and slot not in (Slot.MESSAGES, Slot.ARRIVALS)
    ]
    left += [backend.to_host(array) for array in running.made.arrays.values()]
    if running.made.state is not None:
        state = running.state
        left += [state[name] for name in state.dtype.names if name not in ("basis", "terms")]
    return left


def flat(values):
    """As floating-point numbers, records too."""
    values = np.asarray(values)
    if values.dtype.names:
        return np.concatenate([flat(values[name]) for name in values.dtype.names])
    return values.astype(float).ravel()


def agree(found, expected):
    """Whether what was left on two backends is the same but for rounding."""
    for left, left_there in zip(found, expected, strict=True):
        a, b = flat(left), flat(left_there)
        scale, precision = np.abs(b[np.isfinite(b)]).max(initial=0.0), 1e-5 if left.dtype == np.float32 else 1e-11
        if not np.allclose(a, b, rtol=precision, atol=precision * scale, equal_nan=True):
            return False
    return True


def random_vectors(names, n):
    """Positive: with these no sum ends an iteration."""
    return dict(zip(names, 0.5 + np.random.default_rng(n).random((len(names), n)), strict=True))


def steps_of_cg(backend, n):
    left = []
    for norm, given in zip(NORMS, ("xrpwd", "xrpwz", "xrpw", "xrpwd"), strict=True):
        vectors = {**dict.fromkeys("dz"), **random_vectors(given, n)}
        running = RunningSteps(backend, cg.conjugate_gradients(n, backend), cg.STATE, vectors)
        scalars = {"rz": 2.0, "rz_before": 1.5, "curvature": 1.0, "stop": 0, "norm": norm}
        left += ran(running, with_sums_over_ranks(running, cg.Step), **COMMON, **scalars)
    return left


def with_sums_over_ranks(running, numbers):
    """Steps, also those of several ranks, of which this is the only one. Not where states are of a wider type."""
    backend = running.backend
    if backend.scalar != np.float64:
        return [number for number in numbers if not number.name.endswith("OF_RANKS")]
    own = Summand(0, 1, backend)
    own.plan([own], limit=0)
    running.tables = own  # as long as there are launches
    running.vectors |= {**own.slots, Slot.ALPHA: np.int64(0)}
    return numbers


def steps_of_bcgs(backend, n):
    left = []
    for norm, given in zip(NORMS[:3], ("xrpwyd", "xrpwydz", "xrpwy"), strict=True):
        vectors = {**dict.fromkeys("dz"), **random_vectors(given, n)}
        numbers = [number for number in bcgs.Step if "z" in given or "d" not in given or number in BCGS_LEFT]
        scalars = {"rho": 2.0, "rho_before": 1.5, "alpha": 0.3, "omega": 0.2, "stop": 0, "norm": norm}
        for part in (slice(None, -3), slice(-3, None)):  # the last ones would find rounding errors
            running = RunningSteps(backend, bcgs.stabilized_biconjugate_gradients(n, backend), bcgs.STATE, vectors)
            left += ran(running, with_sums_over_ranks(running, numbers[part]), **COMMON, **scalars)
    return left


BCGS_LEFT = [number for number in bcgs.Step if number.name not in ("DIRECTION", "HALF")]  # preconditioner there


def steps_of_gmres(backend, n):
    left = []
    for restart in RESTARTS:
        vectors = random_vectors("wx", n)
        made, state = gmres.generalized_minimal_residuals(n, backend, restart), gmres.state_for(restart)
        running = RunningSteps(backend, made, state, vectors)
        basis = np.random.default_rng(restart).standard_normal((restart + 1, n))
        arrays = [backend.adopt(v.astype(backend.scalar)) for v in basis / np.linalg.norm(basis, axis=1)[:, None] / 2]
        addresses = [address(array) for array in arrays]
        fields = {**COMMON, "most": restart, "iteration": restart - 1, "haptol": 1e-30, "norm": 2.0, "next": 2.0}
        fields |= {"stop": 0, "nterms": restart, "basis": addresses, "terms": addresses}
        left += ran(
            running, with_sums_over_ranks(running, gmres.Step), **fields, weights=np.linspace(-1, 2, restart + 1)
        )
        left += [backend.to_host(array) for array in arrays]
    return left


def steps_of_chebyshev(backend, n):
    left = []
    for given, onto in (("uxwdbz", "z"), ("bz", "z"), ("uxwdb", "u"), ("uxwb", "x")):
        vectors = {**dict.fromkeys("uxwd"), **random_vectors(given, n)}
        running = RunningSteps(backend, chebyshev.chebyshev_iteration(n, backend), None, vectors)
        running.vectors[Slot.Z] = running.vectors[Slot[onto.upper()]]
        running.vectors |= {
            slot: backend.scalar.type(factor) for slot, factor in zip(FACTOR_SLOTS, FACTORS, strict=True)
        }
        left += ran(running, chebyshev.Step)
    for point_block in POINT_BLOCKS:
        vectors = {**random_vectors("uxwbz", n * point_block), **random_vectors("d", n * point_block**2)}
        running = RunningSteps(
            backend, chebyshev.chebyshev_iteration(n * point_block, backend, point_block), None, vectors
        )
        running.vectors |= {
            slot: backend.scalar.type(factor) for slot, factor in zip(FACTOR_SLOTS, FACTORS, strict=True)
        }
        left += ran(running, chebyshev.Step)
    return left


def steps_of_mixedcg(backend, n):
    left = []
    for norm, given in zip(NORMS, ("xzwdy", "xzwd", "xzy", "xz"), strict=True):
        vectors = {**dict.fromkeys("wdy"), **random_vectors(given, n)}
        made = mixedcg.mixed_conjugate_gradients(n, backend)
        running = RunningSteps(backend, made, mixedcg.STATE, vectors)
        for number in (mixedcg.Array.X, mixedcg.Array.P, mixedcg.Array.W, mixedcg.Array.D):
            running.put_array(number, np.linspace(1, 2, n, dtype=np.float32))  # of these, no step writes all
        left += ran(
            running, [s for s in mixedcg.Step if s != mixedcg.Step.NARROW or "d" in given], norm=norm, factor=0.375
        )
    return left


def steps_of_jacobi(backend, n):
    made, left = jacobi.jacobi(backend), []
    vectors = {Slot.ALPHA: np.int64(n), Slot.Z: backend.adopt(np.empty(n, dtype=backend.scalar))}
    vectors |= {slot: backend.adopt(np.linspace(-1.0, 2.0, n).astype(backend.scalar)) for slot in (Slot.D, Slot.X)}
    for launches in (made.products, made.reciprocals):
        backend.run(launches, vectors)
        left.append(backend.to_host(vectors[Slot.Z]).copy())
    return [*left, backend.to_host(made.not_positive)]


METHODS = {
    "cg": steps_of_cg,
    "bcgs": steps_of_bcgs,
    "gmres": steps_of_gmres,
    "chebyshev": steps_of_chebyshev,
    "jacobi": steps_of_jacobi,
    "mixedcg": steps_of_mixedcg,
}


def steps_are_right(backend):
    """Name -> whether the steps of a method leave what they leave on the host"""
    host, results = HostBackend(backend.scalar, backend.index), {}
    with mock.patch.object(steps, "MOST_BLOCKS", FEW_BLOCKS):
        for method, made in METHODS.items():
            for n in SIZES:
                if (method, n) == ("bcgs", 1):
                    continue  # its first step ends with the solution, and the others work on rounding errors
                results[f"{method}, {n} rows"] = agree(made(backend, n), made(host, n))
    return results


# ---- products and values ----


def fused_is_right(stored, operation):
    """Whether a fused product leaves the vector and the sum that NumPy finds."""
    x, y = stored.vectors()
    u, d = np.linspace(-3, 2, y.size), np.linspace(1, 2, y.size)
    product = stored.matrix.product(x).astype(float)
    alpha, beta, gamma = FACTORS
    if operation == Fused.MULT_DOT:
        found, z, of_sum = stored.fused(operation, x=x), product, x
    elif operation == Fused.ADD_DOT:
        found, z, of_sum = stored.fused(operation, x=x, y=y, z=u), u + product, y
    elif operation == Fused.SMOOTH:
        factors = {"alpha": alpha, "beta": beta, "gamma": gamma}
        found = stored.fused(operation, x=x, u=u, d=d, b=y, in_place=True, **factors)
        z, of_sum = alpha * u + beta * x + gamma * d * (y - product), None
    else:
        found = stored.fused(operation, x=x, d=d, gamma=gamma, z=u)
        z, of_sum = u - gamma * d * product, None
    scale = 1 + np.abs(stored.matrix.values).sum() * np.abs(x).max(initial=0.0)
    right = np.allclose(found.z, z, rtol=0, atol=1e-12 * scale)
    return right and (of_sum is None or np.isclose(found.sum, of_sum @ product, rtol=0, atol=1e-11 * scale))


def fused_are_right(name, matrix, label, backend):
    """Whether a format's fused products are right with all options that take other kernels."""
    given = CsrMatrix(*matrix.shape, matrix.indptr, matrix.indices, matrix.data, 3 if "blocks" in label else 1)
    operations = Fused if given.nrows == given.ncols else (Fused.ADD_DOT, Fused.ADD_SMOOTH)
    right = []
    for options in ({}, *OTHER_KERNELS[name]):
        stored = StoredMatrix(given, find_format(name), backend, options)
        right += [fused_is_right(stored, operation) for operation in operations]
    return all(right)


def narrow_is_right(nnz, backend):
    """Whether values are rounded to single precision, and those outside of its range are counted."""
    values = np.random.default_rng(nnz).uniform(-2, 1, nnz)
    values[:: 1 + nnz // 5], values[nnz // 2 :: 1 + nnz // 3] = 1e50, -1e-50
    expected = [np.count_nonzero(np.abs(values) > 3), np.count_nonzero(np.abs(values) < 1e-45)]
    arrays = values, np.full(nnz, np.nan, np.float32), np.zeros(2, np.uint64)
    given, result, outside = map(backend.adopt, arrays)
    backend.run(narrow.plan_narrow(nnz, backend), {Slot.A_VALUES: given, Slot.RESULT: result, Slot.Z: outside})
    with np.errstate(over="ignore"):
        right = np.array_equal(backend.to_host(result), values.astype(np.float32))
    return right and backend.to_host(outside).tolist() == expected


# ---- whole solves ----


def coupled(n):
    """A symmetric positive definite matrix of three unknowns on each of n x n points."""
    line = scipy.sparse.diags([-1.0, 3.0, -1.0], [-1, 0, 1], shape=(n, n))
    grid = scipy.sparse.kron(line, scipy.sparse.identity(n)) + scipy.sparse.kron(scipy.sparse.identity(n), line)
    matrix = scipy.sparse.kron(grid, [[2.0, 0.4, 0.3], [0.4, 1.5, -0.2], [0.3, -0.2, 1.0]], format="csr")
    matrix.sort_indices()
    return CsrMatrix(*matrix.shape, matrix.indptr, matrix.indices, matrix.data, 3)


RECORDED = {"graph": 1, "check": 20}
LOOPED = "mixedcg"
SOLVERS = {
    "gpucg": ("cg", {}, RECORDED),
    "gpubcgs": ("bcgs", {}, RECORDED),
    "gpugmres": ("gmres", {"ksp_gmres_restart": 11}, {"check": 7}),
    "gpufgmres": ("fgmres", {"ksp_gmres_restart": 11}, {"check": 7}),
    "gpuchebyshev": (
        "chebyshev",
        {"ksp_norm_type": "none", "ksp_max_it": 5, "ksp_chebyshev_eigenvalues": "0.3,20.0"},
        {"fused": 1},
    ),
    LOOPED: ("cg", {}, {"graph": 1}),
}


def solves_are_right(ours, mat_type, matrix, pc_type):
    """Whether solutions of two solves, the second with other values, are those of PETSc's method and aij."""
    theirs, common, own = SOLVERS[ours]
    settings = {"ksp_rtol": 1e-10, "pc_type": pc_type, **common}
    b, A, B = right_hand_side(matrix.nrows), petsc_matrix(matrix, mat_type), petsc_matrix(matrix, "aij")
    for operator in (A, B):
        operator.setBlockSize(3)
    ksp, (x, rhs) = make_solver(A, ours, **settings, **{f"ksp_{ours}_{k}": v for k, v in own.items()}), A.createVecs()
    rhs.setArray(b)
    right = True
    for _ in range(2):
        found, expected = run(ksp, rhs, x), solve(B, b, theirs, **settings)
        right &= found.reason == expected.reason > 0
        right &= np.allclose(found.x, expected.x, rtol=0, atol=1e-7 * np.abs(expected.x).max())
        for operator in (A, B):
            operator.shift(0.5)
    for item in (ksp, x, rhs, A, B):
        item.destroy()
    return bool(right)


def far_apart_is_right(outer):
    """Whether a matrix whose entries leave the range of single precision is solved with by its scaled copy.

    Its inner iterations are launched in batches, those of other solves in loops.
    """
    values = np.linspace(1.0, 3.0, 600)
    values[17] = 1e200
    matrix = CsrMatrix(600, 600, np.arange(601), np.arange(600), values)
    b = right_hand_side(600)
    settings = {"pc_type": "jacobi", "ksp_rtol": 1e-12, "ksp_mixedcg_outer": outer, "ksp_mixedcg_graph": 0}
    found = solve(petsc_matrix(matrix, "pjds"), b, "mixedcg", **settings)
    return found.reason > 0 and np.allclose(found.x, b / values, rtol=1e-9, atol=1e-30)


def fused_results(backend):
    """Name -> whether fused products, and values in single precision, are right."""
    results = {}
    for label, matrix in small_matrices(backend.scalar, backend.index, np.random.default_rng(SEED)).items():
        for name in FUSING:
            results[f"{name}, {label}"] = fused_are_right(name, matrix, label, backend)
    for nnz in (1, 1023, 5000):
        results[f"{nnz} narrowed"] = narrow_is_right(nnz, backend)
    return results


def solve_results(_):
    """Name -> whether solutions are those of the host, of all solvers whose iterations the host queues."""
    matrix, results = coupled(14), {}
    for ours in SOLVERS:
        for mat_type in (*FUSING, "ellpackr") if ours != LOOPED else ():
            for pc_type in ("none", "jacobi", *(["pbjacobi"] if ours == "gpuchebyshev" else [])):
                results[f"{ours}, {mat_type}, {pc_type}"] = solves_are_right(ours, mat_type, matrix, pc_type)
    for outer in ("replacement", "refinement", "flexible"):
        results[f"{outer}, far apart"] = far_apart_is_right(outer)
    return results


def loop_results(_):
    """The same of those whose iterations are a loop on the device, with each format."""
    matrix = coupled(14)
    return {
        f"{LOOPED}, {mat_type}, {pc_type}": solves_are_right(LOOPED, mat_type, matrix, pc_type)
        for mat_type in FORMATS
        for pc_type in ("none", "jacobi")
    }


PARTS = {"steps": steps_are_right, "fused": fused_results, "solves": solve_results, "loops": loop_results}


def main():
    return right_or_wrong("small_krylov", __doc__, PARTS)


if __name__ == "__main__":
    sys.exit(main())
