"""Cost of storing a matrix in a format: build, value refresh, upload."""

from __future__ import annotations

import dataclasses
from typing import Any

import scipy.sparse

from petsc_gpufmt.bench.contenders import format_options
from petsc_gpufmt.bench.places import Place, synchronised
from petsc_gpufmt.csr import CsrPattern
from petsc_gpufmt.plan import Operation, Slot
from petsc_gpufmt.registry import FORMATS

BUILDS = 5


def measure_storage(variant: str, matrix: scipy.sparse.csr_matrix, place: Place) -> dict[str, Any]:
    """Seconds to build the format from a pattern that is in place already, to refresh its values from CSR values that are in place, and
    to bring these there from the host; with the sizes of the stored matrix. The first build, which compiles, does not count."""
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
        "upload_seconds": timer.elapsed(lambda: xp.asarray(matrix.data), BUILDS) if place.name == "cuda" else 0.0,
        "stats": dataclasses.asdict(stored.stats()),
    }
