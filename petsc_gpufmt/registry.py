"""The table of storage formats: name -> class."""

from __future__ import annotations

from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.formats.base import Format
from petsc_gpufmt.formats.pjds import Pjds

FORMATS: dict[str, type[Format]] = {cls.name: cls for cls in (Pjds,)}


def find_format(name: str) -> type[Format]:
    """The class of a format by its name; UnsupportedError if there is none."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UnsupportedError(f"no storage format is called {name!r}: there are {', '.join(FORMATS)}") from None
