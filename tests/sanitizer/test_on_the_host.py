"""The programs for compute-sanitizer, on the host."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("scipy.sparse")

import small_products  # noqa: E402
import small_spgemm  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "lines"),
    [(small_products, ["uneven rows, some empty"]), (small_spgemm, ["long row of the product", "RARt"])],
)
def test_small_products_are_right(monkeypatch, capsys, program, lines):
    monkeypatch.setattr(sys, "argv", ["program", "--host"])
    assert program.main() == 0
    output = capsys.readouterr().out
    assert [line for line in lines if line not in output] == []
