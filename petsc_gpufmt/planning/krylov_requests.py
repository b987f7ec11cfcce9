"""What Krylov solvers ask the planner for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import address
from petsc_gpufmt.krylov.bcgs import stabilized_biconjugate_gradients
from petsc_gpufmt.krylov.cg import conjugate_gradients
from petsc_gpufmt.krylov.chebyshev import chebyshev_iteration
from petsc_gpufmt.krylov.gmres import generalized_minimal_residuals
from petsc_gpufmt.krylov.jacobi import jacobi
from petsc_gpufmt.krylov.mixedcg import mixed_conjugate_gradients
from petsc_gpufmt.krylov.steps import Method, Steps
from petsc_gpufmt.planning import abi, krylov_abi
from petsc_gpufmt.planning.abi import Ask
from petsc_gpufmt.planning.kinds import Kind, Leases

METHODS: dict[Method, Callable[..., Steps]] = {
    Method.CG: conjugate_gradients,
    Method.MIXED: mixed_conjugate_gradients,
    Method.BCGS: stabilized_biconjugate_gradients,
    Method.CHEBYSHEV: chebyshev_iteration,
    Method.GMRES: generalized_minimal_residuals,
}
"""By rows, backend and, where the request has it, the iterations of a cycle or the rows of a point block."""


def _what_krylov(request: Any) -> str:
    return f"{METHODS[Method(request.method)].__name__.replace('_', ' ')} of {request.nrows} rows"


def _fill_krylov(request: Any, answer: Any, backend: Backend) -> Leases:
    size = [number for number in (request.restart, request.point_block) if number]
    made = METHODS[Method(request.method)](request.nrows, backend, *size)
    kept: list[Any] = [made.state, *made.arrays.values()]
    for step, launches in made.launches.items():
        kept += abi.export_plan(launches, answer.steps[step])
    answer.state = address(made.state)
    for number, array in made.arrays.items():
        answer.arrays[number] = address(array)
    return [(answer.outcome, kept)]


def _what_jacobi(request: Any) -> str:
    return "Jacobi's preconditioner"


def _fill_jacobi(request: Any, answer: Any, backend: Backend) -> Leases:
    made = jacobi(backend)
    answer.not_positive = address(made.not_positive)
    kept = [made.not_positive]
    for launches, plan in ((made.reciprocals, answer.reciprocals), (made.products, answer.products)):
        kept += abi.export_plan(launches, plan)
    return [(answer.outcome, kept)]


KRYLOV_KINDS = {
    Ask.KRYLOV: Kind(krylov_abi.KrylovRequestStruct, krylov_abi.KrylovAnswerStruct, _what_krylov, _fill_krylov),
    Ask.JACOBI: Kind(krylov_abi.JacobiRequestStruct, krylov_abi.JacobiAnswerStruct, _what_jacobi, _fill_jacobi),
}
