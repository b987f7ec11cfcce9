"""The examples, run as a user runs them."""

import re
import shutil
import sys
from pathlib import Path

import launch
import petsc4py
import pytest

import petsc_gpufmt

EXAMPLES = Path(__file__).parents[1] / "examples"
DOCS = Path(__file__).parents[1] / "docs"
LIBRARY = petsc_gpufmt.library_path()
GRID = ["-da_grid_x", 11, "-da_grid_y", 9, "-da_grid_z", 10]
# With the aggregates of agg on several ranks, too
GAMG = ["-ksp_type", "cg", "-pc_type", "gamg", "-pc_gamg_gpufmt_order", "petsc"]


def bratu(ranks, matrix_type, *options):
    """Newton iterations, linear iterations, reason, largest value of the solution and vector type of bratu3d.py."""
    command = [sys.executable, EXAMPLES / "bratu3d.py", *GRID, "-dm_mat_type", matrix_type, *options]
    finished = launch.run(command, ranks=ranks)
    assert finished.status == 0, str(finished)
    newton, linear = re.search(r"Newton iterations (\d+), linear iterations (\d+)", finished.output).groups()
    reason = re.search(r"converged reason (\w+)", finished.output)[1]
    largest = re.search(r"solution min \S+, max (\S+)", finished.output)[1]
    printed_type = re.search(r"matrix type (\w+)", finished.output)[1]
    assert printed_type == ("seqaij" if ranks == 1 else "mpiaij") + matrix_type.removeprefix("aij")
    return int(newton), int(linear), reason, float(largest), re.search(r"vector type (\w+)", finished.output)[1]


@pytest.mark.mpi
@pytest.mark.parametrize("options", [[], GAMG], ids=["default", "gamg"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_bratu3d_is_the_same_with_pjds_and_aij(ranks, options):
    expected = bratu(ranks, "aij", *options)
    found = bratu(ranks, "pjds", *options)
    assert found[:3] == expected[:3]
    assert found[3] == pytest.approx(expected[3], rel=1e-10)
    assert expected[2].startswith("CONVERGED")


@pytest.mark.gpu
@pytest.mark.mpi
@pytest.mark.parametrize(("ranks", "matrix_type"), [(1, "pjds"), (2, "pjds"), (1, "aijcusparse")])
def test_bratu3d_is_the_same_on_a_device(ranks, matrix_type):
    gamg = [*GAMG, "-mg_levels_pc_type", "jacobi"]
    expected = bratu(ranks, "aij", *gamg, "-device_enable", "none")
    found = bratu(ranks, matrix_type, *gamg)
    assert (found[4], expected[4]) == (("seqcuda", "seq") if ranks == 1 else ("mpicuda", "mpi"))
    assert found[0] == expected[0] and abs(found[1] - expected[1]) <= 1 and found[2] == expected[2]
    assert found[3] == pytest.approx(expected[3], rel=1e-8)


@pytest.mark.mpi
def test_bratu3d_jacobian_agrees_with_finite_differences():
    grid = ["-da_grid_x", 6, "-da_grid_y", 5, "-da_grid_z", 4]
    finished = launch.run([sys.executable, EXAMPLES / "bratu3d.py", *grid, "-snes_test_jacobian"], ranks=2)
    ratios = re.findall(r"\|\|J - Jfd\|\|_F/\|\|J\|\|_F = (\S+),", finished.output)
    assert ratios, str(finished)
    assert max(map(float, ratios)) < 1e-7


@pytest.mark.mpi
def test_bratu3d_finds_its_jacobian_by_differences_if_asked():
    options = ["-dm_mat_type", "pjds", "-snes_fd_color"]
    finished = launch.run([sys.executable, EXAMPLES / "bratu3d.py", *GRID, *options], ranks=2)
    assert "CONVERGED" in finished.output, str(finished)


@pytest.mark.mpi
def test_bratu3d_takes_the_type_from_mat_type_too():
    finished = launch.run([sys.executable, EXAMPLES / "bratu3d.py", *GRID, "-mat_type", "pjds"], ranks=2)
    assert "matrix type mpiaijpjds" in finished.output, str(finished)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-par", 7], "-par 7 is out of range"),
        (["-da_grid_x", 1], "must be at least 2"),
        (["-dm_mat_type", "pjdz"], "pjdz"),
        (["-dm_mat_type", "pjds", "-mat_pjds_slice_height", 33], "-mat_pjds_slice_height 33"),
        (["-dm_mat_type", "pjds", "-mat_pjds_sigma_window", -2], "-mat_pjds_sigma_window -2"),
    ],
    ids=["lambda", "grid", "type", "slice_height", "sigma_window"],
)
def test_bratu3d_refuses_bad_values(options, message):
    finished = launch.run([sys.executable, EXAMPLES / "bratu3d.py", *GRID, *options], ranks=2)
    assert finished.status != 0, str(finished)
    assert message in finished.output, str(finished)


def elasticity(ranks, matrix_type, *options):
    """(iterations, lowest displacement) of both solves of elasticity3d.py."""
    command = [sys.executable, EXAMPLES / "elasticity3d.py", "-ne", 6, "-dm_mat_type", matrix_type, *options]
    finished = launch.run(command, ranks=ranks)
    assert finished.status == 0, str(finished)
    printed_type = re.search(r"matrix type (\w+)", finished.output)[1]
    assert printed_type == ("seqaij" if ranks == 1 else "mpiaij") + matrix_type.removeprefix("aij")
    solves = re.findall(r"iterations (\d+), .* displacement (\S+)", finished.output)
    assert len(solves) == 2, str(finished)
    return [(int(iterations), float(lowest)) for iterations, lowest in solves]


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_elasticity3d_is_the_same_with_pjds_and_aij(ranks):
    jacobi = ["-mg_levels_pc_type", "jacobi"]
    agg = ["-pc_gamg_gpufmt_order", "petsc"]
    expected = elasticity(ranks, "aij", *jacobi)
    for options, more in (([], 2), (agg, 0), ([*agg, "-matmatmult_via", "rmerge", "-matptap_via", "rmerge"], 1)):
        found = elasticity(ranks, "pjds", *jacobi, *options)
        for (iterations, lowest), (aij_iterations, aij_lowest) in zip(found, expected, strict=True):
            assert abs(iterations - aij_iterations) <= more
            assert lowest == pytest.approx(aij_lowest, rel=1e-5)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("options", "message"),
    [(["-ne", 1], "-ne 1 is out of range"), (["-alpha", 0], "-alpha 0 is out of range")],
    ids=["elements", "stiffness"],
)
def test_elasticity3d_refuses_bad_values(options, message):
    finished = launch.run([sys.executable, EXAMPLES / "elasticity3d.py", *options], ranks=2)
    assert finished.status != 0, str(finished)
    assert message in finished.output, str(finished)


@pytest.mark.slow
def test_elasticity3d_elements_take_no_energy_from_rigid_motions_and_the_right_one_from_stretching():
    program = """
import numpy as np, elasticity3d as e
K = e.element_stiffness(0.5).transpose(0, 2, 1, 3).reshape(24, 24)
place = 0.5 * e.CORNERS[:, ::-1]  # x, y, z
turned = [np.cross(axis, place) for axis in np.eye(3)]
for mode in [np.tile(axis, (8, 1)) for axis in np.eye(3)] + turned:
    assert np.abs(K @ mode.ravel()).max() < 1e-14, mode
assert np.allclose(K, K.T) and np.linalg.matrix_rank(K, tol=1e-10) == 18
stretch = (place * [1.0, 0.0, 0.0]).ravel()
nu = e.POISSON_RATIO
assert np.isclose(stretch @ K @ stretch, 0.5**3 * (1 - nu) / ((1 + nu) * (1 - 2 * nu)))
"""
    finished = launch.run([sys.executable, "-c", program], cwd=EXAMPLES, PYTHONSAFEPATH="")
    assert finished.status == 0, str(finished)


@pytest.mark.mpi
def test_log_view_comparison_reports_agreement():
    command = [sys.executable, EXAMPLES / "log_view_comparison.py", "--grid", 12]
    finished = launch.run([*command, "-ksp_type", "cg", "-pc_type", "jacobi"])
    assert finished.status == 0, str(finished)
    assert "pjds agrees with aij: iterations equal" in finished.output
    for event in ("MatMult", "KSPSolve", "SNESSolve", "GpufmtPlan", "GpufmtRefresh"):
        assert re.search(rf"^{event} .*\d", finished.output, re.MULTILINE), f"{event} is missing\n{finished}"
    counts = re.search(r"^MatMult +(\d+) +\S+ +\S+ +(\d+) ", finished.output, re.MULTILINE).groups()
    assert counts[0] == counts[1] != "0"


@pytest.mark.mpi
def test_log_view_comparison_fails_when_a_run_fails():
    command = [sys.executable, EXAMPLES / "log_view_comparison.py", "--grid", 9, "--ranks", 1, "--types", "aij", "none"]
    finished = launch.run(command)
    assert finished.status == 1, str(finished)
    assert "none: the run failed" in finished.output


def test_log_view_comparison_judges_differences(monkeypatch, tmp_path, capsys):
    comparison = load_comparison()
    runs = {"aij": comparison.Run("aij", 3, 40, tmp_path), "pjds": comparison.Run("pjds", 3, 41, tmp_path)}
    monkeypatch.setattr(sys, "argv", ["log_view_comparison.py"])
    monkeypatch.setattr(comparison, "run_bratu", lambda arguments, options, name, folder: runs[name])
    for linear, difference, status in ((40, 1e-14, 0), (41, 1e-14, 1), (40, 1e-6, 1)):
        runs["pjds"].linear = linear
        monkeypatch.setattr(comparison, "relative_difference", lambda *paths, value=difference: value)
        assert comparison.main() == status
        assert ("DIFFERS" in capsys.readouterr().out) == bool(status)


def test_log_view_comparison_reads_gpu_columns(tmp_path):
    """Two lines in the layout of PETSc's text -log_view with a device."""
    text = tmp_path / "log.txt"
    header = "Event   Count  Time (sec)  Flop  --- Global ---  Total   GPU    - CpuToGpu -   - GpuToCpu - GPU\n"
    line = (
        "MatMult     702 1.0 1.29e-01 1.0 1.9e+10 1.0 0.0e+00 0.0e+00 0.0e+00 14 70  0  0  0  14 70  0  0  0 147000"
        " 151000      3 5.00e+02    0 0.00e+00 100\n"
    )
    comparison = load_comparison()
    text.write_text(header + line)
    assert comparison.read_log_gpu_columns(text) == {"MatMult": ["151000", "3", "5.00e+02", "0", "0.00e+00", "100"]}
    text.write_text(line)
    assert comparison.read_log_gpu_columns(text) == {}


def load_comparison():
    import importlib.util

    spec = importlib.util.spec_from_file_location("log_view_comparison", EXAMPLES / "log_view_comparison.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def c_programs(tmp_path_factory):
    """Both builds of examples/c, in a copy of the folder."""
    return build("c", tmp_path_factory)


def build(language, tmp_path_factory):
    folder = tmp_path_factory.mktemp(language)
    for source in ("Makefile", *(path.name for path in (EXAMPLES / language).glob("poisson2d.*"))):
        shutil.copy(EXAMPLES / language / source, folder)
    config = petsc4py.get_config()
    variables = {**config, "GPUFMT_DIR": LIBRARY.parent, "PYTHON": sys.executable}
    finished = launch.run(["make", *(f"{name}={value}" for name, value in variables.items())], cwd=folder)
    assert finished.status == 0, str(finished)
    return folder


def poisson(folder, program, ranks, *options, **environment):
    """(type, iterations, error) that poisson2d prints."""
    finished = launch.run([folder / program, "-n", 20, *options], ranks=ranks, **environment)
    assert finished.status == 0, str(finished)
    name, iterations, error = re.search(r"type (\w+), iterations (\d+), error (\S+)", finished.output).groups()
    return name, int(iterations), float(error)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_c_program_that_registers_the_types(c_programs, ranks):
    _, iterations, error = poisson(c_programs, "poisson2d", ranks, "-mat_type", "aij", *GAMG)
    found = poisson(c_programs, "poisson2d", ranks, "-mat_type", "pjds", *GAMG)
    assert found == ("seqaijpjds" if ranks == 1 else "mpiaijpjds", iterations, pytest.approx(error, rel=1e-8))
    assert error < 5e-3


@pytest.mark.mpi
def test_unmodified_c_program_with_dll_append(c_programs):
    arguments = ("poisson2d_unmodified", 2, "-mat_type", "pjds")
    expected = poisson(c_programs, "poisson2d_unmodified", 2, "-mat_type", "aij")
    by_option = poisson(c_programs, *arguments, "-dll_append", LIBRARY)
    by_environment = poisson(c_programs, *arguments, PETSC_OPTIONS=f"-dll_append {LIBRARY}")
    assert by_option == by_environment == ("mpiaijpjds", expected[1], pytest.approx(expected[2], rel=1e-8))


@pytest.mark.mpi
def test_unmodified_c_program_does_not_know_the_type_by_itself(c_programs):
    finished = launch.run([c_programs / "poisson2d_unmodified", "-mat_type", "pjds"], ranks=1)
    assert finished.status != 0
    assert "Unknown Mat type given: pjds" in finished.output


@pytest.mark.mpi
def test_c_program_shows_the_options_in_its_help(c_programs):
    finished = launch.run([c_programs / "poisson2d", "-mat_type", "pjds", "-help"], ranks=2)
    assert "-mat_pjds_slice_height: <now 0 : formerly 0>" in finished.output, str(finished)
    assert "-mat_pjds_sigma_window: <now 0 : formerly 0>" in finished.output
    assert re.search("-mat_pjds_index: <now auto : .* \\(choose one of\\) auto full short pattern", finished.output)
    modes = "overlap, vector, task, peer"
    assert re.search(f"-mat_halo_mode: <now (overlap|peer) : .* \\(choose one of\\) {modes}", finished.output)


@pytest.mark.mpi
def test_fortran_program(tmp_path_factory):
    config = petsc4py.get_config()
    header = Path(config["PETSC_DIR"], config["PETSC_ARCH"], "include/petscconf.h").read_text()
    if "PETSC_USE_FORTRAN_BINDINGS" not in header:
        pytest.skip("this PETSc has no Fortran bindings")
    folder = build("fortran", tmp_path_factory)
    _, iterations, error = poisson(folder, "poisson2d", 2, "-mat_type", "aij")
    found = poisson(folder, "poisson2d", 2, "-mat_type", "pjds")
    assert found == ("mpiaijpjds", iterations, pytest.approx(error, rel=1e-8))


@pytest.mark.mpi
def test_the_example_of_the_page_of_distributions_runs(tmp_path):
    fences = re.findall(r"^```(\w*)\n(.*?)^```", (DOCS / "distribution.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "program.py").write_text("".join(text for kind, text in fences if kind == "python"))
    finished = launch.run([sys.executable, tmp_path / "program.py"], ranks=2)
    assert finished.status == 0, str(finished)
    (printed,) = (text for kind, text in fences if not kind)
    assert printed in finished.output, str(finished)
