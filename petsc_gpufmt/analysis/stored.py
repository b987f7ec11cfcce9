"""A matrix in every format, stored by the format's own class as for a device: bytes and padding are counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.choice.registry import STORAGE_FORMATS
from petsc_gpufmt.errors import GpufmtError
from petsc_gpufmt.formats.common.base import Stats
from petsc_gpufmt.patterns.csr import CsrPattern

BSR = "bsr"
RECTANGLES = ("ellpack", "ellpackr")
"""Formats in which all rows are as long as the longest."""

LARGEST_RECTANGLE, PADDED_TIMES = 100_000_000, 16
"""Bytes beyond which they are not stored here, if they are also so many times those of CSR: to fill them takes long."""


@dataclass(frozen=True)
class Stored:
    """One format.

    Attributes
    ----------
    name : of the format
    stats : sizes; None if the matrix was not stored
    summary : parameters in words; why it was not stored
    options : with which it was stored, in place of the defaults
    """

    name: str
    stats: Stats | None
    summary: str
    options: dict[str, int] = field(default_factory=dict)


def store_all(csr: CsrPattern, device: Backend, block_size: int) -> list[Stored]:
    """The pattern in each format of the package, one after another; `block_size` is that of BSR, 1 for none."""
    return [store(name, csr, device, {"block_size": block_size} if name == BSR else {}) for name in STORAGE_FORMATS]


def store(name: str, csr: CsrPattern, device: Backend, options: dict[str, int]) -> Stored:
    """The pattern in one format; a format that refuses it says why in the summary."""
    cls = STORAGE_FORMATS[name]
    nbytes = rectangle_bytes(csr, device) if name in RECTANGLES else 0
    if nbytes > max(LARGEST_RECTANGLE, PADDED_TIMES * csr.nnz * (device.scalar.itemsize + device.index.itemsize)):
        return Stored(name, None, f"rows as long as the longest take {nbytes / 1e9:.3g} GB", options)
    merged: dict[str, Any] = {**cls.default_options, **options}
    try:
        stored = cls.build(csr, device, merged)
    except GpufmtError as e:
        return Stored(name, None, str(e), options)
    return Stored(name, stored.stats(), stored.summary(), options)


def rectangle_bytes(csr: CsrPattern, device: Backend) -> int:
    """Of values and columns if all rows are as long as the longest."""
    rows = ceil_div(csr.nrows, device.simd_width) * device.simd_width
    return rows * (csr.longest or 0) * (device.scalar.itemsize + device.index.itemsize)
