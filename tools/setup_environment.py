"""Sets up everything that the Makefile's targets need, and nothing that is already there.

Makes .venv (on top of the active python3 when that one has petsc4py, else with PETSc and petsc4py built from
PyPI), compiles the library in place, and writes build/environment.sh, which the targets source. Needs only the
standard library. Usage: python3 tools/setup_environment.py [--petsc-source]
"""

import argparse
import fcntl
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import system_packages
from progress import SetupError, announce, run, step

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PETSC_VERSION = os.environ.get("PETSC_GPUFMT_PETSC") or "3.26.1"
STAMP = BUILD / "environment.json"
VERSION_OF_MPI = ((VENV / "bin" / "mpichversion",), (VENV / "bin" / "ompi_info", "--version"))


def ask(*command, environment=None):
    """Runs a short command; returns the finished process with its output as text."""
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


def active_python():
    """The interpreter behind the python3 on PATH, looking past a .venv that this script made."""
    path = os.pathsep.join(p for p in os.get_exec_path() if Path(p).resolve() != (VENV / "bin").resolve())
    found = shutil.which("python3", path=path)
    if found is None:
        raise SetupError("no python3 on PATH outside .venv; install Python 3.10 or newer")
    # python3 may be a script that chooses one
    return ask(found, "-c", "import sys; print(sys.executable)").stdout.strip()


def build_environment(own_petsc=True):
    """The environment of the programs that build: .venv first, and with a PETSc of our own no other one named."""
    hidden = ("PETSC_DIR", "PETSC_ARCH", "PYTHONPATH") if own_petsc else ()
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["PATH"] = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    return environment


def describe_petsc(python, environment):
    """What tools/petsc_config.py says under this interpreter: (description, None) or (None, one line why not)."""
    loads = ask(python, "-c", "from petsc4py import PETSc", environment=environment)
    if loads.returncode != 0:
        return None, (loads.stderr.strip() or "petsc4py cannot be imported").splitlines()[-1]
    probe = ask(python, ROOT / "tools" / "petsc_config.py", environment=environment)
    if probe.returncode != 0:
        return None, probe.stderr.strip()
    return json.loads(probe.stdout), None


def make_venv(base, same_interpreter):
    """.venv of the interpreter `base`; one made before is kept if it works (and is of `base`, where that matters)."""
    if PYTHON.exists() and not (same_interpreter and os.path.realpath(PYTHON) != os.path.realpath(base)):
        return
    system_packages.require_venv(base)
    with step("virtual environment in .venv"):
        run([base, "-m", "venv", "--clear", VENV], log=BUILD / "logs" / "venv.log")


def stack_on(base):
    """Makes the packages of the interpreter `base` visible in .venv, behind its own; of none if `base` is None."""
    query = "import site; print(*site.getsitepackages(), *[site.getusersitepackages()] * bool(site.ENABLE_USER_SITE), "
    folders = ask(base, "-c", query + "sep='\\n')").stdout.splitlines() if base else []
    own = ask(PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in folders]
    Path(own, "active_python.pth").write_text("".join(lines))


def pip(*arguments, log, environment=None, **keywords):
    run([PYTHON, "-m", "pip", *arguments], log=BUILD / "logs" / log, env=environment or build_environment(), **keywords)


def install_tools():
    with step("build and test tools from PyPI"):
        pip("install", "--upgrade", "pip", log="pip.log")
        pip("install", "--group", f"{ROOT / 'pyproject.toml'}:dev", log="tools.log")


def has_gpu():
    return shutil.which("nvidia-smi") is not None and ask("nvidia-smi", "-L").returncode == 0


def find_or_install_mpi():
    """Installs an MPI of PyPI in .venv if it is asked for or there is none; returns whether the MPI lies in .venv, and
    a text that differs between MPIs that cannot stand in for each other."""
    environment = build_environment()
    mpicc, mpiexec = (shutil.which(name, path=environment["PATH"]) for name in ("mpicc", "mpiexec"))
    package = os.environ.get("PETSC_GPUFMT_MPI")
    if package or mpicc is None or mpiexec is None:
        with step(f"{package or 'mpich'} from PyPI ({'asked for' if package else 'no mpicc and mpiexec on PATH'})"):
            pip("install", package or "mpich", log="mpi.log")
        mpicc = VENV / "bin" / "mpicc"
    shown = ask(mpicc, "-show", environment=environment).stdout
    if Path(mpicc).is_relative_to(VENV):
        versions = [ask(path, *words).stdout for path, *words in VERSION_OF_MPI if path.exists()]
        return True, shown.replace(str(VENV), "") + "".join(versions)
    return False, os.path.realpath(mpicc) + shown


def configure_options():
    """Options of the PETSc that is built in .venv, with those that the user has for it, such as complex scalars."""
    options = ["--with-fc=0", "--with-debugging=0"]
    options += [] if has_gpu() else ["--with-cuda=0"]
    options += ["--with-x=0", "--with-ssl=0", "COPTFLAGS=-O3"]
    options += [] if system_packages.compiles_cxx() else ["--with-cxx=0"]
    # of two that contradict each other the last counts
    options += os.environ.get("PETSC_CONFIGURE_OPTIONS", "").split()
    return " ".join(options)


def wheel_store(options, mpi):
    """Folder for the PETSc wheels of one configuration. pip's own cache would hand out a wheel that was built
    with another MPI or other options, as it looks at the version alone. Interpreters share that of PETSc, and have one
    each of petsc4py."""
    facts = [PETSC_VERSION, options, mpi, platform.machine(), *platform.libc_ver()]
    name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "petsc_gpufmt", name)
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        cache = BUILD / "wheels" / name
        cache.mkdir(parents=True, exist_ok=True)
    return cache


def petsc_from_pypi():
    """Builds PETSc and petsc4py, or takes the wheels of an earlier build, and installs them in .venv; returns the
    folder where the wheels are kept."""
    system_packages.require_petsc_prerequisites(PYTHON)
    mpi_in_venv, mpi = find_or_install_mpi()
    options = configure_options()
    store = wheel_store(options, mpi)
    environment = build_environment()
    environment["PETSC_CONFIGURE_OPTIONS"] = f"--with-make-np={len(os.sched_getaffinity(0))} {options}"
    # debugging information would double the time to compile petsc4py; what the user has for PETSc counts here, too
    optimization = re.findall(r"COPTFLAGS=(\S+)", os.environ.get("PETSC_CONFIGURE_OPTIONS", ""))
    environment["CFLAGS"] = " ".join(["-O2 -g0 -fwrapv", *optimization])
    if mpi_in_venv:
        # the MPI lies in the environment: paths relative to it make wheels that work in every other one too.
        # PETSc's installer writes such paths when this is set, petsc4py's takes the linker's flags
        environment["CIBUILDWHEEL"] = "1"
        environment["LDFLAGS"] = "-Wl,-rpath,$ORIGIN/../../../.."
    wheel_from_pypi("petsc", "py3", store, environment, "some 10 to 20 minutes on two cores, once")
    pip("install", "cython>=3", log="cython.log")
    # isolated, the build of petsc4py would build a second PETSc
    python = ask(PYTHON, "-c", "import sys; print('cp', *sys.version_info[:2], sep='')").stdout.strip()
    wheel_from_pypi("petsc4py", python, store, environment, "some 3 minutes, once", "--no-build-isolation")
    # in the place of the folder that PETSc had when petsc4py was built; before 3.26 petsc4py looks nowhere else
    configuration = next(VENV.glob("lib/python3*/site-packages/petsc4py/lib/petsc.cfg"))
    configuration.write_text(f"PETSC_DIR = {configuration.parents[2] / 'petsc'}\nPETSC_ARCH =\n")
    return store


def wheel_from_pypi(package, tag, store, environment, duration, *build_options):
    """Installs a package in .venv from its wheel for that Python in the folder `store`, where it is built if it is not
    yet there."""
    pin = f"{package}=={PETSC_VERSION}"
    if not list(store.glob(f"{package}-{PETSC_VERSION}-{tag}-*.whl")):
        with step(f"build {pin} ({duration})"), tempfile.TemporaryDirectory(dir=store) as scratch:
            build = ["wheel", "-v", "--no-deps", "--no-cache-dir", "--no-binary", package, *build_options]
            counted = "  CC " if package == "petsc" else None
            pip(*build, "-w", scratch, pin, log=f"{package}.log", environment=environment, count=counted)
            for wheel in Path(scratch).glob("*.whl"):
                os.replace(wheel, store / wheel.name)
    with step(f"install {pin}"):
        install = ["install", "--no-index", "--no-deps", "--no-cache-dir", "--force-reinstall", "--find-links", store]
        pip(*install, pin, log=f"{package}_install.log", environment=environment)


def petsc_of_venv(why_not_active):
    """Description of the PETSc in .venv, which is built there if it is not yet."""
    environment = build_environment()
    description, _ = describe_petsc(PYTHON, environment)
    if description is None:
        announce(f"the active python3 has no PETSc to use ({why_not_active}): building one in .venv")
        store = petsc_from_pypi()
        description, why_not = describe_petsc(PYTHON, environment)
        if description is None:
            raise SetupError(f"PETSc was built, but cannot be used: {why_not}; remove {store} to build it again")
    return description


def install_cupy():
    """CuPy for the version of CUDA that the GPU's driver serves, unless it is there."""
    if ask(PYTHON, "-c", "import cupy").returncode == 0:
        return
    major = ask("nvidia-smi").stdout.partition("CUDA Version:")[2].split(".")[0].strip()
    with step(f"CuPy for CUDA {major}"):
        pip("install", f"cupy-cuda{major}x", log="cupy.log")


def petsc_source(description):
    """Folder with the sources and expected outputs of PETSc's own tests, of the version at hand."""
    if "PETSC_SRC" in os.environ:
        return os.environ["PETSC_SRC"]
    if Path(description["directory"], "src", "snes", "tutorials", "ex14.c").exists():
        return description["directory"]
    version = description["version"]
    folder = BUILD / f"petsc-src-{version}"
    if folder.exists():
        return str(folder)
    hint = f"set PETSC_SRC to the source tree of PETSc {version}, or to nothing to leave PETSc's own tests out"
    with step(f"sources of PETSc {version} for its tests"), tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        download = ["download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "-d", scratch]
        pip(*download, f"petsc=={version}", log="petsc_source.log", hint=hint)
        with tarfile.open(next(Path(scratch).glob("petsc-*.tar.gz"))) as archive:
            archive.extractall(scratch, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        os.replace(next(path for path in Path(scratch).iterdir() if path.is_dir()), folder)
    return str(folder)


def compile_library(environment):
    command = [PYTHON, "setup.py", "-q", "build_ext", "--inplace"]
    compiled = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
    if compiled.returncode != 0:
        raise SetupError("the library did not compile; the compiler's messages are above")


def kernels_key():
    """Differs when other kernels may have to be compiled."""
    sources = sorted([*ROOT.glob("kernels/*/*.cu*"), *ROOT.glob("petsc_gpufmt/**/*.py")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def compile_kernels(environment):
    """Compiles kernels ahead for the GPUs here; without them they are compiled when they are first used."""
    command = [PYTHON, "-m", "petsc_gpufmt", "compile"]
    try:
        with step("kernels for the GPUs here"):
            run(command, log=BUILD / "logs" / "kernels.log", env={**environment, "PYTHONPATH": str(ROOT)})
    except SetupError as error:
        announce(f"kernels are not compiled ahead: {error}")


def write_environment(own_petsc, source):
    settings = {
        "VIRTUAL_ENV": VENV,
        "PETSC_SRC": source,
        # ranks are the parallelism, and there may be more of them than cores; Open MPI has to be told, and
        # refuses to run as root unless told twice
        "OMP_NUM_THREADS": 1,
        "OMPI_ALLOW_RUN_AS_ROOT": 1,
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1,
        "OMPI_MCA_rmaps_base_oversubscribe": 1,
        # with more ranks than cores a waiting rank of MPICH must sleep: polling takes the core it waits for. Throttled
        # progress sleeps, a heavy yield sleeps where a light one would ask again at once, and collectives in shared
        # memory yield at each look and not at every thousandth
        "MPIR_CVAR_CH4_PROGRESS_THROTTLE": 1,
        "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": 64,
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": 1,
        "MPIR_CVAR_POSIX_POLL_FREQUENCY": 1,
        "PRTE_ALLOW_RUN_AS_ROOT": 1,
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": 1,
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    lines = ["# Written by tools/setup_environment.py; source it to work as the Makefile does."]
    lines += ["unset PETSC_DIR PETSC_ARCH"] if own_petsc else []
    lines += [] if source else ["unset PETSC_SRC"]
    lines += [f"export {name}={shlex.quote(str(value))}" for name, value in settings.items() if value]
    lines += [f'export PATH={shlex.quote(str(VENV / "bin"))}:"$PATH"']
    others = "" if own_petsc else '"${PYTHONPATH:+:$PYTHONPATH}"'
    lines += [f"export PYTHONPATH={shlex.quote(str(ROOT))}{others}"]
    (BUILD / "environment.sh").write_text("\n".join(lines) + "\n")


def environment_key(base):
    """Differs when the tools or PETSc of .venv have to be looked at again."""
    facts = [base, *(os.environ.get(name, "") for name in ("PETSC_DIR", "PETSC_ARCH"))]
    # a shell that has sourced environment.sh has the source tree there
    facts += [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(ROOT)]
    inputs = [ROOT / "pyproject.toml", *sorted(Path(__file__).parent.glob("*.py"))]
    return hashlib.sha256("\n".join(facts).encode() + b"".join(path.read_bytes() for path in inputs)).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--petsc-source", action="store_true", help="also fetch the sources of PETSc's own tests")
    arguments = parser.parse_args()
    (BUILD / "logs").mkdir(parents=True, exist_ok=True)
    with open(BUILD / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            set_up(arguments)
        except SetupError as error:
            sys.exit(f"set-up: {error}")


def set_up(arguments):
    base = active_python()
    key = environment_key(base)
    known = json.loads(STAMP.read_text()) if STAMP.exists() and PYTHON.exists() else {}
    if known.get("key") != key:
        STAMP.unlink(missing_ok=True)
        system_packages.require_python(base)
        description, why_not = describe_petsc(base, dict(os.environ))
        own_petsc = description is None
        make_venv(base, same_interpreter=not own_petsc)
        stack_on(None if own_petsc else base)
        install_tools()
        if own_petsc:
            description = petsc_of_venv(why_not)
        if description["cuda"] and has_gpu():
            install_cupy()
        announce(f"PETSc {description['version']} in {description['directory']}, named by {description['origin']}")
        known = {"key": key, "petsc": description, "own_petsc": own_petsc}
    compile_library(build_environment(known["own_petsc"]))
    if known["petsc"]["cuda"] and has_gpu() and known.get("kernels") != kernels_key():
        compile_kernels(build_environment(known["own_petsc"]))
        known["kernels"] = kernels_key()
    source = petsc_source(known["petsc"]) if arguments.petsc_source else os.environ.get("PETSC_SRC")
    write_environment(known["own_petsc"], source)
    STAMP.write_text(json.dumps(known))


if __name__ == "__main__":
    main()
