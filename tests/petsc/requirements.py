"""What a build of PETSc has, and whether that is what a test requires."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from petsc_config import Petsc

_PRECISIONS = ("single", "double", "quad")
_VERSION = re.compile(r"(?:PETSC_PKG_)?([A-Z0-9_]+_VERSION)_(?:EQ|LT|LE|GT|GE)\(.*\)", re.IGNORECASE)
_DEFINED = re.compile(r"defined\((\w+)\)", re.IGNORECASE)


@dataclass(frozen=True)
class Build:
    """`defines` are the names that petscconf.h defines; precision and index_bits are those of scalars and indices."""

    defines: frozenset[str]
    precision: str
    index_bits: int

    def lacks(self, requires: Iterable[str]) -> list[str]:
        """Those of the requirements that are not met."""
        return [word for word in requires if self._has(word.lstrip("!")) == word.startswith("!")]

    def _has(self, word: str) -> bool:
        if word in _PRECISIONS or word.startswith("__"):
            return self.precision == word
        if word in ("int32", "int64"):
            return self.index_bits == int(word[3:])
        if word in ("64bitptr", "long64"):
            return True
        if _VERSION.fullmatch(word):
            return False  # no other package is here
        if defined := _DEFINED.fullmatch(word):
            return defined[1] in self.defines
        prefix = "PETSC_USE_" if word in ("complex", "debug") else "PETSC_HAVE_"
        return prefix + word.upper() in self.defines


def build_of(petsc: Petsc) -> Build:
    text = (petsc.build_directory / "include" / "petscconf.h").read_text()
    return Build(
        defines=frozenset(re.findall(r"^#define\s+(\w+)", text, re.MULTILINE)),
        precision=petsc.variables["PETSC_PRECISION"],
        index_bits=int(petsc.variables["PETSC_INDEX_SIZE"]),
    )
