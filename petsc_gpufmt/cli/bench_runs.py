"""What the commands of ``python -m petsc_gpufmt bench`` do."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.registry import FORMATS

NOTES = Path("docs/performance_notes.md")
MATRIX_SETS = ("real", "real-replicated")
ALL_FORMATS_MATRICES = {
    "cuda": ("7point:100", "27point:64", "27point:40x3"),
    "host": ("7point:50", "27point:20", "27point:16x3"),
}
DEFAULT_FORMATS = ("gpufmt", "pjds")
PLACES = (("host", "cuda"), ("host",))
"""Those of a machine with a GPU, and of one without."""

PRODUCT_KINDS = ("square", "galerkin")
PRECONDITIONERS = ("jacobi", "gamg")


class Recorder:
    """Keeps the cases of one benchmark, and writes them after each: an interrupted one leaves what it measured.

    It is made before anything is measured: a file that cannot be written is found out then.
    """

    def __init__(self, name: str, arguments: argparse.Namespace):
        from petsc_gpufmt.bench.environment import describe
        from petsc_gpufmt.bench.results import check_file

        self.path = arguments.json
        if self.path:
            check_file(self.path)
        self.run: dict[str, Any] = {"name": name, "environment": describe(arguments.commit)}
        self.cases: list[dict[str, Any]] = []

    def add(self, case: dict[str, Any], **facts: Any) -> None:
        """One more case, and what the run says of all cases so far."""
        from petsc_gpufmt.bench.results import save_run

        self.cases.append(case)
        self.run |= facts
        if self.path:
            save_run(self.path, {**self.run, "cases": self.cases})


def finish(wrong: list[str]) -> int:
    """Say which results are wrong; the exit status."""
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


def show(line: str) -> None:
    print(line, flush=True)


@contextlib.contextmanager
def timed(name: str) -> Iterator[None]:
    """Say how long a benchmark took."""
    start = time.perf_counter()
    yield
    show(f"\n{name}: {time.perf_counter() - start:.0f} s")


@contextlib.contextmanager
def optional_packages() -> Iterator[None]:
    """Benchmarks and tuning need more packages than the matrix types do: those of the extra `bench`."""
    try:
        yield
    except ModuleNotFoundError as e:
        package = (e.name or "").partition(".")[0]
        raise BenchError(f"this command needs {package}, which is not installed: pip install {package}") from e


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


def best_place(places: dict[str, Any]) -> str:
    """Where sets of large matrices are measured."""
    return "cuda" if "cuda" in places else "host"


def matrix_types(places: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Type of values, type of indices and a generator of random numbers, for the functions of bench/matrices.py."""
    import numpy as np

    from petsc_gpufmt.bench.mult import SEED

    host = places["host"].backend
    return host.scalar, host.index, np.random.default_rng(SEED)


@optional_packages()
def run_mult(arguments: argparse.Namespace) -> int:
    if arguments.matrix_set:
        return run_matrix_set(arguments, *arguments.matrix_set)
    from petsc_gpufmt.bench.contenders import DEFAULT_VARIANTS, DEVICE_PEERS, HOST_PEERS, choose_contenders
    from petsc_gpufmt.bench.matrices import DEFAULT_MATRICES, make_matrix

    variants = list(FORMATS) if arguments.all_formats else arguments.format
    peers = (peer.name for peer in (*DEVICE_PEERS, *HOST_PEERS))
    check_left_out(arguments.without, (*(variants or DEFAULT_VARIANTS), *peers))
    recorder = Recorder("mult, all formats" if arguments.all_formats else "mult", arguments)
    with measured_places(recorder, arguments.host) as places:
        defaults = ALL_FORMATS_MATRICES if arguments.all_formats else DEFAULT_MATRICES

        def contenders(matrix: Any) -> list[Any]:
            chosen = choose_contenders(matrix, list(places), variants, DEVICE_PEERS)
            return [contender for contender in chosen if contender.name not in arguments.without]

        types = matrix_types(places)
        specs = arguments.matrix or defaults[best_place(places)]
        return measure_matrices(recorder, (make_matrix(spec, *types) for spec in specs), contenders, places)


def run_matrix_set(arguments: argparse.Namespace, name: str, folder: str) -> int:
    """The matrices of a folder against PETSc's types, in one place: the device, or the host where there is none."""
    from petsc_gpufmt.bench.contenders import HOST_PEERS, PETSC_DEVICE_PEERS, format_contender
    from petsc_gpufmt.bench.matrices import folder_matrices, make_matrix
    from petsc_gpufmt.bench.mult import measure_products
    from petsc_gpufmt.bench.summary import summarise, summary_line

    if name not in MATRIX_SETS:
        raise BenchError(f"--matrix-set {name}: choose from {', '.join(MATRIX_SETS)}")
    check_left_out(arguments.without, (peer.name for peer in (*PETSC_DEVICE_PEERS, *HOST_PEERS)))
    recorder = Recorder(name, arguments)
    with measured_places(recorder, arguments.host) as places:
        place, types = best_place(places), matrix_types(places)
        variants = list(FORMATS) if arguments.all_formats else arguments.format or DEFAULT_FORMATS[:1]
        ours = [format_contender(variant, place) for variant in variants]
        peers = PETSC_DEVICE_PEERS if place == "cuda" else HOST_PEERS
        contenders = [*ours, *(peer for peer in peers if peer.name not in arguments.without)]
        (launch,) = measure_products(make_matrix("7point:1", *types), ours[:1], places, 0, types[2], show)
        recorder.run |= {"launch_seconds": launch["median_seconds"], "summary": {}}

        def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
            return {"summary": summarise(cases, variants[0])}

        matrices = folder_matrices(Path(folder), name == "real-replicated", *types)
        status = measure_matrices(recorder, matrices, lambda _: contenders, places, summary)
        if recorder.run["summary"]:
            show("\n" + summary_line(recorder.run["summary"]))
        return status


def measure_matrices(
    recorder: Recorder,
    matrices: Iterable[Any],
    contenders: Callable[[Any], list[Any]],
    places: dict[str, Any],
    facts: Callable[[list[dict[str, Any]]], dict[str, Any]] = lambda cases: {},
) -> int:
    """Measure and record each matrix; `facts` are what the run says of the cases so far. The exit status."""
    from petsc_gpufmt.bench.mult import measure_case, wrong_products

    wrong = []
    rng = matrix_types(places)[2]
    for matrix in matrices:
        case = measure_case(matrix, contenders(matrix), places, rng, show)
        recorder.add(case, **facts([*recorder.cases, case]))
        wrong += wrong_products(case)
    return finish(wrong)


@optional_packages()
def run_bsr(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.bsr import BLOCK_SIZES, ENTRIES, bsr_contenders, measure_block_size
    from petsc_gpufmt.bench.mult import wrong_products

    wrong = []
    recorder = Recorder("bsr", arguments)
    with measured_places(recorder, arguments.host) as places:
        place, types = best_place(places), matrix_types(places)
        contenders = bsr_contenders(place)
        for block_size in arguments.block_size or BLOCK_SIZES:
            if block_size < 1:
                raise BenchError(f"--block-size {block_size}: give positive numbers")
            entries = arguments.entries or ENTRIES[place]
            case = measure_block_size(block_size, entries, contenders, places, types[2], show)
            recorder.add(case)
            wrong += wrong_products(case)
    return finish(wrong)


@optional_packages()
def run_spgemm(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.matrices import make_matrix
    from petsc_gpufmt.bench.spgemm import default_cases, make_cases, measure_case, wrong_products
    from petsc_gpufmt.bench.spgemm_contenders import spgemm_contenders

    wrong = []
    everybody = (contender.name for places in PLACES for contender in spgemm_contenders(places, arguments.variant))
    check_left_out(arguments.without, everybody)
    kinds = (arguments.only,) if arguments.only else PRODUCT_KINDS
    recorder = Recorder("spgemm", arguments)
    with measured_places(recorder, arguments.host) as places:
        types = matrix_types(places)
        chosen = spgemm_contenders(list(places), arguments.variant)
        contenders = [contender for contender in chosen if contender.name not in arguments.without]
        if arguments.matrix:
            named = ((make_matrix(spec, *types), Path(spec).is_file()) for spec in arguments.matrix)
            cases: Iterator[Any] = (
                case for matrix, real in named for case in make_cases(matrix, kinds, types[2], show, real)
            )
        else:
            cases = default_cases(best_place(places), arguments.matrices, kinds, types, show)
        for case in cases:
            measured = measure_case(case, contenders, places, show)
            recorder.add(measured)
            wrong += wrong_products(measured)
        if not recorder.cases:
            raise BenchError(
                "no product was measured: A A needs a square matrix, a pyramid of P^T A P one with a symmetric "
                "pattern, a full diagonal and at least 1000 rows"
            )
    return finish(wrong)


@optional_packages()
def run_mult_from_c(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.matrices import make_matrix
    from petsc_gpufmt.bench.mult_from_c import case_line, measure_from_c, write_case
    from petsc_gpufmt.bench.places import host_place
    from petsc_gpufmt.bench.programs import compile_program

    recorder = Recorder("mult-from-c", arguments)
    types = matrix_types({"host": host_place()})
    with timed("mult-from-c"), tempfile.TemporaryDirectory() as folder:
        program = compile_program(arguments.source, Path(folder))
        for number, spec in enumerate(arguments.matrix or arguments.default_matrices):
            matrix, file = make_matrix(spec, *types), Path(folder, f"case{number}")
            write_case(file, matrix, types[2])
            for matrix_type in arguments.types or known_types(("aij", "aijcusparse", "sellcuda"), DEFAULT_FORMATS):
                case = measure_from_c(program, file, matrix, matrix_type)
                recorder.add(case)
                show(case_line(case))
    return 0


def run_bratu_benchmark(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.bratu import Setting, agreement, entry_line, measure_bratu
    from petsc_gpufmt.bench.programs import compile_program

    name = "bratu"
    if arguments.pc != PRECONDITIONERS[0]:
        name += f", {arguments.pc.upper()}"
    if arguments.all_formats:
        name += ", all formats"
    if arguments.ranks > 1:
        name += f", {arguments.ranks} ranks"
    formats = tuple(FORMATS) if arguments.all_formats else DEFAULT_FORMATS
    recorder = Recorder(name, arguments)
    wrong = []
    with timed(name), tempfile.TemporaryDirectory() as folder:
        program = compile_program(arguments.source, Path(folder))
        for grid in arguments.grid:
            show(f"Bratu {grid}^3, ranks {arguments.ranks}")
            setting = Setting(program, grid, arguments.ranks, arguments.pc, arguments.mpiexec, arguments.seconds)
            entries = []
            for matrix_type in arguments.types or known_types(("aijcusparse",), formats):
                entry = measure_bratu(setting, matrix_type)
                entries.append(entry)
                show(entry_line(entry))
            recorder.add({"grid": grid, "ranks": arguments.ranks, "runs": entries})
            wrong += [f"Bratu {grid}^3, ranks {arguments.ranks}: {text}" for text in agreement(entries)]
    return finish(wrong)


def known_types(peers: tuple[str, ...], formats: tuple[str, ...]) -> list[str]:
    """The peers that this PETSc has, AIJ where it has none of them, then our formats."""
    from petsc_gpufmt.bench.places import device_reason

    usable = [peer for peer in peers if peer == "aij" or device_reason() is None]
    return [*(usable or ["aij"]), *formats]


def run_all(arguments: argparse.Namespace) -> int:
    """The benchmarks that need no compiler, and with a device the figures to reach from all results in the file."""
    from petsc_gpufmt.bench.places import device_reason

    base = {"json": arguments.json, "commit": arguments.commit, "host": arguments.host}
    mult: dict[str, Any] = {"matrix": None, "matrix_set": None, "format": None, "all_formats": False, "without": []}
    status = run_mult(argparse.Namespace(**base, **mult))
    if not arguments.host and device_reason() is None:
        status |= run_bsr(argparse.Namespace(**base, block_size=None, entries=None))
        for name in MATRIX_SETS if arguments.matrices else ():
            given = mult | {"matrix_set": (name, arguments.matrices)}
            status |= run_mult(argparse.Namespace(**base, **given))
        sparse = {"matrix": None, "matrices": arguments.matrices, "only": None, "variant": None, "without": []}
        status |= run_spgemm(argparse.Namespace(**base, **sparse))
        show("")
        run_report(argparse.Namespace(results=[arguments.json], targets=True))
    return status


def run_report(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.report import collect, make_report, targets_section
    from petsc_gpufmt.bench.results import read_runs

    runs = [run for path in arguments.results for run in read_runs(path)]
    if arguments.targets:
        print(targets_section(collect(runs)), end="")
        return 0
    notes = arguments.notes or NOTES
    if arguments.notes and not notes.is_file():
        raise BenchError(f"--notes {notes}: there is no such file")
    print(make_report(runs, notes.read_text() if notes.is_file() else ""), end="")
    return 0
