"""Settings of each format's options under which its tests run."""

from __future__ import annotations

from itertools import product

from petsc_gpufmt.formats.common.columns import FULL_ONLY, SHORT_WHERE_IT_FITS
from petsc_gpufmt.formats.common.csr_arrays import BLOCK_THREADS
from petsc_gpufmt.formats.common.ell import BLOCK_THREADS as ELL_BLOCK_THREADS
from petsc_gpufmt.formats.csrvector import THREADS_PER_ROW
from petsc_gpufmt.formats.evchyb.parameters import SMALL_BATCH
from petsc_gpufmt.formats.pjds import ALL_ROWS, AUTOMATIC, SLICE_HEIGHTS

ALL_OPTION_SETS: dict[str, list[dict[str, int | str]]] = {
    "pjds": [
        {"slice_height": height, "sigma_window": window}
        for height, window in product(SLICE_HEIGHTS, (AUTOMATIC, ALL_ROWS, 1, 8))
    ]
    + [{"slice_height": h, "sigma_window": w, "index": "short"} for h, w in product(SLICE_HEIGHTS, (1, ALL_ROWS))]
    + [{"slice_height": 32, "threads_per_row": t, "block_threads": n} for t, n in ((2, 64), (8, 256), (16, 512))],
    **{
        name: [{"block_threads": n, "index": i} for n, i in product(BLOCK_THREADS, (FULL_ONLY, SHORT_WHERE_IT_FITS))]
        for name in ("csrscalar", "csradaptive")
    },
    "csrvector": [
        {"threads_per_row": team, "block_threads": n, "index": index}
        for team, n, index in product(THREADS_PER_ROW, (64, 512), (FULL_ONLY, SHORT_WHERE_IT_FITS))
    ],
    "evchyb": [
        {},
        {"sigma_window": 1, "index": SHORT_WHERE_IT_FITS},
        {"sigma_window": 40, "split_length": 2, "segment_length": 256, "block_threads": 128, "batch": SMALL_BATCH},
        *(
            {"sigma_window": w, "split_length": 6, "block_threads": n, "entries_per_thread": e, "index": i}
            for w, n, e, i in product((64, ALL_ROWS), (128, 512), (1, 3), (FULL_ONLY, SHORT_WHERE_IT_FITS))
        ),
        {"split_length": 4096, "entries_per_thread": 2, "block_threads": 256},
    ],
    "ellpack": [{"block_threads": n} for n in ELL_BLOCK_THREADS],
    "ellpackr": [{"block_threads": n} for n in ELL_BLOCK_THREADS],
    "jds": [{"alignment": a, "block_threads": n} for a, n in product((1, 16, 48), ELL_BLOCK_THREADS)],
    "bsr": [
        *({"block_size": size} for size in (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 45, 46, 64)),
        {"block_size": 3, "kernel": "k2", "thread_groups": 16, "lambda": 1},
        {"block_size": 2, "kernel": "k1", "thread_groups": 4, "entries_per_thread": 2},
        {"block_size": 3, "kernel": "k1", "thread_groups": 1, "thread_arrays": 3},
        {"block_size": 7, "kernel": "k2", "thread_groups": 4, "rows_per_array": 2, "entries_per_thread": 2},
        {"block_size": 13, "kernel": "k3", "thread_groups": 2, "tile_height": 5, "thread_arrays": 3, "lambda": 2},
    ],
    "gpufmt": [
        {},
        {"format": "bsr", "bsr.block_size": 3},
        {"timed_after": 0, "pjds.slice_height": 8, "evchyb.split_length": 3, "csradaptive.block_threads": 64},
    ],
}
"""Every combination that takes another path."""

QUICK_OPTION_SETS: dict[str, list[dict[str, int | str]]] = {
    "pjds": [
        {},
        {"slice_height": 8, "sigma_window": ALL_ROWS},
        {"slice_height": 128, "sigma_window": 8, "index": SHORT_WHERE_IT_FITS},
        {"slice_height": 32, "index": SHORT_WHERE_IT_FITS, "threads_per_row": 4, "block_threads": 256},
    ],
    "csrscalar": [{}, {"block_threads": 64, "index": FULL_ONLY}],
    "csrvector": [{}, {"threads_per_row": 32, "block_threads": 512, "index": FULL_ONLY}, {"threads_per_row": 4}],
    "csradaptive": [{}, {"block_threads": 64, "index": FULL_ONLY}, {"block_threads": 512}],
    "evchyb": [
        {},
        {"split_length": 3, "segment_length": 256, "index": SHORT_WHERE_IT_FITS, "entries_per_thread": 1},
        {"split_length": 6, "sigma_window": 40, "index": SHORT_WHERE_IT_FITS, "block_threads": 512},
        {"batch": SMALL_BATCH},
    ],
    "ellpack": [{}, {"block_threads": 64}],
    "ellpackr": [{}, {"block_threads": 512}],
    "jds": [{}, {"alignment": 1}, {"alignment": 48, "block_threads": 64}],
    "bsr": [
        {},
        {"block_size": 3, "kernel": "k1", "thread_groups": 1, "thread_arrays": 3},
        {"block_size": 3, "kernel": "k2", "thread_groups": 16, "lambda": 1},
        {
            "block_size": 13,
            "kernel": "k3",
            "thread_groups": 2,
            "tile_height": 5,
            "thread_arrays": 3,
            "rows_per_array": 2,
        },
    ],
    "gpufmt": [{}, {"format": "evchyb", "evchyb.split_length": 3}],
}
"""The default, and a few far from it."""


def option_id(options: dict[str, int | str]) -> str:
    return ",".join(f"{name}={value}" for name, value in options.items()) or "default"
