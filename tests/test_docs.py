"""The pages: what would not render as it was meant."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], key=str)


def cells(line: str) -> int:
    """Cells of a row of a table: a vertical bar parts them, in code too, unless a backslash precedes it."""
    return len(re.findall(r"(?<!\\)\|", line)) - 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_rows_of_tables_belong_to_a_table_with_a_head(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\| .*\n?)+", text, re.MULTILINE):
        head, rule, *rows = table.splitlines() + [""]
        assert re.fullmatch(r"\|( *:?-+:? *\|)+", rule), f"no head above: {head}"
        assert {cells(line) for line in (rule, *rows[:-1])} == {cells(head)}, f"rows differ in cells: {head}"
