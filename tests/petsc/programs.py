"""PETSc's own programs: compiled against the PETSc at hand, run with the plug-in loaded."""

from __future__ import annotations

import csv
import hashlib
import os
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import launch
from petsc_config import Petsc, find_petsc

ROOT = Path(__file__).resolve().parents[2]


class ProgramError(RuntimeError):
    """PETSc's sources or a program cannot be used; the message says which and what to change."""


def find_sources(petsc: Petsc) -> Path:
    """The unpacked source distribution of this PETSc, named by PETSC_SRC."""
    version = ".".join(map(str, petsc.version))
    wanted = f"set it to the unpacked source distribution of PETSc {version}"
    named = os.environ.get("PETSC_SRC")
    if not named:
        raise ProgramError(f"PETSC_SRC is not set: {wanted}")
    sources = Path(named).resolve()
    ours, theirs = (folder / "include/petscversion.h" for folder in (petsc.directory, sources))
    if not (sources / "src/mat/tests").is_dir() or not theirs.is_file():
        raise ProgramError(f"PETSC_SRC={named} does not hold PETSc's sources: {wanted}")
    if theirs.read_text() != ours.read_text():
        raise ProgramError(f"PETSC_SRC={named} holds another version of PETSc: {wanted}")
    return sources


@dataclass(frozen=True)
class Run:
    """What a program left behind.

    finished: command, exit status, and standard output and error.
    events: how often each logged event happened, summed over the ranks.
    """

    finished: launch.Finished
    events: Counter[str]


class Programs:
    """Compiles programs of `sources` into `cache`, and runs them with `library` loaded by -dll_append.

    `python_path` is the folder in which the library finds the package petsc_gpufmt.
    """

    def __init__(self, petsc: Petsc, sources: Path, library: Path, python_path: Path, cache: Path):
        key = hashlib.sha256(f"{petsc.library_directory}\n{sources}".encode()).hexdigest()[:12]
        self._petsc = petsc
        self._sources = sources
        self._library = library
        self._python_path = os.pathsep.join(filter(None, (str(python_path), os.environ.get("PYTHONPATH"))))
        self._cache = cache / f"{'.'.join(map(str, petsc.version))}-{key}"
        self._cache.mkdir(parents=True, exist_ok=True)

    @property
    def sources(self) -> Path:
        return self._sources

    def compile(self, program: str) -> Path:
        """Compile `program` (below src/, without `.c`) unless it was before; return the executable."""
        executable = self._cache / program.replace("/", "-")
        if executable.exists():
            return executable
        source = self._sources / "src" / f"{program}.c"
        # Other sources that the program is made of are named in its TEST block.
        others = re.search(r"^\s*depends:(.*)$", source.read_text(), re.MULTILINE)
        unfinished = executable.with_suffix(f".{os.getpid()}")
        libraries = self._petsc.library_directory
        compiled = launch.run(
            [
                *self._petsc.compiler,
                "-O1",
                *self._petsc.include_flags,
                f"-I{self._sources / 'include'}",  # some include ../src/mat/impls/aij/seq/aij.h
                source,
                *(source.parent / name for name in (others[1].split() if others else ())),
                *("-o", unfinished, f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lpetsc", "-lm"),
                *shlex.split(self._petsc.variables.get("BLASLAPACK_LIB", "")),  # a few call LAPACK themselves
            ]
        )
        if compiled.status:
            raise ProgramError(f"{program} does not compile: {compiled}")
        unfinished.replace(executable)
        return executable

    def expected_outputs(self, program: str, name: str) -> list[str]:
        """The expected output `name` of `program`, then its alternatives for other machines, if PETSc has any."""
        folder = (self._sources / "src" / program).parent / "output"
        alternatives = sorted(folder.glob(f"{Path(name).stem}_alt*.out"))
        return [file.read_text() for file in (folder / name, *alternatives)]

    def run(
        self,
        program: str,
        ranks: int,
        arguments: list[str],
        folder: Path,
        plugin: bool = True,
        options: str = "",
        seconds: float = launch.TIMEOUT_SECONDS,
        **environment: str,
    ) -> Run:
        """Run `program` on `ranks` MPI ranks in `folder`, with or without the plug-in, and with more `options`.

        `$PETSC_SRC` in an argument stands for the source tree. TimeoutError if the run takes more than `seconds`.
        """
        log = folder / "log.csv"
        log.unlink(missing_ok=True)
        # -malloc_dump prints memory that was not freed, so that a leak fails the comparison of outputs.
        options += f" -nox -malloc_dump -log_view :{log}:ascii_csv"
        if plugin:
            options += f" -dll_append {self._library}"
        finished = launch.run(
            [
                self.compile(program),
                *("-petsc_ci", "-skip_petscrc"),
                *(argument.replace("$PETSC_SRC", str(self._sources)) for argument in arguments),
            ],
            ranks=ranks,
            cwd=folder,
            seconds=seconds,
            **{**environment, "PETSC_OPTIONS": options, "PYTHONPATH": self._python_path},
        )
        return Run(finished, _read_events(log))


def programs_here() -> Programs:
    """PETSc's own programs, of the sources that PETSC_SRC names, ready to be run with the plug-in."""
    import petsc_gpufmt

    petsc = find_petsc()
    package = Path(petsc_gpufmt.__file__).resolve().parent
    return Programs(
        petsc, find_sources(petsc), petsc_gpufmt.library_path(), package.parent, ROOT / "build" / "petsc-tests"
    )


def _read_events(log: Path) -> Counter[str]:
    events: Counter[str] = Counter()
    if log.exists():
        with log.open(newline="") as file:
            for row in csv.DictReader(file):
                events[row["Event Name"]] += int(row["Count"])
    return events
