"""The type that chooses: a matrix in the storage format that suits it.

The choice is made from the pattern (`petsc_gpufmt.choice.model`), for a small matrix from the counts of its rows alone.
On a device, a matrix that has been multiplied very often is stored once more, in the few formats that the model finds
close to each other, and the fastest of them is kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Fused, Launch
from petsc_gpufmt.choice.model import Candidate, csr_bytes, rank, takes_a_launch, worth_timing
from petsc_gpufmt.choice.mult_timer import MultTimer, is_limit
from petsc_gpufmt.choice.profile import Profile
from petsc_gpufmt.choice.registry import STORAGE_FORMATS
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.common.base import Format, Stats
from petsc_gpufmt.formats.common.known import NOTHING, Known
from petsc_gpufmt.formats.pjds import FEW_ENTRIES
from petsc_gpufmt.option_value import AUTO
from petsc_gpufmt.patterns.csr import CsrPattern

# Mults after which formats are timed; -1: so many that timing adds no more than TIMING_SHARE to what they have taken.
TIMED_AFTER = -1
TIMING_SHARE = 0.05
# What timing takes on an H200: plans of two or three stores and the loading of their kernels; and for each candidate as
# long as so many mults, until its arrays are made and filled and it is timed.
SECONDS_OF_TIMING, MULTS_OF_TIMING = 0.05, 150
# Of the mults of a candidate that are timed; three sequences are run.
TIMED_MULTS = 6
# A runner-up that saves less than the noise of the measurement does not replace the first choice.
WORTHWHILE = 0.97
# Share of the free memory of the device that two candidates may take together.
MEMORY_SHARE = 0.25


class Gpufmt(Format):
    """One matrix in a format of the package's choice, to which everything is passed on.

    Attributes
    ----------
    chosen : the matrix in that format
    decision : which one, and why, in a few words
    notes : lines with what the decision was made from
    """

    name = "gpufmt"
    default_options = {"format": AUTO, "timed_after": TIMED_AFTER}

    def __init__(self, chosen: Format, decision: str, notes: Sequence[str] = (), replan_after: int = 0):
        self.chosen, self.decision, self.notes, self.replan_after = chosen, decision, tuple(notes), replan_after

    @classmethod
    @functools.cache
    def accepted_options(cls) -> dict[str, int | str]:
        """Its own, and as ``format.option`` those of the formats it may choose."""
        others = {
            f"{f.name}.{key}": value for f in STORAGE_FORMATS.values() for key, value in f.default_options.items()
        }
        return {**cls.default_options, **others}

    @classmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any]) -> Gpufmt:
        """Store the pattern in the format that was asked for, or that the model finds fastest.

        Raises OptionError for a format that does not exist, and what the format raises.
        """
        timed_after = options["timed_after"]
        if timed_after < TIMED_AFTER:
            raise OptionError(
                f"-mat_gpufmt_timed_after {timed_after}: choose a number of products, 0 for no timing, "
                "or -1 for as many as take twenty times as long"
            )
        if options["format"] != AUTO:
            chosen = store(options["format"], {}, csr, backend, options)
            return cls(chosen, f"{chosen.name}, as asked for")
        csr, _ = csr.counted(backend)
        profile = Profile.of(csr, backend)
        ranked = rank(profile, backend)
        best, close = ranked[0], worth_timing(ranked)
        chosen = store(best.name, best.options, csr, backend, options, profile.known)
        if timed_after == TIMED_AFTER:
            timed_after = 0 if takes_a_launch(best) else mults_before_timing(close)
        timed = csr.nnz and backend.model is not None and len(close) > 1
        return cls(
            chosen,
            reasons(chosen, best, profile, backend),
            notes(profile, ranked, backend),
            timed_after if timed else 0,
        )

    @classmethod
    def rebuild(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any]) -> Gpufmt:
        """Store the pattern in the format whose mults take the least time, of those that the model finds close."""
        if options["format"] != AUTO:
            return cls.build(csr, backend, options)
        csr, _ = csr.counted(backend)
        profile = Profile.of(csr, backend)
        ranked = rank(profile, backend)
        best = ranked[0]
        chosen = store(best.name, best.options, csr, backend, options, profile.known)
        timer, lines = MultTimer(backend), notes(profile, ranked, backend)
        others = worth_timing(ranked)[1:]
        needed = 2 * max([chosen.stats().bytes_held, *(c.nbytes for c in others)])
        free = backend.free_bytes()
        if free is not None and needed > MEMORY_SHARE * free:
            lines.append(f"not timed: two copies need {in_bytes(needed)}, more than a quarter of the free memory")
            return cls(chosen, reasons(chosen, best, profile, backend), lines)
        seconds = {best.name: timer.seconds(chosen, csr, TIMED_MULTS)}
        least = seconds[best.name] * WORTHWHILE
        for candidate in others:
            stored = None  # a slower copy gives its memory back before the next is made
            try:
                stored = store(candidate.name, candidate.options, csr, backend, options, profile.known)
                seconds[candidate.name] = timer.seconds(stored, csr, TIMED_MULTS)
            except Exception as e:
                if not is_limit(e):
                    raise
                lines.append(f"{candidate.name} could not be timed: {e}")
                continue
            if seconds[candidate.name] < least:
                chosen, best, least = stored, candidate, seconds[candidate.name]
        times = ", ".join(f"{name} {value * 1e6:.1f}" for name, value in seconds.items())
        lines.insert(0, reasons(chosen, best, profile, backend))
        return cls(chosen, f"{chosen.name}: {profile.describe()}; timed in us: {times}", lines)

    @property
    def stored_as(self) -> str:
        return self.chosen.name

    def mult(self, alpha: float, beta: float) -> list[Launch]:
        return self.chosen.mult(alpha, beta)

    def add(self) -> list[Launch]:
        return self.chosen.add()

    def fused(self, operation: Fused) -> list[Launch] | None:
        return self.chosen.fused(operation)

    def diagonal(self) -> list[Launch]:
        return self.chosen.diagonal()

    def refresh(self) -> list[Launch]:
        return self.chosen.refresh()

    def stats(self) -> Stats:
        return self.chosen.stats()

    def reference(self, x: Any, y: Any = None) -> Any:
        return self.chosen.reference(x, y)

    def summary(self) -> str:
        return f"chose {self.decision}; {self.chosen.summary()}"

    def detail(self) -> str:
        timing = [f"formats are timed after {self.replan_after} products"] if self.replan_after else []
        return "\n".join(filter(None, [*self.notes, *timing, self.chosen.detail()]))


def store(
    name: str,
    chosen_options: dict[str, int],
    csr: CsrPattern,
    backend: Backend,
    options: dict[str, Any],
    known: Known = NOTHING,
) -> Format:
    """The pattern in the format `name`; the user's `options` go before the chosen ones. OptionError if unknown."""
    if name not in STORAGE_FORMATS:
        raise OptionError(f"-mat_gpufmt_format {name}: choose {AUTO} or one of {', '.join(STORAGE_FORMATS)}")
    cls, prefix = STORAGE_FORMATS[name], f"{name}."
    given = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
    merged: dict[str, Any] = {**cls.default_options, **chosen_options, **given}
    return cls.build_knowing(csr, backend, merged, known)


def mults_before_timing(close: Sequence[Candidate]) -> int:
    """Mults in the first of the candidates of which the timing of all takes no more than TIMING_SHARE."""
    timing = SECONDS_OF_TIMING + MULTS_OF_TIMING * sum(c.seconds for c in close)
    return math.ceil(timing / (TIMING_SHARE * close[0].seconds))


def reasons(chosen: Format, candidate: Candidate, profile: Profile, backend: Backend) -> str:
    """The format and what speaks for it, in words."""
    moved, as_csr = chosen.stats().bytes_per_mult, csr_bytes(profile, backend)
    parts = [profile.describe(), candidate.why, f"{in_bytes(moved)} a product against {in_bytes(as_csr)} as CSR"]
    return f"{chosen.name}: {'; '.join(part for part in parts if part)}"


def notes(profile: Profile, ranked: Sequence[Candidate], backend: Backend) -> list[str]:
    """Lines with the profile and the estimates; seconds are those of a device."""
    p = profile
    lines = [
        f"{p.nnz} entries; with the padding of slices of 32 rows {p.sliced_entries}, of rows sorted by length at "
        f"most {p.sorted_entries}; {p.empty_rows} empty rows"
    ]
    if p.lengths:
        lines.append(f"rows of 0, 1, 2, 3-4, 5-8, ... entries: {', '.join(map(str, p.lengths))}")
    if p.npatterns:
        lines.append(f"{p.npatterns} row patterns, which take the place of columns")
    elif p.sampled and p.nnz >= FEW_ENTRIES:
        lines.append(f"too many row patterns for a table; columns fit 16 bits in {p.short_slices:.0%} of the slices")
    if p.block_shape != (1, 1):
        lines.append("dense blocks: {} x {}, {:.0%} full".format(*p.block_shape, p.block_fill))
    for c in ranked:
        seconds = "" if backend.name == "host" else f", {c.seconds * 1e6:.1f} us"
        lines.append(f"estimate of {c.name}: {in_bytes(c.nbytes)}{seconds}; {c.why}")
    return lines


def in_bytes(count: float) -> str:
    """0.58 GB, 12.3 MB, 45.0 kB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= 0.1 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"
