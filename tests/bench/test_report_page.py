"""``bench report``: a page and a picture of results, and results that are damaged; progress on a terminal."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench import command  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.report import fastest, pictures  # noqa: E402
from petsc_gpufmt.bench.report.page import make_page, shown_runs  # noqa: E402
from petsc_gpufmt.bench.results import read_runs, save_run  # noqa: E402
from petsc_gpufmt.cli import bench_report  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def product(name, ours, us, **changes):
    seconds = {"median_seconds": us * 1e-6, "least_seconds": us * 0.9e-6, "largest_seconds": us * 2e-6}
    seconds |= {"back_to_back_seconds": us * 1e-6, "host_seconds": 1e-6, "bytes_per_second": 1e12}
    return {"name": name, "place": "cuda", "ours": ours, "correct": True, **seconds} | changes


def some_run(name="mult", *products):
    matrix = {"name": "7-point 9^3", "nrows": 729, "nnz": 4779, "longest_row": 7, "block_size": 1, "csr_bytes": 72000}
    wrong = product("csr", True, 1, correct=False)
    given = products or (
        product("pjds", True, 4),
        product("aijcusparse", False, 10),
        wrong,
    )
    case = {"matrix": matrix, "products": [*given, product("aij", False, 0.1, place="host")], "storage": []}
    environment = {"gpu": "GPU", "petsc": "3.26.1", "date": "2026"}
    return {
        "name": name,
        "cases": [case],
        "environment": environment,
        "copy_bytes_per_second": {"cuda": 4e12, "host": 1e10},
    }


def test_page_opens_with_the_fastest_and_the_picture(tmp_path, capsys):
    save_run(results := tmp_path / "results.json", some_run())
    page, picture = tmp_path / "page.md", tmp_path / "page.svg"
    with_plot = ["--plot", str(picture)] if importable("matplotlib") else []
    assert main(["bench", "report", str(results), "--output", str(page), *with_plot]) == 0
    text = page.read_text()
    head, _, rest = text.partition("## MatMult from Python")
    assert "- 7-point 9^3: fastest is pjds; pjds 4 us, aijcusparse 10 us, 2.50 times as fast\n" in head
    assert "| 7-point 9^3 | pjds | cuda | 4.00 | 4.00 | 1.00 | 1.000 | 0.25 | 3.60-8.00 |" in rest
    assert "| gpu | GPU |" in rest and "WRONG RESULT" in rest
    if with_plot:
        assert head.endswith("![mult](page.svg)\n\n")
        drawn = picture.read_text()
        for words in ("mult: roofline", "mult: times as fast as the best peer", "7-point 9^3: pjds / aijcusparse"):
            assert words in drawn
    assert capsys.readouterr().out == ""
    assert main(["bench", "report", str(results), str(results)]) == 0
    assert capsys.readouterr().out == text.replace("![mult](page.svg)\n\n", "")


def importable(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def test_the_fastest_of_all_is_named():
    def of(*products):
        (found,) = fastest.of_run(some_run("mult", *products))
        return fastest.line(found)

    ours, peer = product("pjds", True, 4), product("csr", False, 2)
    assert of(ours, peer) == "7-point 9^3: fastest is csr; pjds 4 us, csr 2 us, 0.50 times as fast"
    assert of(ours) == "7-point 9^3: pjds, 4 us; nothing to compare with"
    assert of(peer, product("pjds", True, 1, correct=False)) == "7-point 9^3: csr, 2 us; nothing to compare with"
    assert [fastest.in_unit(s) for s in (2.345e-6, 1.5e-3, 12.34)] == ["2.35 us", "1.5 ms", "12.3 s"]


@pytest.mark.parametrize("file", ["h200.json", "h200-ksp.json", "h200-programs.json", "h200-products.json"])
def test_pages_of_all_kinds_of_results(file):
    runs = shown_runs(read_runs(RESULTS / file))
    page = make_page(runs, Path("picture.svg"))
    assert page.startswith("# Results\n\n## Fastest\n") and page.count("picture.svg") == 1
    for run in runs:
        found = list(fastest.of_run(run))
        assert found and all(entry.ours for entry in found), run["name"]
        assert fastest.line(found[0]) in page


def test_pictures_have_a_panel_for_block_sizes_and_one_for_all_programs():
    bsr, second = some_run("bsr"), copy.deepcopy(some_run("bsr")["cases"][0])
    second["matrix"]["block_size"] = 4
    bsr["cases"].insert(0, second)
    assert pictures.block_times(bsr)["pjds"] == [(1, 4.0), (4, 4.0)]
    assert pictures.panels_of(bsr) == [pictures.draw_roofline, pictures.draw_blocks, pictures.draw_speedups]
    assert pictures.roofline_points(some_run())["pjds"] == [(2 * 4779 / 72000, pytest.approx(2 * 4779 / 4e-6 / 1e9))]
    programs = [{"name": f"programs, {name}", "cases": [name]} for name in "ab"]
    assert pictures.together([bsr, *programs]) == [bsr, {"name": "programs", "cases": ["a", "b"]}]


DEEP = "[" * 960 + "]" * 960


def damaged(change):
    document = {"schema": 1, "runs": [some_run()]}
    change(document["runs"][0])
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a file of results"),
        (damaged(lambda run: None)[:300], "is not a file of results"),
        ("[" * 100_000, "is not a file of results"),
        (damaged(lambda run: run.update(deep=0)).replace('"deep": 0', f'"deep": {DEEP}'), "is not a file of results"),
        (damaged(lambda run: run.update(nnz=10**400)), "has nnz 1e+300, which nothing has"),
        ('{"schema": ["' + "long " * 9999 + '"]}', "has schema"),
        ('{"schema": 1}', "its runs have to have a name and cases"),
        ('{"schema": 1, "runs": [{"name": 3, "cases": []}]}', "its runs have to have a name and cases"),
        ('{"schema": 1, "runs": [{"name": "mult", "cases": []}]}', "the results have no case of mult, bsr"),
        (damaged(lambda run: run.update(name="other")), "the results have no case of mult, bsr"),
        (damaged(lambda run: run.update(x=float("nan"))), "NaN is no result"),
        (damaged(lambda run: run.update(median_seconds=-1.0)), "run 'mult' has median_seconds -1, which nothing has"),
        (damaged(lambda run: run.update(host_seconds=1e20)), "has host_seconds 1e+20, which nothing has"),
        (damaged(lambda run: run.update({"n\n" * 99: 10**40})), "has n n n"),
        (damaged(lambda run: run.update(nnz=10**40)), "has nnz 1e+40, which nothing has"),
        (damaged(lambda run: run["cases"][0]["matrix"].pop("name")), "run 'mult' is damaged (KeyError: 'name')"),
        (damaged(lambda run: run["cases"].append(7)), "run 'mult' is damaged (TypeError: "),
        (damaged(lambda run: run.pop("copy_bytes_per_second")), "is damaged (KeyError: 'copy_bytes_per_second')"),
    ],
)
def test_damaged_results_are_refused_in_one_line(tmp_path, capsys, text, complaint):
    (path := tmp_path / "results.json").write_text(text)
    assert main(["bench", "report", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("petsc_gpufmt: ") and complaint in error and error.count("\n") == 1


def test_arguments_of_the_report_are_checked(tmp_path, capsys):
    save_run(results := tmp_path / "results.json", some_run())
    for words, complaint in (
        (["absent.json"], "absent.json is not a file of results"),
        ([results, "--output", results], f"--output {results}: this file has another use in this command"),
        ([results, "--output", "/proc/none/page.md"], "--output /proc/none/page.md: cannot be written"),
        ([results, "--output", tmp_path], "cannot be written (Is a directory)"),
    ):
        assert main(["bench", "report", *map(str, words)]) == 2
        error = capsys.readouterr().err
        assert complaint in error and error.count("\n") == 1, error


@pytest.mark.parametrize("benchmark", ["mult", "bsr", "spgemm", "programs", "ksp"])
def test_a_picture_that_cannot_be_drawn_is_found_out_before_measuring(benchmark, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", benchmark, "--host", "--plot", str(tmp_path / "a.svg")]) == 2
    error = capsys.readouterr().err
    assert "--plot needs matplotlib" in error and error.count("\n") == 1


@pytest.mark.slow
def test_a_benchmark_draws_what_it_measured(tmp_path):
    pytest.importorskip("matplotlib")
    for benchmark, words in (("mult", ["--matrix", "7point:3"]), ("bsr", ["--block-size", "2", "--entries", "9"])):
        picture = tmp_path / f"{benchmark}.svg"
        assert main(["bench", benchmark, "--host", *words, "--plot", str(picture)]) == 0
        assert f"{benchmark}: roofline" in picture.read_text()
    for name in ("a.doc", "none/a.svg"):
        assert main(["bench", "bsr", "--host", "--plot", str(tmp_path / name)]) == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["bsr", "--entries", "0"], "--entries 0: give at least 1"),
        (["programs", "--seconds", "nan"], "--seconds nan: give at least 1"),
        (["programs", "--seconds", "inf"], "--seconds inf: give at least 1"),
        (["programs", "--pairs", "0"], "--pairs 0: give at least 1"),
        (["ksp", "--seconds", "nan"], "--seconds nan: give at least 1"),
        (["ksp", "--rtol", "nan"], "--rtol nan: give a number between 0 and 1"),
        (["scaling", "--seconds", "nan"], "--seconds nan: give at least 1"),
        (["mult", "--matrix", "7point:99999999999999999999"], "7point:99999999999999999999"),
        (["spgemm", "--variant", "none"], "none"),
        (["mult", "--format", "pjds:slice_height=-1"], "pjds:slice_height=-1"),
    ],
)
def test_numbers_that_are_none_are_refused_before_measuring(words, text, capsys, monkeypatch):
    from petsc_gpufmt.bench import places

    monkeypatch.setattr(places, "available_places", lambda host_only: pytest.fail("measured"))
    assert main(["bench", words[0], "--host", *words[1:]]) == 2
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1, error


def test_progress_is_on_a_terminal_alone(capsys, monkeypatch):
    command.progress("7-point")
    command.show("done")
    assert capsys.readouterr().out == "done\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    command.progress("x" * 1000)
    command.show("done")
    shown = capsys.readouterr().out
    assert shown.startswith(command.ERASE_LINE + "... xxx") and "\n" not in shown[:-1]
    assert shown.endswith(command.ERASE_LINE + "done\n") and len(shown) < 1000


def test_a_picture_of_damaged_results_or_of_none_is_an_error_of_the_benchmark(tmp_path):
    run = some_run()
    del run["cases"][0]["products"][0]["ours"]
    with pytest.raises(BenchError, match="is damaged"):
        bench_report.plot(tmp_path / "picture.svg", [run])
    with pytest.raises(BenchError, match=r"picture.svg: the results have nothing to draw"):
        pictures.draw([], tmp_path / "picture.svg")


def test_damaged_runs_are_errors_of_the_benchmark():
    run = some_run()
    del run["cases"][0]["products"][0]["ours"]
    with pytest.raises(BenchError, match="is damaged"):
        make_page([run])
