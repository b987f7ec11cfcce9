"""What ``python -m petsc_gpufmt bench ksp`` does."""

from __future__ import annotations

import argparse

from petsc_gpufmt.bench.command import check_choices, finish, optional_packages
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.results import Recorder
from petsc_gpufmt.cli.bench_report import check_picture, plot
from petsc_gpufmt.cli.bench_runs import check_least
from petsc_gpufmt.cli.model import parse_ranks


@optional_packages()
def run_ksp(arguments: argparse.Namespace) -> int:
    from petsc4py import PETSc

    from petsc_gpufmt.backends.native_library import petsc_types
    from petsc_gpufmt.bench import ksp
    from petsc_gpufmt.bench.places import gpu_reason
    from petsc_gpufmt.bench.programs import check_types
    from petsc_gpufmt.bench.rank_ksp import Task
    from petsc_gpufmt.bench.rank_spd import check_names, check_spd_matrix
    from petsc_gpufmt.bench.rank_start import Start, measure_on_ranks, refuse_options

    reason = "--host" if arguments.host else gpu_reason()
    ranks = parse_ranks(arguments.ranks)
    methods = tuple(dict.fromkeys(arguments.method or ["cg"]))
    outers = tuple(dict.fromkeys(arguments.outer or ksp.OUTERS[:1]))
    types = tuple(dict.fromkeys(name.removeprefix("aij") for name in arguments.type or ["gpufmt"]))
    check_choices("--method", methods, (*ksp.METHODS, ksp.MIXED_METHOD))
    check_choices("--outer", outers, ksp.OUTERS)
    check_choices("--pc", [arguments.pc], ksp.PRECONDITIONERS)
    check_types(types)
    if arguments.outer and ksp.MIXED_METHOD not in methods:
        raise BenchError(f"--outer {arguments.outer[0]}: it belongs to --method {ksp.MIXED_METHOD}")
    refuse_options(ksp.FIXED_OPTIONS, "ksp")
    if not 0 < arguments.rtol < 1:
        raise BenchError(f"--rtol {arguments.rtol:g}: give a number between 0 and 1, such as 1e-8")
    check_least("--max-it", arguments.max_it, 1)
    check_least("--seconds", arguments.seconds, 1)
    matrices = tuple(dict.fromkeys(arguments.matrix or ksp.MATRICES["host" if reason else "cuda"]))
    for spec in matrices:
        check_spd_matrix(spec, petsc_types()[1])
    check_names(matrices)
    contenders = ksp.make_contenders(methods, types, "aij" if reason else "aijcusparse", outers)
    task = Task(matrices, contenders, arguments.pc, arguments.rtol, arguments.max_it, arguments.history)
    start = Start(reason is None, arguments.mpiexec, arguments.seconds)
    gpu_aware = PETSc.Options().getBool("use_gpu_aware_mpi", True)
    name = ksp.run_name(task, methods, types, gpu_aware, ranks, outers)
    check_picture(arguments.plot)
    recorder = Recorder(name, arguments.json, arguments.commit)
    measure_on_ranks(start, task, ranks, recorder, gpu_aware, reason, ksp.case_line, ksp.summary_lines)
    plot(arguments.plot, [recorder.measured])
    return finish(ksp.wrong_cases(recorder.cases))
