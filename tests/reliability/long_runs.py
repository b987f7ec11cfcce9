"""The same for a long time: what does not come back adds up."""

from __future__ import annotations

import json
from collections.abc import Sequence

from petsc_gpufmt.choice.registry import FORMATS
from reliability import children
from reliability.attack import Report, Row, part_of, ranks_in_words

ABOUT = (
    "Matrices come and go, products and solves go on: after the first block of each process the host's memory stays "
    "within 1 MB, none of the planner's is left, and each product has the bits of the first one."
)
MINUTES = 10
MOST_BYTES = 1 << 20
SECONDS = 900.0  # of a process: what it gains must not be lost with it
NUMBERS = {
    "create, convert, multiply, destroy": 100_000,
    "products": 1_000_000,
    "transposed products": 1_000_000,
    "new values and a product": 100_000,
    "sparse products": 10_000,
    "set-ups and solves of GAMG": 10_000,
    "without destroy()": 10_000,
    "alive at once": 10_000,
}
RANKS = 1, 2, 4
BLOCKS = 10
"""Of a number: memory is looked at after each of them; those that make little by little are longer than the rest."""
LEAST = {"create, convert, multiply, destroy": 1000 * BLOCKS}
"""Of a number, however small the share is: only after a thousand has memory all that it will keep for later."""
ON_SEVERAL = 0.1  # of a number, but for products, which ranks may get wrong once in a long time
REMARKS = {"alive at once": "counts matrices; their memory is taken again by the next block"}


def try_all(numbers: dict[str, int], ranks: int, report: Report, seconds: float = SECONDS) -> list[Row]:
    """Rows of what is repeated as often as `numbers` say, in blocks."""
    types = [f"aij{name}" for name in FORMATS]
    sizes = {name: max(1, number // BLOCKS) for name, number in numbers.items()}
    request = {"sizes": sizes, "blocks": BLOCKS, "types": types, "most": MOST_BYTES, "seconds": seconds}
    found = children.run("long_child", [json.dumps(request)], ranks, report, seconds=seconds * 2)
    rows = []
    for what, (asked, tried, bad) in found.items():
        size, where = sizes.get(what, 1), ranks_in_words(ranks)
        rows.append(Row(f"{what}, {where}", asked * size, tried * size, bad, REMARKS.get(what, "")))
    return rows


def run(share: float, seed: int, report: Report, only: Sequence[str] = ()) -> list[Row]:
    """`only`: of what is repeated, and of numbers of ranks in words; of neither all, if none is named."""
    rows, in_words = [], {ranks_in_words(ranks): ranks for ranks in RANKS}
    if unknown := sorted({*only} - {*NUMBERS, *in_words}):
        raise SystemExit(f"--only {unknown[0]!r}: choose of {', '.join([*NUMBERS, *in_words])}")
    names = [name for name in NUMBERS if name in only] or NUMBERS
    for ranks in [in_words[word] for word in in_words if word in only] or RANKS:
        shares = {name: share if ranks == 1 or name == "products" else share * ON_SEVERAL for name in names}
        numbers = {name: max(LEAST.get(name, 1), part_of(NUMBERS[name], shares[name])) for name in names}
        if ranks > 1:
            numbers.pop("alive at once", None)
        rows += try_all(numbers, ranks, report)
        report(f"{ranks} ranks: {sum(len(row.failures) for row in rows)} ended badly")
    return rows
