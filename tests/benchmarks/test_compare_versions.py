"""Two versions measured in turn, side by side."""

from __future__ import annotations

import json

import compare_versions
import pytest

from petsc_gpufmt.bench.errors import BenchError


def write_runs(path, *milliseconds):
    """A file with a run for each (ours, a peer's) of `milliseconds`."""
    runs = [
        {
            "name": "mult",
            "cases": [
                {
                    "matrix": {"name": "7-point 10^3"},
                    "products": [
                        {"name": "pjds", "place": "cuda", "ours": True, "median_seconds": ours * 1e-3},
                        {"name": "aijcusparse", "place": "cuda", "ours": False, "median_seconds": peer * 1e-3},
                        {"name": "pjds", "place": "host", "ours": True, "median_seconds": None},
                    ],
                }
            ],
        }
        for ours, peer in milliseconds
    ]
    path.write_text(json.dumps({"schema": 1, "runs": runs}))
    return str(path)


def test_medians_of_the_runs_are_compared(tmp_path, capsys):
    before = write_runs(tmp_path / "before.json", (1.0, 2.0), (1.0, 2.0), (9.0, 2.0))
    after = write_runs(tmp_path / "after.json", (0.5, 2.2))
    assert compare_versions.main([before, after]) == 0
    table, ours, peers = capsys.readouterr().out.strip().split("\n\n")
    assert table.splitlines()[2:] == ["| 7-point 10^3 | pjds (cuda) | MatMult | 1000 | 500 | 0.5 |"]
    assert ours == "MatMult, ours: 0.5 in the mean, 0.5 to 0.5"
    assert peers == "MatMult, peers: 1.10 in the mean, 1.10 to 1.10"


def test_a_file_that_is_none_of_results_is_named(tmp_path):
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(BenchError, match="other.json has schema None"):
        compare_versions.main([str(tmp_path / "other.json"), str(tmp_path / "other.json")])
