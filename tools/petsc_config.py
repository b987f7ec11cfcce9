"""Finds the PETSc to build against.

Used by setup.py and by the set-up script. Run as a program it prints what it found as JSON, or one
line that says what was looked for and exits with status 1.
"""

import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 24)
BUILD_HINT = "build with 'pip install --no-build-isolation', so that the build sees the PETSc of this environment"


class PetscNotUsableError(Exception):
    """No PETSc, or one that the package cannot be built against; the message is one line."""


@dataclass(frozen=True)
class Petsc:
    """One PETSc build: where it lies and the variables of its petscvariables file."""

    origin: str
    directory: Path
    arch: str
    version: tuple
    variables: dict

    @property
    def build_directory(self):
        """Folder that holds lib/ and the generated headers (PETSC_DIR itself when PETSc was installed)."""
        return self.directory / self.arch

    @property
    def library_directory(self):
        return self.build_directory / "lib"

    @property
    def configuration_files(self):
        """Files that change whenever PETSc is configured or upgraded."""
        return [
            self.directory / "include" / "petscversion.h",
            self.build_directory / "include" / "petscconf.h",
            self.library_directory / "petsc" / "conf" / "petscvariables",
        ]

    @property
    def has_cuda(self):
        text = (self.build_directory / "include" / "petscconf.h").read_text()
        return re.search(r"#define\s+PETSC_HAVE_CUDA\s+1", text) is not None

    @property
    def include_flags(self):
        own = [f"-I{self.directory / 'include'}", f"-I{self.build_directory / 'include'}"]
        others = shlex.split(self.variables.get("PETSC_CC_INCLUDES", ""))
        return list(dict.fromkeys(own + others))

    @property
    def compiler(self):
        """The C compiler's command as a list of words; the environment variable MPICC overrides PETSc's own."""
        command = shlex.split(os.environ.get("MPICC") or self.variables.get("CC", ""))
        if not command or shutil.which(command[0]) is None:
            raise PetscNotUsableError(
                f"the C compiler of the PETSc in {self.directory} was not found: petscvariables says "
                f"'{self.variables.get('CC', '')}', MPICC says '{os.environ.get('MPICC', '')}'; set MPICC to the "
                "mpicc of the MPI that this PETSc was built with"
            )
        return command


def find_petsc():
    """Returns the Petsc that PETSC_DIR/PETSC_ARCH, petsc4py or the package 'petsc' name, in this order.

    Raises PetscNotUsableError if there is none, or the first one named is too old or has no shared library.
    """
    origin, directory, arch = _locate()
    petsc_dir = Path(directory).resolve()
    version_header = petsc_dir / "include" / "petscversion.h"
    if not version_header.is_file():
        raise PetscNotUsableError(
            f"{origin} names {petsc_dir} as PETSc, but {version_header} is not there; {BUILD_HINT}"
        )
    version = _version(version_header)
    if version < OLDEST:
        raise PetscNotUsableError(
            f"PETSc >= {dotted(OLDEST)} is needed, but {origin} names PETSc {dotted(version)} in {petsc_dir}; "
            "set PETSC_DIR and PETSC_ARCH to a newer one"
        )
    library_directory = petsc_dir / arch / "lib"
    variables_file = library_directory / "petsc" / "conf" / "petscvariables"
    if not variables_file.is_file():
        raise PetscNotUsableError(
            f"{origin} names PETSc in {petsc_dir} with PETSC_ARCH='{arch}', but {variables_file} is not there; "
            "set PETSC_ARCH to the name of a built configuration, or leave it empty for an installed PETSc"
        )
    if not (library_directory / "libpetsc.so").exists():
        raise PetscNotUsableError(
            f"a shared PETSc library is needed, but {library_directory / 'libpetsc.so'} is not there ({origin}); "
            "configure PETSc with --with-shared-libraries=1"
        )
    return Petsc(origin, petsc_dir, arch, version, _read_variables(variables_file, petsc_dir, arch))


def _locate():
    if os.environ.get("PETSC_DIR"):
        return "the environment variable PETSC_DIR", os.environ["PETSC_DIR"], os.environ.get("PETSC_ARCH", "")
    for package in ("petsc4py", "petsc"):
        try:
            config = __import__(package).get_config()
        except ImportError:
            continue
        # a petsc4py built for several configurations lists them all; the first one is its default
        arch = config.get("PETSC_ARCH", "").split(os.pathsep)[0]
        return f"the Python package {package}", config.get("PETSC_DIR", ""), arch
    raise PetscNotUsableError(
        f"no PETSc found: PETSC_DIR is not set, and {sys.executable} can import neither petsc4py nor petsc; "
        f"install petsc4py or set PETSC_DIR (and PETSC_ARCH), and {BUILD_HINT}"
    )


def _version(header):
    text = header.read_text()
    parts = [re.search(rf"#define\s+PETSC_VERSION_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "SUBMINOR")]
    if None in parts:
        raise PetscNotUsableError(f"{header} does not say which version of PETSc it belongs to")
    return tuple(int(part.group(1)) for part in parts)


def dotted(version):
    return ".".join(map(str, version))


def _read_variables(path, petsc_dir, arch):
    """The 'NAME = value' lines of a PETSc makefile fragment, references to other variables replaced."""
    variables = {}
    for line in path.read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator and re.fullmatch(r"\w+", name.strip()):
            variables[name.strip()] = value.strip()
    variables.update(PETSC_DIR=str(petsc_dir), PETSC_ARCH=arch)

    def expand(value, depth=0):
        if depth > len(variables):
            raise PetscNotUsableError(f"{path} has variables that refer to each other in a circle")
        return re.sub(r"\$[({](\w+)[)}]", lambda match: expand(variables.get(match.group(1), ""), depth + 1), value)

    return {name: expand(value) for name, value in variables.items()}


def main():
    try:
        petsc = find_petsc()
        print(
            json.dumps(
                {
                    "origin": petsc.origin,
                    "directory": str(petsc.directory),
                    "arch": petsc.arch,
                    "version": dotted(petsc.version),
                    "compiler": petsc.compiler,
                    "cuda": petsc.has_cuda,
                }
            )
        )
    except PetscNotUsableError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
