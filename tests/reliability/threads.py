"""Several threads of Python, each with matrices of its own."""

from __future__ import annotations

import json

from petsc_gpufmt.choice.registry import FORMATS
from reliability import children
from reliability.attack import Report, Row, part_of

ABOUT = (
    "Threads of Python make, multiply and destroy matrices of their own at the same time: all results are right. "
    "petsc4py holds Python's lock in each call, but planning lets go of it in the middle of PETSc's MatMult()."
)
MINUTES = 1
THREADS, PRODUCTS = 8, 1000
QUICK_SHARE = 0.05


def try_all(types: list[str], threads: int, products: int, report: Report, planted: bool = False) -> list[Row]:
    """A row for each type: `products` of each thread."""
    request = {"types": types, "threads": threads, "products": products, "planted": planted}
    found = children.run("threads_child", [json.dumps(request)], 1, report)
    times = threads * products
    return [
        Row(f"{threads} threads, products of {what}", asked * times, tried * times, bad)
        for what, (asked, tried, bad) in found.items()
    ]


def run(share: float, seed: int, report: Report) -> list[Row]:
    types = [f"aij{name}" for name in FORMATS]
    rows = try_all(types if share >= QUICK_SHARE else types[:2], THREADS, part_of(PRODUCTS, share), report)
    report(f"{len(rows)} types tried")
    return rows
