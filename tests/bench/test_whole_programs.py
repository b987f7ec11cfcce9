"""``bench programs``: what runs in which order, what is made of the times, and programs that cannot be measured."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from petsc_gpufmt.bench import compiled, pairs, programs, results
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.pairs import Setting, compare, measure_program, new_case, summary
from petsc_gpufmt.bench.programs import PROGRAMS, find_source, parse_program, programs_of_set
from petsc_gpufmt.bench.report.programs_tables import programs_sections
from petsc_gpufmt.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"

STAND_IN = """#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in
    -mat_type) type=$2 ;;
    -log_view) log=${2#:} ;;
  esac
  shift
done
echo "$type${CUPY_CACHE_DIR:+ cold}${CUPY_CACHE_DIR:+$(ls "$CUPY_CACHE_DIR" 2>/dev/null)}" >>"FOLDER/calls"
case $type in
  bsr) echo "[0]PETSC ERROR: #1 PCSetUp() at file.c:1"; exit 76 ;;
  jds) sleep 60 ;;
esac
printf 'Stage Name,Event Name,Rank,Count,Time\\nMain,MatMult,0,2,0.5\\n' >"${log%:ascii_csv}"
echo '{"load": 0.25, "mult1": 0.125}'
"""


def test_a_program_that_prints_no_line_of_json_is_an_error(monkeypatch):
    program = next(program for program in PROGRAMS.values() if program.prints_steps)
    monkeypatch.setattr(programs, "run_program", lambda *_: SimpleNamespace(seconds=1.0, output="no line\n"))
    monkeypatch.setattr(programs, "read_csv_events", lambda *_: {})
    monkeypatch.setattr(programs, "read_iterations", lambda _: {})
    with pytest.raises(programs.ProgramError, match="0 lines of JSON, one was expected"):
        programs.run_once(["program"], program, 1.0)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A program that writes down what it was called with; with bsr it fails, with jds it hangs."""
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    path = tmp_path / "program"
    path.write_text(STAND_IN.replace("FOLDER", str(tmp_path)))
    path.chmod(0o755)
    return path


def measure(executable, *types, **changes):
    setting = {"on_device": False, "pairs": 3, "cold": 1, "limit": 20.0} | changes
    case = new_case(chosen := Setting(PROGRAMS["first"], 7, executable, types, **setting))
    saved: list[int] = []
    wrong = measure_program(chosen, case, lambda line: None, lambda: saved.append(1))
    return case, wrong, saved


def test_order_of_the_runs(stand_in):
    case, wrong, saved = measure(stand_in, "aij", "pjds", "gpufmt")
    warm_up, cold = ["aij", "pjds", "gpufmt"], ["pjds cold", "gpufmt cold"]
    turns = [*warm_up, *warm_up[::-1], *warm_up]
    assert stand_in.with_name("calls").read_text().splitlines() == [*warm_up, *cold, *turns]
    assert wrong == [] and len(saved) == 4
    aij, pjds, gpufmt = case["entries"]
    assert [entry["ours"] for entry in case["entries"]] == [False, True, True]
    assert "cold" not in aij and "ratio" not in aij
    for entry in (pjds, gpufmt):
        assert len(entry["cold"]["seconds"]) == 1 and len(entry["warm"]["seconds"]) == 3
        assert entry["warm"]["events"] == {"MatMult": {"count": 2, "seconds": 0.5}}
        assert entry["warm"]["steps"] == {"load": 0.25, "mult1": 0.125}
        assert entry["ratio"]["pairs"] == 3
    assert (case["peer"], case["place"], case["size"], case["ranks"]) == ("aij", "host", 7, 1)


def test_a_type_that_fails_or_hangs_is_left_out_and_the_others_go_on(stand_in):
    case, wrong, _ = measure(stand_in, "aij", "bsr", "jds", "pjds", limit=1.0, cold=0)
    calls = stand_in.with_name("calls").read_text().splitlines()
    assert [calls.count(name) for name in ("aij", "bsr", "jds", "pjds")] == [4, 1, 1, 4]
    _, bsr, jds, pjds = case["entries"]
    assert bsr["skipped"] == "status 76, [0]PETSC ERROR: #1 PCSetUp() at file.c:1"
    assert jds["skipped"] == "no end after 1 s"
    assert pjds["ratio"]["pairs"] == 3
    assert wrong == [f"first 7, {entry['mat_type']}: {entry['skipped']}" for entry in (bsr, jds)]


def test_nothing_goes_on_once_all_have_failed(stand_in):
    stand_in.write_text("#!/bin/bash\nexit 1\n")
    case, wrong, saved = measure(stand_in, "aij", "pjds")
    assert [entry["skipped"] for entry in case["entries"]] == ["status 1"] * 2
    assert wrong == ["first 7, pjds: status 1"] and len(saved) == 1


def test_a_peer_that_fails_is_no_fault_of_ours(stand_in):
    case, wrong, _ = measure(stand_in, "bsr", "pjds", cold=0)
    assert wrong == [] and "ratio" not in case["entries"][1]
    assert len(case["entries"][1]["warm"]["seconds"]) == 3


def test_ratios_are_of_pairs():
    entries = [
        {"warm": {"seconds": [1.0, 2.0, 4.0]}},
        {"warm": {"seconds": [2.0, 3.0, 2.0]}},
        {"warm": {"seconds": [3.0]}},
        {},
    ]
    compare(entries)
    assert entries[1]["ratio"] == {"pairs": 3, "median": 1.5, "least": 0.5, "largest": 2.0}
    assert entries[2]["ratio"] == {"pairs": 1, "median": 3.0, "least": 3.0, "largest": 3.0}
    assert "ratio" not in entries[0] and "ratio" not in entries[3]


def test_seconds_outside_of_the_solver():
    def run(seconds, solve):
        return {"seconds": seconds, "steps": {}, "events": {"SNESSolve": {"count": 1, "seconds": solve}}}

    assert summary([run(5.0, 4.0), run(9.0, 2.0), run(6.0, 4.0)])["outside_seconds"] == 2.0
    without = {"seconds": 1.0, "steps": {}, "events": {}}
    assert summary([without])["outside_seconds"] is None


def test_iterations_that_differ_are_wrong(stand_in, monkeypatch):
    def run_once(command, program, limit, caches=None):
        krylov = 10 if command[4] == "aij" else 30
        counts = {"newton_iterations": 3, "krylov_iterations": krylov}
        return {"seconds": 1.0, "events": {}, "steps": {}, **counts}

    monkeypatch.setattr(pairs, "run_once", run_once)
    _, wrong, _ = measure(stand_in, "aij", "pjds")
    assert len(wrong) == 1 and wrong[0].startswith("first 7: iterations differ: aij 3 Newton, 10 Krylov")


def test_options_of_the_places():
    ex14, ex19 = PROGRAMS["ex14-gamg"], PROGRAMS["ex19"]
    host = ex14.command(Path("ex14"), 8, "pjds", False)
    assert host[0] == "ex14" and host[3:7] == ["-mat_type", "pjds", "-device_enable", "none"]
    assert " ".join(host).count("-da_grid_") == 3 and host[8] == "8"
    on_device = ex19.command(Path("ex19"), 7, "aijbsr", True)
    assert on_device[3:6] == ["-dm_mat_type", "aijbsr", "-dm_vec_type"] and "-device_enable" not in on_device
    ours, petscs = (PROGRAMS["ex14-gpucg"].command(Path("ex14"), 8, name, False) for name in ("aijpjds", "aij"))
    assert ours[-2:] == ["-ksp_type", "gpucg"] and "gpucg" not in petscs
    assert "-dm_vec_type" not in PROGRAMS["first"].command(Path("first"), 8, "pjds", True)


def test_the_first_run_shows_what_the_others_must_not_spend_time_on(monkeypatch):
    commands = []

    def run_once(command, program, limit, caches=None):
        commands.append(command)
        counts = {"newton_iterations": 3, "krylov_iterations": 10}
        complexity = {"operator_complexity": 1.25} if "-ksp_view" in command else {}
        return {"seconds": 1.0, "events": {"PCSetUp": {"count": 1, "seconds": 0.5}}, "steps": {}} | counts | complexity

    class Watch:
        most_bytes = 2_500_000_000

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

    monkeypatch.setattr(pairs, "run_once", run_once)
    monkeypatch.setattr(pairs, "MemoryWatch", Watch)
    setting = Setting(
        PROGRAMS["ex14-gamg"], 7, Path("ex14"), ("aij", "pjds"), False, 2, 0, 1.0, 2, "mpiexec --oversubscribe"
    )
    shown = []
    assert measure_program(setting, case := new_case(setting), shown.append, lambda: None) == []
    assert all(command[:4] == ["mpiexec", "--oversubscribe", "-n", "2"] for command in commands)
    assert [command[-2:] == ["-log_view_gpu_time", "-ksp_view"] for command in commands] == [True] * 2 + [False] * 4
    (observed,) = {str(entry["observed"]): entry["observed"] for entry in case["entries"]}.values()
    assert observed["operator_complexity"] == 1.25 and observed["device_bytes"] == 2_500_000_000
    assert observed["events"]["PCSetUp"]["seconds"] == 0.5 and case["ranks"] == 2
    assert "operator complexity 1.25, 2500 MB of the device" in shown[0]


def test_a_set_has_its_sizes_on_a_device_and_one_size_on_the_host():
    on_device = [(program.name, size) for program, size in programs_of_set("gamg", on_device=True)]
    assert ("bratu3d", 200) in on_device and ("ex14-gamg", 128) in on_device
    on_host = [(program.name, size) for program, size in programs_of_set("gamg", on_device=False)]
    assert on_host == [(name, None) for name in dict.fromkeys(name for name, _ in on_device)]


def test_programs_in_python_are_run_by_this_python():
    command = PROGRAMS["bratu3d"].command(Path("bratu3d.py"), 8, "pjds", False)
    assert command[:4] == [sys.executable, "bratu3d.py", "-dm_mat_type", "pjds"] and "-dll_append" not in command


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--program-set", "all"], "--program-set all: there is no such set, choose from gamg"),
        (["--ranks", "0"], "--ranks 0: give at least 1"),
        (["--program", "bratu3d", "--examples", "/absent"], "bratu3d: bratu3d.py is not in /absent: name its folder"),
        (["--program", "ex15"], "--program ex15: there is no such program, choose from first, "),
        (["--program", "first:0"], "--program first:0: '0' is no size, give a positive number of rows"),
        (["--program", "first:"], "--program first:: '' is no size"),
        (["--program", "first:-3"], "'-3' is no size"),
        (["--type", "aijcusparse"], "--type aijcusparse: this is no type of ours, choose from "),
        (["--pairs", "0"], "--pairs 0: give at least 1"),
        (["--cold", "-1"], "--cold -1: give at least 0"),
        (["--seconds", "0.5"], "--seconds 0.5: give at least 1"),
        (["--program", "ex19", "--petsc-source", "/absent"], "ex19: src/snes/tutorials/ex19.c is not in /absent: name"),
        (["--program", "first", "--json", "/dev/null/results.json"], "--json /dev/null/results.json: cannot be"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(capsys, words, text):
    assert main(["bench", "programs", "--host", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("petsc_gpufmt: ") and text in error and error.count("\n") == 1


def test_a_missing_compiler_is_said_in_one_line(capsys, monkeypatch):
    monkeypatch.setenv("MPICC", "/absent/mpicc")
    assert main(["bench", "programs", "--host", "--program", "first"]) == 2
    error = capsys.readouterr().err
    assert "first.c does not compile" in error and "MPICC" in error and error.count("\n") == 1


def test_sources_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(programs.petsc4py, "get_config", lambda: {"PETSC_DIR": str(tmp_path / "petsc")})
    monkeypatch.delenv("PETSC_SRC", raising=False)
    assert all(find_source(PROGRAMS[name], None, tmp_path).is_file() for name in ("first", "laplacian-7point"))
    assert find_source(PROGRAMS["bratu3d"], None, EXAMPLES) == EXAMPLES / "bratu3d.py"
    with pytest.raises(BenchError, match="ex56: src/ksp/ksp/tutorials/ex56.c is not in .*petsc.*--petsc-source"):
        find_source(PROGRAMS["ex56"], None, EXAMPLES)
    for name in ("petsc/share/petsc/examples", "given"):
        (tmp_path / name / "src/ksp/ksp/tutorials").mkdir(parents=True)
        (tmp_path / name / "src/ksp/ksp/tutorials/ex56.c").touch()
    assert "share" in str(find_source(PROGRAMS["ex56"], None, EXAMPLES))
    monkeypatch.setenv("PETSC_SRC", str(tmp_path / "given"))
    assert "given" in str(find_source(PROGRAMS["ex56"], None, EXAMPLES))
    assert "given" in str(find_source(PROGRAMS["ex56"], tmp_path / "given", EXAMPLES))


def test_programs_without_sources_are_left_out_unless_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("petsc_gpufmt.bench.compiled.compile_program", lambda source, folder: Path("absent"))
    measured = []
    monkeypatch.setattr(pairs, "measure_program", lambda setting, *rest: measured.append(setting.program.name) or [])
    assert main(["bench", "programs", "--host", "--petsc-source", str(tmp_path), "--examples", str(tmp_path)]) == 0
    assert measured == ["first", "first-after-1s", "laplacian-7point", "laplacian-27point", "new-values"]
    assert capsys.readouterr().out.count("Left out: ") == 7


def test_sizes_and_types_that_are_asked_for(monkeypatch):
    assert parse_program("ex14-gamg:64") == (PROGRAMS["ex14-gamg"], 64)
    monkeypatch.setattr("petsc_gpufmt.bench.compiled.compile_program", lambda source, folder: Path("absent"))
    measured = []
    monkeypatch.setattr(pairs, "measure_program", lambda setting, *rest: measured.append(setting) or [])
    command = [
        "bench",
        "programs",
        "--host",
        "--program",
        "first:9",
        "--type",
        "bsr",
        "--type",
        "aijjds",
        "--pairs",
        "7",
    ]
    assert main([*command, "--cold", "0", "--seconds", "3"]) == 0
    assert (measured[0].size, measured[0].types, measured[0].pairs) == (9, ["aij", "bsr", "aijjds"], 7)
    assert (measured[0].cold, measured[0].limit) == (0, 3.0)
    assert main(["bench", "programs", "--host", "--program", "first"]) == 0
    assert (measured[1].size, measured[1].types, measured[1].pairs) == (1000, ["aij", "pjds"], 5)


def test_programs_are_kept_apart(tmp_path, monkeypatch):
    """Later ones, with another number of pairs, leave those of before in the file; sizes are cases of one run."""
    monkeypatch.setattr("petsc_gpufmt.bench.compiled.compile_program", lambda source, folder: Path("absent"))
    monkeypatch.setattr(pairs, "measure_program", lambda *rest: [])
    path = tmp_path / "results.json"

    def measured(*words):
        assert main(["bench", "programs", "--host", "--json", str(path), *words]) == 0
        return {run["name"]: [case["size"] for case in run["cases"]] for run in results.read_runs(path)}

    measured("--program", "first:3", "--program", "first:4")
    measured("--program", "first-after-1s")
    found = measured("--program", "first:5", "--ranks", "2")
    assert found == {"programs, first": [3, 4], "programs, first-after-1s": [1000], "programs, first, 2 ranks": [5]}
    assert measured("--program", "first:3", "--program", "first:6")["programs, first"] == [4, 3, 6]
    assert measured("--program", "first:4", "--commit", "another")["programs, first"] == [4]


@pytest.mark.slow
def test_a_program_of_ours_from_end_to_end(tmp_path, capsys):
    path = tmp_path / "results.json"
    command = ["bench", "programs", "--host", "--program", "first:50", "--pairs", "2", "--json", str(path)]
    assert main(command) == 0
    (run,) = results.read_runs(path)
    (case,) = run["cases"]
    aij, pjds = case["entries"]
    assert (run["name"], aij["mat_type"], pjds["mat_type"]) == ("programs, first", "aij", "pjds")
    assert set(pjds["warm"]["steps"]) >= {"load", "create", "mult1", "mult2", "finalize"}
    assert pjds["warm"]["events"]["GpufmtPlan"]["count"] == 1 and "GpufmtPlan" not in aij["warm"]["events"]
    assert pjds["ratio"]["pairs"] == 2 and pjds["ratio"]["median"] > 0
    steps = pjds["warm"]["steps"]
    assert sum(steps.values()) <= max(pjds["warm"]["seconds"])
    assert "pair 2: aij " in capsys.readouterr().out
    whole, first = programs_sections([run])
    assert "| first | 50 | pjds | 2 | " in whole and "| first | 50 | aij | " in first


@pytest.mark.slow
def test_set_ups_and_new_values_from_end_to_end(tmp_path):
    path = tmp_path / "results.json"
    chosen = [word for spec in ("laplacian-27point:6", "new-values:6", "bratu3d:6") for word in ("--program", spec)]
    command = ["bench", "programs", "--host", *chosen, "--type", "pjds", "--examples", str(EXAMPLES)]
    assert main([*command, "--pairs", "1", "--cold", "0", "--json", str(path)]) == 0
    set_ups, values, bratu = (run["cases"][0]["entries"] for run in results.read_runs(path))
    for aij, pjds in (set_ups, bratu):
        assert pjds["krylov_iterations"] == aij["krylov_iterations"] > 0
        assert pjds["observed"]["operator_complexity"] == aij["observed"]["operator_complexity"] > 1
    steps = [f"{step}{number}" for number in (1, 2) for step in ("set_up", "solve", "symbolic", "numeric")]
    assert list(set_ups[1]["warm"]["steps"]) == ["coordinates", "first_product", *steps]
    assert list(values[1]["warm"]["steps"]) == ["coordinates", "first_product", "values_and_mult", "mult"]
    assert all(seconds > 0 for entry in (*set_ups, *values) for seconds in entry["warm"]["steps"].values())
    assert bratu[1]["warm"]["events"]["SNESJacobianEval"]["count"] == bratu[1]["newton_iterations"]


@pytest.mark.slow
def test_options_out_of_range_are_refused(tmp_path):
    program = compiled.compile_program(find_source(PROGRAMS["laplacian-7point"], None, EXAMPLES), tmp_path)
    for words, text in (
        ("-stencil 5", "choose 7 or 27"),
        ("-n 0", "give at least 1"),
        ("-new_values -1", "not below 0"),
    ):
        with pytest.raises(BenchError, match=f"{words}: {text}"):
            compiled.run_program([str(program), *words.split()], 60)


@pytest.mark.petsc
def test_tutorials_from_end_to_end(tmp_path):
    """Small ones, with the options of the large ones: iterations are those of aij."""
    if not os.environ.get("PETSC_SRC"):
        pytest.skip("PETSC_SRC is not set: the sources of the tutorials")
    path = tmp_path / "results.json"
    chosen = [word for spec in ("ex14-gamg:9", "ex14-jacobi:9", "ex19:1", "ex56:3") for word in ("--program", spec)]
    assert main(["bench", "programs", "--host", *chosen, "--pairs", "1", "--cold", "0", "--json", str(path)]) == 0
    cases = [case for run in results.read_runs(path) for case in run["cases"]]
    assert [case["program"] for case in cases] == ["ex14-gamg", "ex14-jacobi", "ex19", "ex56"]
    for case in cases:
        for entry in case["entries"]:
            assert entry["krylov_iterations"] and entry["warm"]["events"]["KSPSolve"]["count"]
            assert ("GpufmtPlan" in entry["warm"]["events"]) == entry["ours"]


def test_help_names_all_programs(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "programs", "--help"])
    words = capsys.readouterr().out.replace(",", " ").split()
    assert [name for name in PROGRAMS if name not in words] == []
