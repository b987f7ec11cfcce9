"""What only the system's package manager can give: installed when root on Debian or Ubuntu, else asked for."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from progress import SetupError, run, step

LAPACK_LIBRARIES = (["-llapack", "-lblas"], ["-lopenblas"], ["-lflexiblas"])
OLDEST_PYTHON = (3, 10)


@dataclass(frozen=True)
class Need:
    """Something the set-up needs, the test for it, and the packages that hold it."""

    what: str
    is_there: Callable[[], bool]
    debian: str
    fedora: str


def require_python(python):
    version = _python_version(python)
    if version < OLDEST_PYTHON:
        raise SetupError(
            f"Python >= {_dotted(OLDEST_PYTHON)} is needed, but {python} is {_dotted(version)}; "
            "put a newer python3 first on PATH"
        )


def require_venv(python):
    version = _dotted(_python_version(python))
    _require([
        Need("Python's venv module", lambda: _runs([python, "-c", "import ensurepip, venv"]),
             f"python{version}-venv", "python3-libs"),
    ])  # fmt: skip


def require_petsc_prerequisites(python):
    """A C compiler, BLAS and LAPACK, Python's headers: what the sources on PyPI do not bring along."""
    version = _dotted(_python_version(python))
    _require([
        Need("a C compiler", lambda: _links("int main(void) { return 0; }", []), "gcc libc6-dev", "gcc glibc-devel"),
        Need("BLAS and LAPACK", _has_lapack, "libblas-dev liblapack-dev", "blas-devel lapack-devel"),
        Need("the headers of Python", lambda: _has_python_headers(python), f"python{version}-dev", "python3-devel"),
    ])  # fmt: skip


def compiles_cxx():
    return _links("int main() { return 0; }", [], compiler="c++", suffix=".cpp")


def _require(needs):
    missing = [need for need in needs if not need.is_there()]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        _apt_install(" ".join(need.debian for need in missing))
        missing = [need for need in missing if not need.is_there()]
    if missing:
        raise SetupError(
            f"{' and '.join(need.what for need in missing)} not found; install with "
            f"'apt-get install {' '.join(need.debian for need in missing)}' (Debian, Ubuntu) or "
            f"'dnf install {' '.join(need.fedora for need in missing)}' (Fedora), as root, and run this again"
        )


def _apt_install(packages):
    log = Path(__file__).resolve().parent.parent / "build" / "logs" / "apt.log"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step(f"system packages {packages}"):
        run(["apt-get", "-q", "update"], log=log, env=environment)
        run(["apt-get", "-q", "-y", "install", "--no-install-recommends", *packages.split()], log=log, env=environment)


def _has_lapack():
    program = "void dgesv_(void); int main(void) { dgesv_(); return 0; }"
    return any(_links(program, libraries) for libraries in LAPACK_LIBRARIES)


def _has_python_headers(python):
    query = "import os, sysconfig; exit(not os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))"
    return _runs([python, "-c", query])


def _links(program, libraries, compiler="cc", suffix=".c"):
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "program" + suffix)
        source.write_text(program)
        return _runs([compiler, source, "-o", Path(folder, "program"), *libraries])


def _runs(command):
    try:
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


def _python_version(python):
    query = "import sys; print(*sys.version_info[:2])"
    text = subprocess.run([python, "-c", query], check=True, capture_output=True, text=True).stdout
    return tuple(int(part) for part in text.split())


def _dotted(version):
    return ".".join(map(str, version))
