"""Which kernels are compiled together, and which of them ahead: each room says so beside where it asks for them.

Kernels that one plan needs, or of which it takes one or the other, are one module: what they include is compiled once,
and they are read from one file. Templates have more instances than default options use; others than those that are
declared here are compiled when they are first asked for, a module each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

Instance = tuple[str, tuple[int, ...]]
"""A kernel and its template arguments."""
Declaration = Callable[[], Iterable[Iterable[Instance]]]
"""The instances of each module."""


class Module(NamedTuple):
    """Kernel instances of ``kernels/<stem>.cu`` that are compiled together, by their C++ names."""

    stem: str
    names: tuple[str, ...]


ALL_COMPILERS = (0, 0)
"""The version of CUDA from which on most modules compile: that of whichever is there."""
FOR_REAL_NUMBERS = ("krylov/", "patterns/narrow")
"""How stems of files begin whose kernels are only wanted where scalars are real."""
_declarations: dict[str, list[Declaration]] = {}
_compilers: dict[str, tuple[int, int]] = {}
_importers: list[Callable[[], None]] = []


def instance_name(kernel: str, template_arguments: tuple[int, ...]) -> str:
    """The C++ name of a kernel instance, such as ``pjds_spmv<32,1,4>``."""
    return f"{kernel}<{','.join(map(str, template_arguments))}>" if template_arguments else kernel


def compiled_ahead(stem: str, compiler: tuple[int, int] = ALL_COMPILERS) -> Callable[[Declaration], Declaration]:
    """Declares the modules of ``kernels/<stem>.cu`` that a function yields as those that default options use.

    `compiler` is the version of CUDA from which on they compile.
    """

    def declare(declaration: Declaration) -> Declaration:
        if compiler != ALL_COMPILERS:
            _compilers[stem] = compiler
        _declarations.setdefault(stem, []).append(declaration)
        return declaration

    return declare


def in_parts(instances: Iterable[Instance], most: int) -> Iterator[list[Instance]]:
    """Modules of at most `most` instances, where more would keep who asks for the first of them waiting."""
    left = list(instances)
    for begin in range(0, len(left), most):
        yield left[begin : begin + most]


def compiler_for(module: Module) -> tuple[int, int]:
    """The version of CUDA from which on a module compiles."""
    return _compilers.get(module.stem, ALL_COMPILERS)


def declared_by(importer: Callable[[], None]) -> None:
    """`importer` imports Python modules that declare kernels; it is called before all that are declared are listed."""
    _importers.append(importer)


def default_modules() -> list[Module]:
    """All that are declared, in the order of the stems."""
    for importer in _importers:
        importer()
    return [module for stem in sorted(_declarations) for module in declared(stem)]


def wanted_with(scalar: np.dtype, modules: Iterable[Module]) -> list[Module]:
    """Those of the modules that are wanted where PETSc's scalars are of a dtype."""
    return [module for module in modules if scalar.kind != "c" or not module.stem.startswith(FOR_REAL_NUMBERS)]


@functools.cache
def declared(stem: str) -> tuple[Module, ...]:
    """The modules that are declared for one file."""
    modules = (module for declaration in _declarations.get(stem, ()) for module in declaration())
    return tuple(Module(stem, tuple(instance_name(*instance) for instance in module)) for module in modules)


@functools.cache
def _module_of_name(stem: str) -> dict[str, Module]:
    return {name: module for module in declared(stem) for name in module.names}


def list_declared() -> Iterator[None]:
    """List what is declared so far, a file at a time, so that `module_of` need not: for one format that is 2 ms."""
    for stem in sorted(_declarations):
        _module_of_name(stem)
        yield


def module_of(stem: str, name: str) -> Module:
    """The module of a kernel instance: one that is declared, or one of its own."""
    return _module_of_name(stem).get(name) or Module(stem, (name,))
