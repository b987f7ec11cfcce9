"""Compiles libpetscgpufmt.so against the PETSc at hand; all else about the package is in pyproject.toml."""

import functools
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "tools"))

from petsc_config import OLDEST, PetscNotUsableError, dotted, find_petsc  # noqa: E402

LIBRARY = "petsc_gpufmt.native.libpetscgpufmt"
REQUIRED = ["numpy", f"petsc4py>={dotted(OLDEST)}"]
"""By any build; a wheel needs the minor release of PETSc that it was compiled for."""
SOURCE_FOLDERS = ("petsc_gpufmt/native", "kernels/host")
SINGLE = ("formats/*.c", "halo/peer.c", "patterns/csr.c", "krylov/cg.c")
"""Below kernels/host: what a store and a method in single precision need, which is compiled for that as well."""
SOURCES_AT_ONCE = 4
"""That a compiler is started for; as many are as there are processors."""


def files(*patterns):
    return sorted(str(path.relative_to(ROOT)) for f in SOURCE_FOLDERS for p in patterns for path in (ROOT / f).rglob(p))


def python_library():
    """Path of the shared libpython of this interpreter, '' if it has none."""
    folders = [sysconfig.get_config_var(name) for name in ("LIBDIR", "LIBPL")]
    names = [sysconfig.get_config_var(name) for name in ("INSTSONAME", "LDLIBRARY")]
    candidates = (Path(folder, name) for name in names if name and ".so" in name for folder in folders if folder)
    return next((str(path) for path in candidates if path.is_file()), "")


def required():
    """What the package needs: of petsc4py the minor release that is here, but for a source distribution."""
    petsc = None if "sdist" in sys.argv else petsc_here()
    if petsc is None:
        return REQUIRED
    major, minor = petsc.version[:2]
    return ["numpy", f"petsc4py>={major}.{minor},<{major}.{minor + 1}"]


@functools.cache
def petsc_here():
    try:
        return find_petsc()
    except PetscNotUsableError:
        return None  # the build says why


def build_tag():
    """PETSc's version and a digest of its configuration, for the name of a wheel: several lie in one folder."""
    petsc = petsc_here()
    if petsc is None:
        return None
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in petsc.configuration_files)).hexdigest()
    return f"{dotted(petsc.version)}_{digest[:8]}"


def compile_kernels(package):
    """Compiles kernels into the package that was built, for the GPUs here or for common ones, if CuPy is here.

    PETSC_GPUFMT_ARCH names other architectures, or is "none". Without compiled kernels a package is complete: they are
    compiled when they are first used, or by `petsc-gpufmt compile`.
    """
    architectures, folder = os.environ.get("PETSC_GPUFMT_ARCH", ""), package / "kernels_compiled"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier build
    if architectures == "none" or not (architectures or importlib.util.find_spec("cupy")):
        return
    command = [sys.executable, "-m", "petsc_gpufmt", "compile", "--output", folder]
    command += ["--arch", architectures] if architectures else []
    paths = os.pathsep.join(filter(None, (str(package.parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.run(command, cwd=package.parent, env=environment, stderr=subprocess.PIPE, text=True)
    if process.returncode != 0:
        reason = (process.stderr.splitlines() or [f"status {process.returncode}"])[-1]
        print(
            f"kernels are not compiled ahead ({reason}): run `petsc-gpufmt compile` after the installation", flush=True
        )


class BuildLibrary(build_ext):
    """Builds a plain shared library with PETSc's compiler in place of a Python extension module."""

    def run(self):
        super().run()
        if not self.inplace and not self.editable_mode:
            compile_kernels(Path(self.build_lib, "petsc_gpufmt").resolve())

    def get_ext_filename(self, fullname):
        return os.path.join(*fullname.split(".")) + ".so"

    def build_extension(self, ext):
        try:
            petsc = find_petsc()
            output = self.get_ext_fullpath(ext.name)
            commands = self.commands(ext, petsc, output)
        except PetscNotUsableError as error:
            sys.exit(f"error: {error}")
        stamp = Path(self.build_temp, "libpetscgpufmt.key")
        key = self.key(commands, ext.sources + ext.depends + petsc.configuration_files)
        if Path(output).exists() and stamp.exists() and stamp.read_text() == key:
            return
        os.makedirs(os.path.dirname(output), exist_ok=True)
        *compilations, link = commands
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            succeeded = all(pool.map(self.carry_out, compilations))
        if not succeeded or not self.carry_out(link):
            sys.exit(f"error: {ext.name} did not compile; the command and the compiler's messages are above")
        os.replace(self.temporary(output), output)  # programs that run now keep the library they have opened
        stamp.write_text(key)

    @staticmethod
    def carry_out(where_and_what):
        """Whether a command succeeds in its folder; its output comes after it, whatever else runs."""
        folder, command = where_and_what
        os.makedirs(folder, exist_ok=True)
        ended = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        print(f"{shlex.join(command)}\n{ended.stdout}", end="", flush=True)
        return ended.returncode == 0

    def commands(self, ext, petsc, output):
        """Where to run what: a few sources of a folder, those for single precision once more, and at last the library.

        Objects lie in folders like those of the sources, of which several have files of one name.
        """
        library_directory = petsc.library_directory
        compiler = [
            *petsc.compiler,
            *("-std=gnu11", "-O3", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter"),
            *(f"-I{ROOT.resolve() / folder}" for folder in SOURCE_FOLDERS),
            *petsc.include_flags,
            f'-DGPUFMT_PYTHON_LIBRARY="{python_library()}"',
            f'-DGPUFMT_PYTHON_EXECUTABLE="{sys.executable}"',
            *shlex.split(os.environ.get("CFLAGS", "")),
        ]
        root = ROOT.resolve()
        single = sorted(path for pattern in SINGLE for path in (root / "kernels/host").glob(pattern))
        commands, objects = [], []
        for kind, flags, chosen in (
            ("objects", [], [root / source for source in ext.sources]),
            ("single", ["-DGPUFMT_HOST_SINGLE"], single),
        ):
            for folder in sorted({path.parent for path in chosen}):
                sources = [path for path in chosen if path.parent == folder]
                place = Path(self.build_temp, kind, folder.relative_to(root)).resolve()
                for first in range(0, len(sources), SOURCES_AT_ONCE):
                    few = map(str, sources[first : first + SOURCES_AT_ONCE])
                    commands.append((place, [*compiler, *flags, "-c", *few]))
                objects += [str(place / f"{path.stem}.o") for path in sources]
        library = [
            *(*compiler, "-shared", *objects, "-o", BuildLibrary.temporary(output)),
            *(f"-L{library_directory}", f"-Wl,-rpath,{library_directory}", "-lpetsc", "-lm", "-ldl", "-lpthread"),
            # PetscFinalize closes what -dll_append opened, while finalizers and Python still point into it
            "-Wl,-z,nodelete",
        ]
        return [*commands, (ROOT, library)]

    @staticmethod
    def temporary(output):
        return os.path.abspath(output) + ".new"

    @staticmethod
    def key(commands, inputs):
        digest = hashlib.sha256("".join(shlex.join(command) for _, command in commands).encode())
        for path in inputs:
            digest.update(Path(ROOT, path).read_bytes())
        return digest.hexdigest()


setup(
    # here, as releases of setuptools before and after 77 want it written differently in pyproject.toml
    license="BSD-2-Clause",
    install_requires=required(),
    options={"bdist_wheel": {"build_number": build_tag()}},
    cmdclass={"build_ext": BuildLibrary},
    ext_modules=[Extension(LIBRARY, sources=files("*.c"), depends=files("*.h", "*.def"))],
)
