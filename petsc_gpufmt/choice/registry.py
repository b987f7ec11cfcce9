"""The table of storage formats: name -> class. A format's module is imported when it is first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.formats.common.base import Format


class FormatTable(Mapping[str, type[Format]]):
    """Classes by the names of their formats, in the order of `places`: the module and the class for each name."""

    def __init__(self, places: dict[str, tuple[str, str]]):
        self._places = places

    def __getitem__(self, name: str) -> type[Format]:
        module, cls = self._places[name]
        return getattr(importlib.import_module(f"petsc_gpufmt.{module}"), cls)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


_PLACES = {
    "pjds": ("formats.pjds", "Pjds"),
    "evchyb": ("formats.evchyb.evchyb", "EvcHyb"),
    "bsr": ("formats.bsr.bsr", "Bsr"),
    "csradaptive": ("formats.csradaptive", "CsrAdaptive"),
    "csrscalar": ("formats.csrscalar", "CsrScalar"),
    "csrvector": ("formats.csrvector", "CsrVector"),
    "jds": ("formats.jds", "Jds"),
    "ellpack": ("formats.ellpack", "Ellpack"),
    "ellpackr": ("formats.ellpackr", "EllpackR"),
}

STORAGE_FORMATS = FormatTable(_PLACES)

FORMATS = FormatTable({**_PLACES, "gpufmt": ("choice.gpufmt", "Gpufmt")})


def find_format(name: str) -> type[Format]:
    """The class of a format by its name; UnsupportedError if there is none."""
    if name not in FORMATS:
        raise UnsupportedError(f"no storage format is called {name!r}: there are {', '.join(FORMATS)}")
    return FORMATS[name]
