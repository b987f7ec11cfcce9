"""Attacks on the package: faults put in on purpose, twins, hostile files and options, long runs."""

ATTACKS: tuple[str, ...] = (
    "allocations",
    "interrupts",
    "planner_errors",
    "killed_ranks",
    "twins",
    "files",
    "option_values",
    "same_bits",
    "long_runs",
    "threads",
    "sanitizers",
    "covered_lines",
    "cold_start",
    "failing_solves",
    "limits",
    "products",
    "histories",
    "upstream",
    "petsc_tests",
    "other_builds",
)
