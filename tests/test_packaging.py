"""What is built and shipped: the library, the wheel, the source distribution, and the search for PETSc."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import petsc_config
import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = "petsc_gpufmt/native/libpetscgpufmt.so"


def run(*command, cwd, check=True, **environment):
    """Runs a command with the PETSc of this environment unless PETSC_DIR is given; returns the finished process."""
    process = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if check:
        assert process.returncode == 0, process.stdout + process.stderr
    return process


def find_petsc(*python_options, petsc_dir="", petsc_arch="", **environment):
    program = ROOT / "tools" / "petsc_config.py"
    return run(
        *(sys.executable, *python_options, program),
        cwd=ROOT,
        check=False,
        PETSC_DIR=str(petsc_dir),
        PETSC_ARCH=petsc_arch,
        **environment,
    )


def make_petsc(folder, version=(3, 26, 1), shared=True, configured=True, compiler="cc"):
    """Writes the files by which a PETSc is known."""
    for name in ("include", "lib/petsc/conf"):
        (folder / name).mkdir(parents=True)
    parts = zip(("MAJOR", "MINOR", "SUBMINOR"), version, strict=True)
    header = "".join(f"#define PETSC_VERSION_{part} {number}\n" for part, number in parts)
    (folder / "include/petscversion.h").write_text(header)
    (folder / "include/petscconf.h").touch()
    if configured:
        (folder / "lib/petsc/conf/petscvariables").write_text(f"CC = {compiler}\n")
    (folder / "lib" / ("libpetsc.so" if shared else "libpetsc.a")).touch()
    return folder


def dynamic_section(library):
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not on PATH")
    return run("readelf", "-dW", library, cwd=ROOT).stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution, unpacked."""
    tree = tmp_path_factory.mktemp("tree") / "petsc_gpufmt"
    built = shutil.ignore_patterns(".git", ".venv", ".*_cache", "build", "dist", "*.egg-info", "__pycache__", "*.so")
    shutil.copytree(ROOT, tree, ignore=built)
    out = tmp_path_factory.mktemp("sdist")
    build = f"import setuptools.build_meta as backend; backend.build_sdist({str(out)!r})"
    run(sys.executable, "-c", build, cwd=tree, PETSC_DIR="/nowhere")
    with tarfile.open(next(out.glob("*.tar.gz"))) as archive:
        archive.extractall(out)
    return next(path for path in out.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory, testrun_uid):
    """The wheel built from the source distribution, once for all workers, and what the build printed."""
    out = tmp_path_factory.getbasetemp().parent / f"wheel-{testrun_uid}"
    out.mkdir(exist_ok=True)
    printed = out / "printed"
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            pip = (sys.executable, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "-w", out, sdist)
            process = run(*pip, cwd=sdist)
            printed.write_text(process.stdout + process.stderr)
    return next(out.glob("*.whl")), printed.read_text()


@pytest.mark.slow
def test_sdist_holds_every_file_of_the_project(sdist):
    folders = (".ci", "benchmarks", "docs", "examples", "kernels", "packaging", "petsc_gpufmt", "tests", "tools")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")] + list(ROOT.glob("*.*"))
    built = r"\.so$|\.o$|/__pycache__/|/kernels_compiled/|\.egg-info|\.py[co]$|^results/"
    sources = {path.relative_to(ROOT) for path in found if path.is_file() and not path.is_symlink()}
    sources = {path for path in sources if not re.search(built, str(path))}
    assert {Path("petsc_gpufmt/native/register.c"), Path("packaging/Containerfile"), Path(".ci/run")} <= sources
    unwanted = {Path(".gitignore"), Path(".git")}
    assert {path for path in sources - unwanted if not (sdist / path).is_file()} == set()


@pytest.mark.slow
def test_wheel_is_for_the_petsc_that_it_was_built_with(wheel, sdist):
    """So is its name, by which several lie in one folder; the source distribution is for all."""
    version = petsc_config.find_petsc().version
    major, minor = version[:2]
    assert f"-{petsc_config.dotted(version)}_" in wheel[0].name
    needs = {
        origin: set(re.findall(r"^Requires-Dist: ([^;\n]*)$", text, re.MULTILINE))
        for origin, text in (("sdist", (sdist / "PKG-INFO").read_text()), ("wheel", metadata(wheel[0])))
    }
    oldest = petsc_config.dotted(petsc_config.OLDEST)
    assert needs["sdist"] == {"numpy", f"petsc4py>={oldest}"}
    assert needs["wheel"] == {"numpy", f"petsc4py<{major}.{minor + 1},>={major}.{minor}"}


def metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return archive.read(name).decode()


@pytest.mark.slow
def test_wheel_holds_modules_kernels_and_library(wheel):
    names = set(zipfile.ZipFile(wheel[0]).namelist())
    modules = {str(path.relative_to(ROOT)) for path in ROOT.glob("petsc_gpufmt/**/*.py")}
    kernels = {f"petsc_gpufmt/{path.relative_to(ROOT)}" for path in ROOT.glob("kernels/*/*.cu*")}
    assert kernels
    data = {str(path.relative_to(ROOT)) for path in ROOT.glob("petsc_gpufmt/*/*.json")}
    assert {str(Path(name).parent) for name in data} == {"petsc_gpufmt/scaling", "petsc_gpufmt/tuning_data"}
    programs = {f"petsc_gpufmt/bench/{name}.c" for name in ("first", "laplacian")}  # which `bench programs` compiles
    assert modules | kernels | data | programs | {LIBRARY, "petsc_gpufmt/py.typed"} <= names
    built = [name for name in names if name.endswith((".c", ".o", ".key")) or name.startswith("benchmarks/")]
    assert set(built) == programs


@pytest.mark.slow
def test_wheel_is_of_this_platform(wheel):
    assert not wheel[0].name.endswith("none-any.whl")


@pytest.mark.slow
def test_library_compiles_without_warnings(wheel):
    assert "-Wextra" in wheel[1]
    warning = re.compile(r"/(?:petsc_gpufmt|kernels)/\S+ warning: ")
    assert warning.search("  tree/petsc_gpufmt/native/register.c:1:2: warning: unused")
    assert list(filter(warning.search, wheel[1].splitlines())) == []


@pytest.mark.slow
def test_installed_wheel_brings_its_own_library(wheel, tmp_path):
    target = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", target, wheel[0], cwd=tmp_path)
    program = "import petsc_gpufmt; print(petsc_gpufmt.library_path())"
    process = run(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(target))
    assert process.stdout.strip() == str(target / LIBRARY)
    process = run(target / "bin" / "petsc-gpufmt", "options", cwd=tmp_path, PYTHONPATH=str(target))
    assert process.stdout.strip() == f"-dll_append {target / LIBRARY}"


@pytest.mark.slow
def test_library_is_compiled_again_only_when_a_source_changed(sdist, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(sdist, tree)

    def build():
        run(sys.executable, "setup.py", "build_ext", "--inplace", cwd=tree, CFLAGS="-O0")

    build()
    first = (tree / LIBRARY).stat().st_mtime_ns
    build()
    assert (tree / LIBRARY).stat().st_mtime_ns == first
    with open(tree / "petsc_gpufmt/native/petsc_gpufmt.h", "a") as header:
        header.write("/* changed */\n")
    build()
    assert (tree / LIBRARY).stat().st_mtime_ns > first


@pytest.mark.slow
def test_a_compiler_that_fails_ends_the_build_with_its_messages(sdist, tmp_path):
    shutil.copytree(sdist, tmp_path / "tree")
    command = (sys.executable, "setup.py", "build_ext", "--inplace")
    process = run(*command, cwd=tmp_path / "tree", check=False, CFLAGS="-include missing.h")
    assert process.returncode == 1 and "missing.h: No such file" in process.stdout
    assert process.stderr.endswith("did not compile; the command and the compiler's messages are above\n")
    assert not (tmp_path / "tree" / LIBRARY).exists()


def test_library_needs_petsc_but_neither_python_nor_cuda():
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic_section(ROOT / LIBRARY))
    assert [name for name in needed if name.startswith("libpetsc.so")]
    assert [name for name in needed if name.startswith(("libpython", "libcuda"))] == []


def test_library_stays_loaded_when_petsc_closes_it():
    assert re.search(r"\(FLAGS_1\).*NODELETE", dynamic_section(ROOT / LIBRARY))


def test_petsc_named_by_petsc_dir_is_found(tmp_path):
    process = find_petsc(petsc_dir=make_petsc(tmp_path / "petsc"))
    assert process.returncode == 0, process.stderr
    assert str(tmp_path / "petsc") in process.stdout


@pytest.mark.parametrize(
    "properties, expected",
    [
        ({"version": (3, 23, 7)}, ["PETSc >= 3.24", "3.23.7"]),
        ({"shared": False}, ["libpetsc.so is not there", "--with-shared-libraries=1"]),
        ({"configured": False}, ["petscvariables is not there", "PETSC_ARCH"]),
        ({"compiler": "/nowhere/mpicc"}, ["/nowhere/mpicc", "MPICC"]),
    ],
    ids=["too old", "static", "not configured", "no compiler"],
)
def test_unusable_petsc_is_refused_in_one_line(tmp_path, properties, expected):
    process = find_petsc(petsc_dir=make_petsc(tmp_path / "petsc", **properties), MPICC="")
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 1
    assert [text for text in (*expected, str(tmp_path)) if text not in process.stderr] == []


def test_missing_petsc_is_reported_in_one_line():
    # without site-packages neither petsc4py nor petsc can be imported
    process = find_petsc("-I", "-S")
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 1
    assert [text for text in ("PETSC_DIR", "petsc4py", "--no-build-isolation") if text not in process.stderr] == []


@pytest.mark.slow
def test_build_without_usable_petsc_ends_with_that_line(sdist, tmp_path):
    old = make_petsc(tmp_path / "petsc", version=(3, 20, 0))
    process = run(sys.executable, "setup.py", "build_ext", cwd=sdist, check=False, PETSC_DIR=str(old), PETSC_ARCH="")
    assert process.returncode != 0
    assert "Traceback" not in process.stderr
    assert re.match(r"error: PETSc >= 3\.24 is needed", process.stderr.splitlines()[-1])
