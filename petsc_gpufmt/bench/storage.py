"""Cost of storing a matrix in a format: build, value refresh, upload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from petsc_gpufmt.backends.plan import Operation, Slot
from petsc_gpufmt.bench.contenders import format_options
from petsc_gpufmt.bench.matrices import BenchMatrix
from petsc_gpufmt.bench.places import Place, synchronised
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.patterns.csr import CsrPattern

BUILDS = 3


def measure_storage(variant: str, matrix: BenchMatrix, place: Place) -> dict[str, Any]:
    """Seconds to build a format, to refresh its values and to upload these, with the sizes of the stored matrix.

    Build and refresh read CSR arrays that are in place already. The pattern was checked and its rows counted when it
    came there, as in the planner. The first build, which compiles, does not count.
    """
    name, options = format_options(variant)
    xp, timer = place.backend.xp, place.timer
    given, block = matrix.csr, matrix.block_size
    (nrows, ncols), rowptr, colidx = given.shape, xp.asarray(given.indptr), xp.asarray(given.indices)
    csr = CsrPattern(nrows, ncols, rowptr, colidx, row_block=block, col_block=block).validated(place.backend)
    values = xp.asarray(given.data)

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
        "upload_seconds": timer.elapsed(lambda: place.backend.adopt(given.data), BUILDS)
        if place.name == "cuda"
        else 0.0,
        "stats": stored.stats()._asdict(),
    }


def in_mults(entry: dict[str, Any], mults: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Build, refresh and upload of a storage entry as multiples of a mult of the same format in the same place."""
    same = (p for p in mults if (p["name"], p["place"]) == (entry["format"], entry["place"]))
    median = next(same)["median_seconds"]
    return {name: entry[f"{name}_seconds"] / median for name in ("build", "refresh", "upload")}
