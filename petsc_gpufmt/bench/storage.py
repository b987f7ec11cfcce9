"""Cost of storing a matrix in a format: build, value refresh, upload."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import scipy.sparse

from petsc_gpufmt.bench.contenders import format_options
from petsc_gpufmt.bench.places import Place, synchronised
from petsc_gpufmt.csr import CsrPattern
from petsc_gpufmt.plan import Operation, Slot
from petsc_gpufmt.registry import FORMATS

BUILDS = 3


def measure_storage(variant: str, matrix: scipy.sparse.csr_matrix, place: Place) -> dict[str, Any]:
    """Seconds to build a format, to refresh its values and to upload these, with the sizes of the stored matrix.

    Build and refresh read CSR arrays that are in place already. The first build, which compiles, does not count.
    """
    name, options = format_options(variant)
    xp, timer = place.backend.xp, place.timer
    csr = CsrPattern(*matrix.shape, xp.asarray(matrix.indptr), xp.asarray(matrix.indices))
    values = xp.asarray(matrix.data)

    def build() -> Any:
        return FORMATS[name].build(csr, place.backend, options)

    build_seconds = timer.elapsed(build, BUILDS)
    stored = synchronised(place, build)
    launches = stored.plan(Operation.REFRESH)
    refresh = timer.times(lambda: place.backend.run(launches, {Slot.VALUES: values}))
    return {
        "format": variant,
        "place": place.name,
        "options": options,
        "summary": stored.summary(),
        "build_seconds": build_seconds,
        "refresh_seconds": refresh.median,
        "upload_seconds": timer.elapsed(lambda: place.backend.adopt(matrix.data), BUILDS)
        if place.name == "cuda"
        else 0.0,
        "stats": dataclasses.asdict(stored.stats()),
    }


def in_products(entry: dict[str, Any], products: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Build, refresh and upload of a storage entry as multiples of a product of the same format in the same place."""
    median = next(p["median_seconds"] for p in products if (p["name"], p["place"]) == (entry["format"], entry["place"]))
    return {name: entry[f"{name}_seconds"] / median for name in ("build", "refresh", "upload")}
