"""Compiled programs, MatMult from C, and the script for a machine with a GPU."""

from __future__ import annotations

import argparse
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

import bratu  # noqa: E402
import mult_from_c  # noqa: E402
from mult_from_c import conversions  # noqa: E402

from petsc_gpufmt.bench import compiled, results  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.mult import Reference  # noqa: E402
from petsc_gpufmt.cli import bench  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def executable(tmp_path_factory):
    return compiled.compile_program(mult_from_c.SOURCE, tmp_path_factory.mktemp("program"))


@pytest.mark.slow
def test_mult_from_c(tmp_path, monkeypatch, executable):
    path = tmp_path / "results.json"
    wide = scipy_sparse.random(21, 31, 0.5, format="csr", random_state=np.random.default_rng(977))
    scipy_sparse.save_npz(tmp_path / "wide.npz", wide)
    monkeypatch.setattr(mult_from_c, "compile_program", lambda source, folder: executable)
    specs = ("27point:3x2", str(tmp_path / "wide.npz"))
    command = [word for spec in specs for word in ("--matrix", spec)]
    assert mult_from_c.main([*command, "--types", "aij", "pjds", "--json", str(path)]) == 0
    (run,) = results.read_runs(path)
    keys = ("matrix", "nnz", "block_size", "mat_type", "ours")
    assert [tuple(case[key] for key in keys) for case in run["cases"]] == [
        (*matrix, *type_and_ours)
        for matrix in (("27-point 3^3, 2 x 2 blocks", 1372, 2), ("wide", wide.nnz, 1))
        for type_and_ours in (("seqaij", False), ("seqaijpjds", True))
    ]
    assert all(case["error_over_bound"] <= 1 for case in run["cases"])


@pytest.mark.slow
def test_wrong_product_from_c_is_reported(monkeypatch, executable):
    class Wrong:
        @staticmethod
        def of(matrix, x):
            right = Reference.of(matrix, x)
            return Reference(right.z + 1e-9, right.bound)

    monkeypatch.setattr(mult_from_c, "Reference", Wrong)
    monkeypatch.setattr(mult_from_c, "compile_program", lambda source, folder: executable)
    with pytest.raises(BenchError, match="The product is wrong"):
        mult_from_c.main(["--matrix", "7point:4", "--types", "pjds"])


def test_unknown_type_from_c_is_refused():
    assert conversions("sellcuda") == ("seqsell", "seqsellcuda")
    assert conversions("aij") == ()
    assert conversions("pjds") == ("seqaijpjds",)
    with pytest.raises(BenchError, match="--types other: choose from aij"):
        conversions("other")


SCRIPT = ROOT / "benchmarks/run_on_gpu.sh"


def steps():
    """Names of the steps of the script."""
    line = next(line for line in SCRIPT.read_text().splitlines() if line.startswith("STEPS=("))
    return line.removeprefix("STEPS=(").rstrip(")").split()


def run_script(folder, *names, **variables):
    """Its output, with stand-ins for python3, which writes down its arguments and PYTHONPATH, and compute-sanitizer."""
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    stand_ins = {
        "python3": f"""echo "$PYTHONPATH" >>'{folder}/paths'
if [ "$1" = -c ]; then echo 4; else echo "$@" >>'{folder}/commands'; fi""",
        "compute-sanitizer": """until [ "$1" = python3 ]; do shift; done; "$@\"""",
    }
    (folder / "bin").mkdir()
    for name, text in stand_ins.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    variables |= {"OUT": folder / "out", "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    environment = {name: str(value) for name, value in variables.items()}
    return compiled.run_program(["bash", str(SCRIPT), *names], 60, environment).output


def test_gpu_script_refuses_unknown_steps(tmp_path):
    with pytest.raises(BenchError, match="there is no step 'measure'"):
        run_script(tmp_path, "measure")


def test_gpu_script_has_the_steps():
    text = SCRIPT.read_text()
    for step in steps():
        assert f"step_{step}() {{" in text
        assert f"[{step}]=" in text


def test_programs_for_the_sanitizer_find_what_they_share(tmp_path):
    assert "  ok" in run_script(tmp_path, "sanitize")
    paths = (tmp_path / "paths").read_text().splitlines()
    shared = [str(ROOT / "tests/sanitizer"), str(ROOT / "tests/support")]
    assert paths and all(path.split(":")[-2:] == shared for path in paths)


@pytest.mark.slow
def test_programs_take_what_the_gpu_script_gives_them(tmp_path):
    for name in ("ex14.c", "cage10.mtx", "bcsstk16.mtx"):
        (tmp_path / name).touch()
    steps_but_build = [step for step in steps() if step != "build"]  # which would remove what an earlier one installed
    output = run_script(tmp_path, *steps_but_build, EX14=tmp_path / "ex14.c", MATRICES=tmp_path)
    assert output.count("  ok") == len(steps_but_build), output
    bench_parser = argparse.ArgumentParser()
    bench.add_commands(bench_parser)
    programs = {f"{ROOT}/benchmarks/{m.__name__}.py": m.make_parser() for m in (bratu, mult_from_c)}
    kinds = Counter()
    for line in (tmp_path / "commands").read_text().splitlines():
        first, *words = line.split()
        if first in programs:
            assert programs[first].parse_args(words).json
        elif words[:2] == ["petsc_gpufmt", "bench"]:
            assert bench_parser.parse_args(words[2:]).json
        elif first != "-m":
            assert (ROOT / first).is_file()
        kinds[first.removeprefix(f"{ROOT}/")] += 1
    assert kinds == {
        **{"-m": 20, "benchmarks/bratu.py": 6, "benchmarks/mult_from_c.py": 1},
        **{f"tests/sanitizer/small_{name}.py": 3 for name in ("coarsening", "products", "spgemm", "sums")},
        "tests/sanitizer/small_krylov.py": 3 * 4,  # in parts
        "tests/sanitizer/small_halo.py": 3 * 2,  # ranks
    }
