"""What ``python -m petsc_gpufmt bench scaling`` does."""

from __future__ import annotations

import argparse
from pathlib import Path

from petsc_gpufmt.bench.command import finish, optional_packages
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.results import Recorder
from petsc_gpufmt.cli.bench_runs import check_least
from petsc_gpufmt.cli.model import parse_ranks


@optional_packages()
def run_scaling(arguments: argparse.Namespace) -> int:
    from petsc4py import PETSc

    from petsc_gpufmt.backends import driver
    from petsc_gpufmt.backends.native_library import petsc_types
    from petsc_gpufmt.bench import scaling
    from petsc_gpufmt.bench.places import gpu_reason
    from petsc_gpufmt.bench.programs import check_types
    from petsc_gpufmt.bench.rank_mult import Task
    from petsc_gpufmt.bench.rank_rows import check_ranks_matrix
    from petsc_gpufmt.bench.rank_start import Start, measure_on_ranks, refuse_options

    reason = "--host" if arguments.host else gpu_reason()
    devices = 0 if reason else driver.device_count()
    ranks = parse_ranks(arguments.ranks) if arguments.ranks else scaling.default_ranks(devices)
    modes = tuple(dict.fromkeys(arguments.mode or scaling.default_modes()))
    scaling.check_modes(modes)
    scaling.check_distribution(arguments.distribution, max(ranks))
    check_types([arguments.type])
    refuse_options(("mat_type",), "scaling")
    check_least("--seconds", arguments.seconds, 1)
    if arguments.plot:
        check_picture(arguments.plot)
    matrices = tuple(arguments.matrix or scaling.MATRICES["host" if reason else "cuda"])
    for spec in matrices:
        check_ranks_matrix(spec, max(ranks), arguments.weak, petsc_types()[1])
    peer = None if arguments.without_peer else "aij" if reason else "aijcusparse"
    matrix_type = arguments.type.removeprefix("aij")
    task = Task(matrices, arguments.weak, matrix_type, peer, modes, arguments.distribution)
    start = Start(reason is None, arguments.mpiexec, arguments.seconds)
    gpu_aware = PETSc.Options().getBool("use_gpu_aware_mpi", True)
    recorder = Recorder(scaling.run_name(task, gpu_aware), arguments.json, arguments.commit)
    measure_on_ranks(start, task, ranks, recorder, gpu_aware, reason, scaling.case_line, scaling.summary_lines)
    status = finish(scaling.wrong_cases(recorder.cases))
    if arguments.plot:
        draw(arguments.plot, recorder, reason)
    return status


def check_picture(path: Path) -> None:
    """BenchError for a file that is not to be an SVG, or that cannot be."""
    if path.suffix != ".svg":
        raise BenchError(f"--plot {path}: pictures are SVG; name a file that ends with .svg")
    if not path.parent.is_dir():
        raise BenchError(f"--plot {path}: there is no folder {path.parent}")


def draw(path: Path, recorder: Recorder, host_reason: str | None) -> None:
    """The picture of what was measured, beside what the model says of a GPU that it knows."""
    from petsc_gpufmt.backends import driver
    from petsc_gpufmt.backends.native_library import petsc_types
    from petsc_gpufmt.scaling.machine import gpu_called
    from petsc_gpufmt.scaling.plot import make_plot, models_of

    name = recorder.run["environment"]["processor"] if host_reason else driver.device_name(0)
    gpu = None if host_reason else gpu_called(name)
    models = models_of(recorder.cases, gpu, recorder.run["gpu_aware"], petsc_types()) if gpu else {}
    path.write_text(make_plot(recorder.cases, models, name))
