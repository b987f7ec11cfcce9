"""Search for the fastest options of each format on the GPU at hand, by trying them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.choice.mult_timer import is_limit
from petsc_gpufmt.formats.common.base import Format
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.tuned_options import Facts, FormatOptions

MULTS = 30
WORTHWHILE = 0.98  # options that save less than the noise of a measurement are no better than the format's own choice

OptionSet = tuple[tuple[str, int | str], ...]
"""Options as sorted pairs; () leaves all to the format."""


class Timer(Protocol):
    def seconds(self, stored: Format, csr: CsrPattern, mults: int) -> float: ...


@dataclass
class Trial:
    """What was measured of one format on one matrix.

    Attributes
    ----------
    case, format_name, key : the matrix, the format, and the key under which the format files it
    seconds : of one mult with each set of options that could be run
    failed, left_out : sets of options that could not be run, and those for which there was no time
    """

    case: str
    format_name: str
    key: str
    seconds: dict[OptionSet, float] = field(default_factory=dict)
    failed: int = 0
    left_out: int = 0

    @property
    def best(self) -> OptionSet:
        """The fastest options; () unless others save something worthwhile."""
        return fastest([self.seconds])


def try_options(
    cls: type[Format], case: str, csr: CsrPattern, backend: Backend, timer: Timer, seconds_per_case: float
) -> Trial:
    """Time the format's own choice, and then every set of its tuning space until `seconds_per_case` have passed."""
    trial = Trial(case, cls.name, cls.tuning_key(csr))
    space: list[OptionSet] = [(), *(tuple(sorted(options.items())) for options in cls.tuning_space(csr))]
    end = time.monotonic() + seconds_per_case
    for number, options in enumerate(space):
        if number and time.monotonic() > end:
            trial.left_out = len(space) - number
            break
        try:
            merged: dict[str, Any] = {**cls.default_options, **dict(options)}
            stored = cls.build(csr, backend, merged)
            trial.seconds[options] = timer.seconds(stored, csr, MULTS)
        except Exception as e:
            if not is_limit(e):
                raise
            trial.failed += 1
    return trial


def tune(
    formats: Sequence[type[Format]],
    cases: Sequence[str],
    make_pattern: Callable[[str], CsrPattern],
    backend: Backend,
    timer: Timer,
    seconds_per_case: float,
) -> Iterator[list[Trial]]:
    """The trials of all formats, one case after another."""
    model, backend.model = backend.model, None  # else the automatic choice would be what was tuned before
    try:
        for case in cases:
            csr = make_pattern(case)
            tunable = [cls for cls in formats if cls.tuning_space(csr)]
            yield [try_options(cls, case, csr, backend, timer, seconds_per_case) for cls in tunable]
    finally:
        backend.model = model


def best_options(trials: Sequence[Trial]) -> tuple[FormatOptions, Facts]:
    """The best options of each key, and how they were found; no options where the format's own choice is as good."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        if trial.seconds:
            groups.setdefault((trial.format_name, trial.key), []).append(trial)
    formats: FormatOptions = {}
    facts: Facts = {}
    for (format_name, key), group in groups.items():
        options = fastest([t.seconds for t in group])
        formats.setdefault(format_name, {})[key] = dict(options)
        facts.setdefault(format_name, {})[key] = {
            "seconds": {t.case: t.seconds[options] for t in group if options in t.seconds},
            "seconds_of_automatic": {t.case: t.seconds[()] for t in group if () in t.seconds},
        }
    return formats, facts


def fastest(measured: Sequence[dict[OptionSet, float]]) -> OptionSet:
    """The options whose seconds, as multiples of the best on each matrix, are least on average.

    Only sets that could be run on all the matrices count, if there is one; () wins unless others save enough.
    """
    common = set.intersection(*(set(seconds) for seconds in measured)) or set(measured[0])
    on = [seconds for seconds in measured if common <= set(seconds)]
    mean = {o: sum(seconds[o] / min(seconds.values()) for seconds in on) / len(on) for o in sorted(common)}
    best = min(mean, key=mean.__getitem__)
    return () if () in mean and mean[best] > WORTHWHILE * mean[()] else best
