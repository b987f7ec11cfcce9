"""``python -m petsc_gpufmt tune``: arguments of the search for the fastest options, its table and its file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.command import optional_packages
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.tune.search import MULTS, Trial

SECONDS, QUICK_SECONDS = 120.0, 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        action="append",
        metavar="F",
        help="format to tune; may be repeated (default: all that have options)",
    )
    parser.add_argument(
        "--matrix",
        action="append",
        metavar="M",
        help="powerlaw:ROWS, or what `bench mult` takes; may be repeated (default: stencils, blocks, power laws)",
    )
    parser.add_argument(
        "--seconds-per-case",
        type=float,
        metavar="S",
        help="time limit for one format on one matrix, compilation included "
        f"(default {SECONDS:g}, {QUICK_SECONDS:g} with --quick)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller matrices, in less time each")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="where to write what was found (default: the file of this GPU model that the formats read)",
    )
    parser.set_defaults(run=run_tune)


@optional_packages()
def run_tune(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.environment import describe
    from petsc_gpufmt.bench.places import device_place, device_reason
    from petsc_gpufmt.choice.mult_timer import MultTimer
    from petsc_gpufmt.choice.registry import FORMATS, find_format
    from petsc_gpufmt.tune.matrices import MATRICES, QUICK_MATRICES, make_pattern
    from petsc_gpufmt.tune.search import best_options, tune
    from petsc_gpufmt.tuned_options import cache_file, save_tuning
    from petsc_gpufmt.user_cache import untrusted

    formats = [find_format(name) for name in arguments.format or FORMATS]
    specs = arguments.matrix or (QUICK_MATRICES if arguments.quick else MATRICES)
    seconds = arguments.seconds_per_case or (QUICK_SECONDS if arguments.quick else SECONDS)
    reason = device_reason()
    if reason:
        raise UnsupportedError(f"tune looks for options for a GPU, and {reason}: run it on a machine with one")
    with device_place() as place:
        backend, model = place.backend, str(place.backend.model)
        path = arguments.output or cache_file(model)
        if refused := untrusted(str(path.parent)):
            raise UnsupportedError(refused)
        environment = {
            name: str(value) for name, value in describe().items() if name in ("driver", "commit", "package")
        }
        print(f"{model}, {MULTS} mults a sequence")
        print(HEADER)
        trials: list[Trial] = []
        for found in tune(
            formats, specs, lambda spec: make_pattern(spec, backend), backend, MultTimer(backend), seconds
        ):
            trials += found
            for trial in found:
                print(table_line(trial), flush=True)
            kept = save_tuning(path, model, *with_facts(best_options(trials), environment))
            if kept:
                print(f"{path} was damaged: it is now {kept}")
    if not trials:
        raise UnsupportedError(f"{', '.join(cls.name for cls in formats)}: no options to choose; leave out --format")
    print(f"Written to {path}")
    return 0


def with_facts(found: tuple[dict[str, Any], dict[str, Any]], environment: dict[str, str]) -> tuple[Any, Any]:
    """What was found, and to the facts on each key, those on the environment."""
    formats, facts = found
    return formats, {name: {key: {**fact, **environment} for key, fact in keys.items()} for name, keys in facts.items()}


HEADER = f"{'matrix':18}{'format':12}{'key':24}{'automatic us':>13}{'best us':>10}{'tried':>7}{'failed':>8}  options"


def table_line(trial: Trial) -> str:
    label = f"{trial.case:18}{trial.format_name:12}{trial.key:24}"
    automatic = f"{trial.seconds[()] * 1e6:13.2f}" if () in trial.seconds else f"{'-':>13}"
    if not trial.seconds:
        return f"{label}{automatic}{'-':>10}{0:7}{trial.failed:8}  none could be run"
    best = trial.best
    options = ", ".join(f"{name}={value}" for name, value in best) or "automatic"
    left_out = f" ({trial.left_out} left out: no time)" if trial.left_out else ""
    counts = f"{len(trial.seconds):7}{trial.failed:8}"
    return f"{label}{automatic}{trial.seconds[best] * 1e6:10.2f}{counts}  {options}{left_out}"
