"""What the commands of ``python -m petsc_gpufmt bench`` do."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.command import finish, optional_packages, show, timed
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.results import Recorder
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.cli.bench_report import check_picture, plot

MATRIX_SETS = ("real", "real-replicated")
ALL_FORMATS_MATRICES = {
    "cuda": ("7point:100", "27point:64", "27point:40x3"),
    "host": ("7point:50", "27point:20", "27point:16x3"),
}
SET_FORMAT = "gpufmt"
"""Of the sets of matrices, unless others are named."""

PLACES = (("host", "cuda"), ("host",))
"""Those of a machine with a GPU, and of one without."""

PRODUCT_KINDS = ("square", "galerkin")


@contextlib.contextmanager
def measured_places(recorder: Recorder, host_only: bool) -> Iterator[dict[str, Any]]:
    """The places; the run gets the bandwidth of a copy in each. Says why there is no device, and how long all took."""
    from petsc_gpufmt.bench.places import available_places, device_reason

    with timed(recorder.run["name"]), available_places(host_only) as places:
        if "cuda" not in places and not host_only:
            show(f"Host only: {device_reason()}.")
        ceilings = {name: place.copy_bandwidth() for name, place in places.items()}
        for name, bandwidth in ceilings.items():
            show(f"Copy on {name}: {bandwidth / 1e12:.3f} TB/s, read and written bytes counted.")
        recorder.run["copy_bytes_per_second"] = ceilings
        yield places


def check_left_out(left_out: Iterable[str], known: Iterable[str]) -> None:
    """BenchError for a name after --without that is none of `known`, wherever they are measured."""
    names = list(dict.fromkeys(known))
    for name in left_out:
        if name not in names:
            raise BenchError(f"--without {name}: nobody has this name, choose from {', '.join(names)}")


def check_matrices(specs: Iterable[str] | None) -> None:
    """BenchError if one of `specs` cannot be made; a long measurement of others is not to end with it."""
    from petsc_gpufmt.backends.native_library import petsc_types
    from petsc_gpufmt.bench.matrices import check_matrix

    for spec in specs or ():
        check_matrix(spec, petsc_types()[1])


@optional_packages()
def run_mult(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.contenders import check_formats

    check_picture(arguments.plot)
    check_formats(arguments.format or ())
    if arguments.matrix_set:
        return run_matrix_set(arguments, *arguments.matrix_set)
    from petsc_gpufmt.bench.contenders import DEFAULT_VARIANTS, DEVICE_PEERS, HOST_PEERS, choose_contenders
    from petsc_gpufmt.bench.matrices import DEFAULT_MATRICES, make_matrix
    from petsc_gpufmt.bench.places import best_place, matrix_types

    variants = list(FORMATS) if arguments.all_formats else arguments.format
    peers = (peer.name for peer in (*DEVICE_PEERS, *HOST_PEERS))
    check_left_out(arguments.without, (*(variants or DEFAULT_VARIANTS), *peers))
    check_matrices(arguments.matrix)
    recorder = Recorder("mult, all formats" if arguments.all_formats else "mult", arguments.json, arguments.commit)
    with measured_places(recorder, arguments.host) as places:
        defaults = ALL_FORMATS_MATRICES if arguments.all_formats else DEFAULT_MATRICES

        def contenders(matrix: Any) -> list[Any]:
            chosen = choose_contenders(matrix, list(places), variants, DEVICE_PEERS)
            return [contender for contender in chosen if contender.name not in arguments.without]

        types = matrix_types(places["host"])
        specs = arguments.matrix or defaults[best_place(places)]
        status = measure_matrices(recorder, (make_matrix(spec, *types) for spec in specs), contenders, places)
    plot(arguments.plot, [recorder.measured])
    return status


def run_matrix_set(arguments: argparse.Namespace, name: str, folder: str) -> int:
    """The matrices of a folder against PETSc's types, in one place: the device, or the host where there is none."""
    from petsc_gpufmt.bench.contenders import HOST_PEERS, PETSC_DEVICE_PEERS, format_contender
    from petsc_gpufmt.bench.matrices import folder_matrices, make_matrix
    from petsc_gpufmt.bench.mult import measure_mults
    from petsc_gpufmt.bench.places import best_place, matrix_types
    from petsc_gpufmt.bench.summary import summarise, summary_line

    if name not in MATRIX_SETS:
        raise BenchError(f"--matrix-set {name}: choose from {', '.join(MATRIX_SETS)}")
    check_left_out(arguments.without, (peer.name for peer in (*PETSC_DEVICE_PEERS, *HOST_PEERS)))
    recorder = Recorder(name, arguments.json, arguments.commit)
    with measured_places(recorder, arguments.host) as places:
        place, types = best_place(places), matrix_types(places["host"])
        variants = list(FORMATS) if arguments.all_formats else arguments.format or [SET_FORMAT]
        ours = [format_contender(variant, place) for variant in variants]
        peers = PETSC_DEVICE_PEERS if place == "cuda" else HOST_PEERS
        contenders = [*ours, *(peer for peer in peers if peer.name not in arguments.without)]
        (launch,) = measure_mults(make_matrix("7point:1", *types), ours[:1], places, 0, types[2], show)
        recorder.run |= {"launch_seconds": launch["median_seconds"], "summary": {}}

        def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
            return {"summary": summarise(cases, variants[0])}

        matrices = folder_matrices(Path(folder), name == "real-replicated", *types)
        status = measure_matrices(recorder, matrices, lambda _: contenders, places, summary)
        if recorder.run["summary"]:
            show("\n" + summary_line(recorder.run["summary"]))
    plot(arguments.plot, [recorder.measured])
    return status


def measure_matrices(
    recorder: Recorder,
    matrices: Iterable[Any],
    contenders: Callable[[Any], list[Any]],
    places: dict[str, Any],
    facts: Callable[[list[dict[str, Any]]], dict[str, Any]] = lambda cases: {},
) -> int:
    """Measure and record each matrix; `facts` are what the run says of the cases so far. The exit status."""
    from petsc_gpufmt.bench.mult import measure_case, wrong_mults
    from petsc_gpufmt.bench.places import matrix_types

    rng = matrix_types(places["host"])[2]
    cases = (measure_case(matrix, contenders(matrix), places, rng, show) for matrix in matrices)
    return record(recorder, cases, wrong_mults, facts=facts)


def record(
    recorder: Recorder,
    cases: Iterable[dict[str, Any]],
    wrong_in: Callable[[dict[str, Any]], list[str]],
    seconds: str = "median_seconds",
    facts: Callable[[list[dict[str, Any]]], dict[str, Any]] = lambda cases: {},
) -> int:
    """Keep each case as it is measured, then sum them up by the time that `seconds` names. The exit status."""
    from petsc_gpufmt.bench.summary import fastest_lines

    wrong = []
    for case in cases:
        recorder.add(case, **facts([*recorder.cases, case]))
        wrong += wrong_in(case)
    for line in fastest_lines(recorder.cases, seconds):
        show(line)
    return finish(wrong)


@optional_packages()
def run_bsr(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.bsr import BLOCK_SIZES, ENTRIES, bsr_contenders, measure_block_size
    from petsc_gpufmt.bench.mult import wrong_mults
    from petsc_gpufmt.bench.places import best_place, matrix_types

    sizes = arguments.block_size or BLOCK_SIZES
    if min(sizes) < 1:
        raise BenchError(f"--block-size {min(sizes)}: give positive numbers")
    if arguments.entries is not None:
        check_least("--entries", arguments.entries, 1)
    check_picture(arguments.plot)
    recorder = Recorder("bsr", arguments.json, arguments.commit)
    with measured_places(recorder, arguments.host) as places:
        place, types = best_place(places), matrix_types(places["host"])
        contenders, entries = bsr_contenders(place), arguments.entries or ENTRIES[place]
        cases = (measure_block_size(size, entries, contenders, places, types, show) for size in sizes)
        status = record(recorder, cases, wrong_mults)
    plot(arguments.plot, [recorder.measured])
    return status


@optional_packages()
def run_spgemm(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.matrices import make_matrix
    from petsc_gpufmt.bench.places import best_place, matrix_types
    from petsc_gpufmt.bench.spgemm import default_cases, make_cases, measure_case, wrong_products
    from petsc_gpufmt.bench.spgemm_contenders import spgemm_contenders

    everybody = (contender.name for places in PLACES for contender in spgemm_contenders(places, arguments.variant))
    check_left_out(arguments.without, everybody)
    kinds = (arguments.only,) if arguments.only else PRODUCT_KINDS
    check_matrices(arguments.matrix)
    check_picture(arguments.plot)
    recorder = Recorder("spgemm", arguments.json, arguments.commit)
    with measured_places(recorder, arguments.host) as places:
        types = matrix_types(places["host"])
        chosen = spgemm_contenders(list(places), arguments.variant)
        contenders = [contender for contender in chosen if contender.name not in arguments.without]
        if arguments.matrix:
            named = ((make_matrix(spec, *types), Path(spec).is_file()) for spec in arguments.matrix)
            cases: Iterator[Any] = (
                case for matrix, real in named for case in make_cases(matrix, kinds, types[2], show, real)
            )
        else:
            cases = default_cases(best_place(places), arguments.matrices, kinds, types, show)
        measured = (measure_case(case, contenders, places, show) for case in cases)
        status = record(recorder, measured, wrong_products, "cold_seconds")
        if not recorder.cases:
            raise BenchError(
                "no product was measured: A A needs a square matrix, a pyramid of P^T A P one with a symmetric "
                "pattern, a full diagonal and at least 1000 rows"
            )
    plot(arguments.plot, [recorder.measured])
    return status


def run_programs(arguments: argparse.Namespace) -> int:
    """Whole programs; of those that nobody asked for by name, those whose sources are not there are left out."""
    from petsc_gpufmt.bench.compiled import compile_program, known_types
    from petsc_gpufmt.bench.pairs import Setting, measure_program, new_case
    from petsc_gpufmt.bench.places import gpu_reason
    from petsc_gpufmt.bench.programs import PROGRAMS, check_types, find_source, parse_program, programs_of_set

    reason = "--host" if arguments.host else gpu_reason()
    if arguments.program_set:
        programs = programs_of_set(arguments.program_set, on_device=reason is None)
    else:
        programs = [parse_program(spec) for spec in arguments.program or PROGRAMS]
    check_types(arguments.type or ())
    check_least("--pairs", arguments.pairs, 1)
    check_least("--cold", arguments.cold, 0)
    check_least("--seconds", arguments.seconds, 1)
    check_least("--ranks", arguments.ranks, 1)
    check_picture(arguments.plot)
    sources: dict[str, Path] = {}
    for program, _ in programs:
        try:
            sources[program.name] = find_source(program, arguments.petsc_source, arguments.examples)
        except BenchError as e:
            if arguments.program:
                raise
            show(f"Left out: {e}")
    # a run for each: programs and sizes that are measured later leave those of before in the file
    several = f", {arguments.ranks} ranks" if arguments.ranks > 1 else ""
    recorders = {
        name: Recorder(f"programs, {name}{several}", arguments.json, arguments.commit, size_and_place)
        for name in sources
    }
    wrong: list[str] = []
    with timed("programs"), tempfile.TemporaryDirectory() as folder:
        if reason:
            show(f"Host only: {reason}.")
        paths = {
            source: compile_program(source, Path(folder)) if source.suffix == ".c" else source
            for source in dict.fromkeys(sources.values())
        }
        for program, size in programs:
            if program.name not in sources:
                continue
            setting = Setting(
                program,
                size or (program.on_host if reason else program.on_device),
                paths[sources[program.name]],
                known_types(("aij" if reason else "aijcusparse",), arguments.type or program.formats),
                reason is None,
                arguments.pairs,
                arguments.cold,
                arguments.seconds,
                arguments.ranks,
                arguments.mpiexec,
            )
            case = new_case(setting)
            show(f"\n{program.name}, {setting.size} {program.size}{several}: {case['options']}")
            recorders[program.name].add(case)
            wrong += measure_program(setting, case, show, recorders[program.name].save)
    plot(arguments.plot, [recorder.measured for recorder in recorders.values()])
    return finish(wrong)


def size_and_place(case: dict[str, Any]) -> tuple[Any, Any]:
    return case.get("size"), case.get("place")


def check_least(option: str, value: float, least: int) -> None:
    """BenchError for a number that is too small, or is none."""
    if not least <= value < float("inf"):
        raise BenchError(f"{option} {value:g}: give at least {least}, and no infinity")


def run_all(arguments: argparse.Namespace) -> int:
    """MatMult of the default matrices; with a device also block sizes, real matrices and sparse products."""
    from petsc_gpufmt.bench.places import device_reason

    base = {"json": arguments.json, "commit": arguments.commit, "host": arguments.host, "plot": None}
    mult: dict[str, Any] = {"matrix": None, "matrix_set": None, "format": None, "all_formats": False, "without": []}
    status = run_mult(argparse.Namespace(**base, **mult))
    if not arguments.host and device_reason() is None:
        status |= run_bsr(argparse.Namespace(**base, block_size=None, entries=None))
        for name in MATRIX_SETS if arguments.matrices else ():
            given = mult | {"matrix_set": (name, arguments.matrices)}
            status |= run_mult(argparse.Namespace(**base, **given))
        sparse = {"matrix": None, "matrices": arguments.matrices, "only": None, "variant": None, "without": []}
        status |= run_spgemm(argparse.Namespace(**base, **sparse))
    return status
