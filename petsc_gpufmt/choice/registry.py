"""The table of storage formats: name -> class."""

from __future__ import annotations

from petsc_gpufmt.choice.gpufmt import Gpufmt
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.formats.bsr.bsr import Bsr
from petsc_gpufmt.formats.common.base import Format
from petsc_gpufmt.formats.csradaptive import CsrAdaptive
from petsc_gpufmt.formats.csrscalar import CsrScalar
from petsc_gpufmt.formats.csrvector import CsrVector
from petsc_gpufmt.formats.ellpack import Ellpack
from petsc_gpufmt.formats.ellpackr import EllpackR
from petsc_gpufmt.formats.evchyb.evchyb import EvcHyb
from petsc_gpufmt.formats.jds import Jds
from petsc_gpufmt.formats.pjds import Pjds

STORAGE_FORMATS = (Pjds, EvcHyb, Bsr, CsrAdaptive, CsrScalar, CsrVector, Jds, Ellpack, EllpackR)

FORMATS: dict[str, type[Format]] = {cls.name: cls for cls in (*STORAGE_FORMATS, Gpufmt)}

Gpufmt.choices = {cls.name: cls for cls in STORAGE_FORMATS}


def find_format(name: str) -> type[Format]:
    """The class of a format by its name; UnsupportedError if there is none."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UnsupportedError(f"no storage format is called {name!r}: there are {', '.join(FORMATS)}") from None
