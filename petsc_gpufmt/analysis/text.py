"""An analysis for the terminal: about one screen."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from petsc_gpufmt.analysis.analysis import Analysis, FormatRow
from petsc_gpufmt.analysis.facts import FULL_BLOCK, Facts, histogram_labels
from petsc_gpufmt.choice.gpufmt import in_bytes

LABEL, WIDTH = 11, 118
WIDEST_BAR = 40
MOST_BINS = 12
COLUMNS = ("format", "held", "a product", "padding", "us", "of a copy", "storing us", "paid off after")
WIDTHS = (-13, 10, 11, 9, 10, 11, 12, 16)


def lines(analysis: Analysis) -> Iterator[str]:
    """All lines; none ends in a blank."""
    facts = analysis.facts
    yield f"{analysis.name}: {facts.nrows} x {facts.ncols}, {facts.nnz} entries, {analysis.scalar}, {analysis.index}"
    yield from about_rows(facts)
    yield from labelled("columns", about_columns(facts))
    yield from labelled("values", about_values(facts))
    yield from labelled("blocks", about_blocks(facts))
    yield ""
    yield f"{analysis.gpu.name}, predicted; bytes and padding are counted"
    yield cells(COLUMNS)
    for row in analysis.rows:
        yield format_line(row, row.name == analysis.pick.name)
    yield ""
    for row in analysis.rows:
        if row.seconds is None:
            yield from labelled(row.name, f"not stored: {row.summary}")
    yield from about_pick(analysis)
    yield from labelled("paste", analysis.paste)


def labelled(label: str, text: str) -> list[str]:
    """A label and what belongs to it, in as many lines as it needs."""
    return textwrap.wrap(f"{label:{LABEL}}{text}", WIDTH, subsequent_indent=" " * LABEL, break_on_hyphens=False)


def cells(words: tuple[str, ...]) -> str:
    """A line of the table."""
    pairs = zip(words, WIDTHS, strict=True)
    return "".join(f"{w:<{-n}}" if n < 0 else f"{w:>{n}}" for w, n in pairs).rstrip()


def format_line(row: FormatRow, picked: bool) -> str:
    name = f"{row.name} *" if picked else row.name
    if row.seconds is None:
        return cells((name, *["-"] * (len(COLUMNS) - 1)))
    bound, share = ">= " if row.at_least else "", f"{row.share_of_limit or 0:.0%}"
    if row.at_least:  # what the cache might hold says nothing
        share = f"<= {share}" if (row.share_of_limit or 0) < 1 else "-"
    pays = f"{bound}{row.pays_after}" if row.pays_after is not None else "never"
    storing = f"{(row.storing_seconds or 0) * 1e6:.0f}"
    if not row.storing_seconds:  # PETSc's own
        storing = pays = ""
    return cells(
        (
            name,
            in_bytes(row.bytes_held or 0),
            in_bytes(row.bytes_per_mult or 0),
            f"{row.padding or 0:.1%}",
            f"{bound}{in_digits(row.seconds * 1e6)}",
            share,
            storing,
            pays,
        )
    )


def about_rows(facts: Facts) -> Iterator[str]:
    """How long rows are, with a bar for each power of two."""
    several = "s" if facts.row_patterns > 1 else ""
    alike = f"; {facts.row_patterns} row pattern{several}" if facts.row_patterns else ""
    yield from labelled(
        "rows",
        f"{facts.shortest} to {facts.longest} entries, {facts.mean:.3g} in the mean, {facts.empty_rows} empty{alike}",
    )
    most = max(facts.lengths, default=0)
    shown = [(label, n) for label, n in zip(histogram_labels(len(facts.lengths)), facts.lengths, strict=True) if n]
    for label, count in shown[:MOST_BINS]:
        yield f"{'':{LABEL}}{label:>11} {count:>10}  {'#' * max(1, round(WIDEST_BAR * count / most))}"
    if len(shown) > MOST_BINS:
        longer = sum(count for _, count in shown[MOST_BINS:])
        yield f"{'':{LABEL}}{'longer':>11} {longer:>10}"


def about_columns(facts: Facts) -> str:
    diagonal = min(facts.nrows, facts.ncols)
    whole = "whole" if facts.diagonal == diagonal else f"{facts.diagonal} of {diagonal}"
    answer = {None: "not square", True: "symmetric pattern", False: "pattern not symmetric"}
    return (
        f"{answer[facts.symmetric_pattern]}, diagonal {whole}, bandwidth {facts.bandwidth}, "
        f"{in_digits(facts.mean_distance)} from the diagonal in the mean, {facts.empty_columns} empty"
    )


def about_values(facts: Facts) -> str:
    if facts.value_type is None:
        return "random, of a generator"
    answer = {None: "", True: ", symmetric", False: ", not symmetric"}[facts.symmetric_values]
    wrong = f"; {facts.not_finite} ARE NAN OR INFINITE" if facts.not_finite else ""
    return f"{facts.value_type}{answer}, {facts.zeros} zeros stored{wrong}"


def about_blocks(facts: Facts) -> str:
    told = f"the matrix tells {facts.told_block} x {facts.told_block}; " if facts.told_block > 1 else ""
    if not facts.block_fill:
        return f"{told}none: no entries"
    if facts.block_size == 1:
        size, share = max(facts.block_fill.items(), key=lambda item: item[1])
        return f"{told}none is {FULL_BLOCK:.0%} full; most of {size} x {size}, {share:.0%}"
    size, share = facts.block_size, facts.block_fill[facts.block_size]
    return (
        f"{told}{size} x {size}, {share:.0%} full: with values and columns of whole blocks "
        f"{in_bytes(facts.block_bytes)}, {in_bytes(facts.csr_bytes)} in CSR"
    )


def in_digits(number: float) -> str:
    """Three digits, more for a large number, and no exponent."""
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"


def about_pick(analysis: Analysis) -> Iterator[str]:
    """What `gpufmt` takes, why, and what that is worth."""
    pick, facts = analysis.pick, analysis.facts
    yield from labelled("gpufmt *", f"takes {pick.name}: {pick.reason}")
    if pick.timed:
        names = ", ".join(pick.timed)
        yield from labelled("", f"close by the model, timed on the device after {pick.timed_after} products: {names}")
    if pick.block_size > 1:
        ways = f"-mat_block_size {pick.block_size} or MatSetBlockSize()" if facts.blocks_end_evenly else "the option"
        yield from labelled("", f"it has to be told the block size, by {ways}; else it takes {pick.without_blocks}")
    row = analysis.row(pick.name)
    if not facts.nnz:
        yield from labelled("pays", "never: there are no entries to multiply with")
    elif row.pays_after is None:
        yield from labelled("pays", "never: PETSc's CSR is as fast by this prediction")
    else:
        yield from labelled(
            "pays",
            f"after some {row.pays_after} products with one pattern: storing by what an H200 took in a benchmark, "
            "aijcusparse by a fit to 61 matrices there, within 28 %",
        )
