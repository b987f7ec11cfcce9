"""What a set of matrices shows in sum."""

from __future__ import annotations

import pytest

from petsc_gpufmt.bench import summary


def comparable(matrix, ours, **peers):
    """A case with our time and those of peers; None for one that was skipped."""
    entries = [{"name": "gpufmt", "place": "cuda", "ours": True, "median_seconds": ours}]
    entries += [{"name": "pjds", "place": "cuda", "ours": True, "median_seconds": 1e-9}]
    entries += [{"name": "aij", "place": "host", "ours": False, "median_seconds": 1e-9}]
    for name, seconds in peers.items():
        entry = {"name": name, "place": "cuda", "ours": False}
        entries.append(entry | ({"skipped": "why"} if seconds is None else {"median_seconds": seconds}))
    return {"matrix": {"name": matrix}, "products": entries}


def test_summary_of_a_set():
    cases = [comparable("a", 1.0, one=2.0, two=8.0), comparable("b", 4.0, one=None, two=2.0), comparable("c", 1.0)]
    found = summary.summarise(cases, "gpufmt")
    assert (found["matrices"], found["worst_matrix"]) == (2, "b")
    assert found["geometric_mean_seconds"] == pytest.approx(2)
    assert found["peer_geometric_mean_seconds"] == pytest.approx(2)
    assert found["geometric_mean_ratio"] == pytest.approx(1)
    assert found["worst_ratio"] == pytest.approx(0.5)
    assert "worst 0.500 on b" in summary.summary_line(found)
    assert summary.summarise(cases, "bsr") == summary.summarise([], "gpufmt") == {}


def test_wrong_products_are_not_compared():
    case = comparable("a", 4.0, wrong=1.0, right=8.0)
    products = {product["name"]: product for product in case["products"]}
    products["wrong"]["correct"], products["right"]["correct"] = False, True
    compared = summary.compare(case, "gpufmt")
    assert (compared.peer, compared.ratio) == ("right", 2)
    products["right"]["correct"] = False
    assert summary.compare(case, "gpufmt") is None
    products["right"]["correct"], products["gpufmt"]["correct"] = True, False
    assert summary.compare(case, "gpufmt") is None


def test_table_of_the_fastest():
    cases = [comparable("a", 4.0, one=2.0, two=8.0), comparable("b", 4.0, one=None), comparable("c", 1.0, one=3.0)]
    for case in (cases[0], cases[2]):
        case["products"][1]["median_seconds"] = 2.0
    found = summary.fastest(cases[0], "median_seconds")
    assert (found.variant, found.seconds, found.peer, found.peer_seconds) == ("pjds", 2.0, "one", 2.0)
    heading, *lines = summary.fastest_lines([case | {"kind": "square"} for case in cases], "median_seconds")
    assert [line.split()[:2] for line in lines] == [["a:", "square"], ["c:", "square"]]
    assert lines[1].split()[-1] == "3.00"
    assert summary.fastest_lines(cases[1:2], "median_seconds") == []
