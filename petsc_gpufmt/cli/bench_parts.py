"""``python -m petsc_gpufmt bench parts``: its arguments, and what it does."""

from __future__ import annotations

import argparse

from petsc_gpufmt.bench.command import add_output, finish, optional_packages, show
from petsc_gpufmt.bench.results import Recorder
from petsc_gpufmt.cli.bench_runs import check_matrices, measured_places


def add_parts(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "parts", help="where the time of a product in EVC-HYB goes: matrix, x and the rest, by three experiments"
    )
    parser.add_argument("--matrix", action="append", metavar="M", help="as for mult; may be repeated")
    add_output(parser)
    parser.set_defaults(run=run_parts)


@optional_packages()
def run_parts(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench import parts, places
    from petsc_gpufmt.bench.matrices import make_matrix

    check_matrices(arguments.matrix)
    parts.check_device(places.device_reason())
    recorder = Recorder("parts", arguments.json, arguments.commit)
    wrong: list[str] = []
    with measured_places(recorder, host_only=False) as found:
        types = places.matrix_types(found["host"])
        for spec in dict.fromkeys(arguments.matrix or parts.MATRICES):
            case = parts.measure_parts(make_matrix(spec, *types), found["cuda"], types[2])
            recorder.add(case)
            show(parts.case_line(case))
            wrong += parts.wrong_cases(case)
    return finish(wrong)
