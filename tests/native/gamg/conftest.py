"""Hierarchies of small matrices."""

from __future__ import annotations

import pytest
from answers import settled_tokens
from bounds import steps

ESTIMATING = 10
"""Steps of agg and of Chebyshev's smoothers for an estimate of eigenvalues, by default."""


@pytest.fixture
def several_levels(options):
    """Of small matrices; the planner keeps nothing."""
    options["pc_gamg_coarse_eq_limit"] = 20
    if steps(ESTIMATING) < ESTIMATING:
        options["pc_gamg_esteig_ksp_max_it"] = options["mg_levels_ksp_chebyshev_esteig_steps"] = steps(ESTIMATING)
    before = settled_tokens()
    yield
    assert settled_tokens() == before


@pytest.fixture
def small(several_levels, options):
    """Several levels of small matrices, with no estimates that rounding changes."""
    options["pc_gamg_eigenvalues"] = "0.1,2.0"
