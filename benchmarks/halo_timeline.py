"""What ranks do in one product, and when: ``mpiexec -n 2 python benchmarks/halo_timeline.py --json FILE``.

Plans get a launch before their first and behind their last that stamps the time, by the device's global timer; MPI's
profiling interface says when messages are started and waited for, and the program when MatMult begins and ends. The
clock of each device is compared with that of the host, which all ranks share, before and after the products. Nothing of
this is in the package: what runs are its own kernels and its own library. Stamps take time, so products are timed
without them, too. `halo_timeline_plot.py` draws what is found.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends import driver, native_library, nvrtc
from petsc_gpufmt.backends.backend import Backend, CudaBackend
from petsc_gpufmt.backends.kernel_modules import Module
from petsc_gpufmt.backends.plan import Launch, Operation, PeerStep
from petsc_gpufmt.bench.command import add_output, show
from petsc_gpufmt.bench.compiled import compile_program
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.rank_mult import AS_MADE, Product, is_right, make_product, measure
from petsc_gpufmt.bench.rank_rows import RankRows, check_ranks_matrix, make_rows
from petsc_gpufmt.bench.results import Recorder
from petsc_gpufmt.cli.outcome import exit_status, program
from petsc_gpufmt.planning import abi
from petsc_gpufmt.planning.abi import Ask
from petsc_gpufmt.planning.requests import KINDS

SOURCES = Path(__file__).with_suffix("")
MATRICES = ("7point:200", "27point:128")
MODES = ("vector", "overlap", "task", "peer")
PARTS = ("pack", "send", "wait", "local", "nonlocal")
"""What plans do; begin and end of PARTS[k] are stamped by 2 k and 2 k + 1."""
PEER_STEPS = (("send", PeerStep.SEND), ("wait", PeerStep.WAIT))
CALLS = ("MPI_Startall", "MPI_Waitall", "MPI_Testsome", "MPI_Start")
STAMPED = {"task": ("pack",), "peer": ("send", "wait")}
"""Parts of a product in a mode besides the local and the nonlocal one; what PETSc packs is not stamped."""
PRODUCTS = 24  # that are recorded
FIRST_SHOWN = PRODUCTS // 3  # the device is behind the host by then, if it ever is
CAPACITY = 2 * len(PARTS) * PRODUCTS
NO_RANKS = "start it on several ranks, such as by mpiexec -n 2"


class Span(NamedTuple):
    """What a rank does in a product, from begin to end in nanoseconds of CLOCK_MONOTONIC.

    `what` is one of PARTS or CALLS, or "MatMult" for the host in it; `product` is its number in the sequence.
    """

    what: str
    product: int
    begin: int
    end: int
    by_another_thread: bool = False


class Calls:
    """The calls of MPI, and the function that stamps on the host: halo_timeline.c, which was loaded before MPI."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self._ncalls = ctypes.c_long.in_dll(self.library, "timeline_ncalls")
        self._capacity = ctypes.c_long.in_dll(self.library, "timeline_most_calls").value

    def begin(self) -> None:
        """Forget calls so far; those from now on by the thread that calls this are PETSc's."""
        self.library.timeline_begin()

    def spans(self, products: Sequence[Span]) -> list[Span]:
        """The calls that were made in these products, by their threads or others."""
        count = self._ncalls.value
        if count > self._capacity:
            raise BenchError(f"{count} calls of MPI in {len(products)} products, {self._capacity} can be kept")
        table = (ctypes.c_int64 * (4 * count)).in_dll(self.library, "timeline_calls")
        found = []
        for function, beside, begin, end in np.array(table).reshape(count, 4).tolist():
            for product in products:
                if product.begin <= begin and end <= product.end:
                    found.append(Span(CALLS[function], product.product, begin, end, bool(beside)))
        return found


class Stamps:
    """Launches around those of plans that stamp the time."""

    def __init__(self, calls: Calls):
        self._calls = calls
        self._stamping = False
        self._backend: Backend | None = None  # of the plans
        self._peer: Any = None  # the answer with the plans of mode peer, which the library asks for once and keeps
        self._memory = 0
        self._functions: dict[str, int] = {}
        for ask in (Ask.STORE, Ask.ENTRY_SUM, Ask.PEER):
            KINDS[ask] = KINDS[ask]._replace(fill=functools.partial(self._fill, ask, KINDS[ask].fill))

    @contextlib.contextmanager
    def stamping(self) -> Iterator[None]:
        """Plans have stamps that are made in a ``with`` statement, and those of mode peer meanwhile.

        The library sets the grids of the latter, in the first launch of each: there must have been a product before
        with the pattern of those in the statement.
        """
        self._stamping = True
        if not self._functions:
            self._start()
        plans = [] if self._peer is None else [(part, self._peer.steps[step]) for part, step in PEER_STEPS]
        before = [(plan, plan.nlaunches, ctypes.pointer(plan.launches.contents)) for _, plan in plans]
        kept = [self._around(part, plan) for part, plan in plans]
        try:
            yield
        finally:
            self._stamping = False
            for plan, nlaunches, launches in before:
                plan.nlaunches, plan.launches = nlaunches, launches
            kept.clear()

    def _fill(self, ask: Ask, fill: Any, request: Any, answer: Any, backend: Backend) -> Any:
        leases = fill(request, answer, backend)
        self._backend = backend
        if ask is Ask.PEER:
            self._peer = answer
        elif self._stamping:
            for part, plan in _store_plans(request, answer) if ask is Ask.STORE else [("pack", answer.sum)]:
                leases[0][1].extend(self._around(part, plan))
        return leases

    def _start(self) -> None:
        backend, nbytes = self._backend, 8 * (1 + 2 * CAPACITY)
        if not isinstance(backend, CudaBackend):
            self._on_host = np.zeros(nbytes // 8, dtype=np.int64)
            self._memory = self._on_host.ctypes.data
            self._functions["timeline_stamp"] = _address(self._calls.library.timeline_stamp)
            return
        names = ("timeline_stamp", "timeline_clock")
        architecture = nvrtc.architecture_for(driver.compute_capability(backend.device))
        compiled = nvrtc.compile_module(Module(str(SOURCES), names), backend.scalar, backend.index, architecture)
        module = driver.load_module(compiled.image)
        self._functions = {name: driver.module_function(module, compiled.symbols[name]) for name in names}
        self._memory, self._pinned = driver.allocate(nbytes), driver.allocate_pinned(16)

    def _around(self, part: str, plan: abi.PlanStruct) -> list[Any]:
        """Put stamps around the launches of a plan; returns what must live as long as it is used."""
        if not plan.nlaunches:
            return []
        stamps, function, what = abi.PlanStruct(), self._functions["timeline_stamp"], 2 * PARTS.index(part)
        launches = [Launch(function, (1, 1, 1), (1, 1, 1), (self._memory, CAPACITY, what + k)) for k in range(2)]
        kept = abi.export_plan(launches, stamps)
        begin, end = stamps.launches[:2]
        together = (abi.LaunchStruct * (plan.nlaunches + 2))(begin, *plan.launches[: plan.nlaunches], end)
        plan.launches, plan.nlaunches = together, len(together)
        return [*kept, together]

    def wait(self) -> None:
        """Until launches so far are over."""
        if isinstance(self._backend, CudaBackend):
            driver.synchronize_context()

    def clear(self) -> None:
        """Forget stamps so far."""
        if isinstance(self._backend, CudaBackend):
            driver.fill(self._memory, 0, 8, 0)
            self.wait()
        else:
            self._on_host[0] = 0

    def read(self) -> np.ndarray:
        """(n, 2) int64: what is stamped, and the time, in the order of stamps; for launches that are over."""
        if isinstance(self._backend, CudaBackend):
            stamps = np.empty(1 + 2 * CAPACITY, dtype=np.int64)
            driver.copy_to_host(stamps.ctypes.data, self._memory, stamps.nbytes, 0)
            driver.synchronize_stream(0)
        else:
            stamps = self._on_host
        count = min(int(stamps[0]), CAPACITY)
        return stamps[1 : 1 + 2 * count].reshape(count, 2).copy()

    def compare_clocks(self, nanoseconds: int = 2_000_000) -> ClockAt:
        """What is to be added to times of stamps; takes so long where they are not the host's."""
        if not isinstance(self._backend, CudaBackend):
            return ClockAt(time.monotonic_ns(), 0, 0)
        word, step = (ctypes.c_int64.from_address(self._pinned + offset) for offset in (0, 8))
        word.value = step.value = 0
        function = self._functions["timeline_clock"]
        self._backend.run([Launch(function, (1, 1, 1), (1, 1, 1), (self._pinned, nanoseconds))])
        least, now = 2**63, time.monotonic_ns()
        end = now + nanoseconds
        while now < end:
            device, now = word.value, time.monotonic_ns()
            if device:
                least = min(least, now - device)
        self.wait()
        if least == 2**63:
            raise BenchError("the device's clock was not seen by the host: measure again")
        return ClockAt(now, least, step.value)


class ClockAt(NamedTuple):
    """How far the host's clock is before the device's, at a time of the host's, and the steps of the device's."""

    time: int
    ahead: int
    step: int


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _store_plans(request: Any, answer: Any) -> list[tuple[str, abi.PlanStruct]]:
    part = "local" if request.nrows == request.ncols else "nonlocal"
    return [(part, answer.plans[operation]) for operation in (Operation.MULT, Operation.MULTADD, Operation.ADD)]


def host_times(stamps: np.ndarray, before: ClockAt, after: ClockAt) -> np.ndarray:
    """(n, 2) stamps with times of the host: clocks differ by a number that changes evenly from before to after."""
    found = stamps.copy()
    length = max(after.time - before.time, 1)
    share = (stamps[:, 1] + before.ahead - before.time) / length
    found[:, 1] += before.ahead + np.rint(share * (after.ahead - before.ahead)).astype(np.int64)
    return found


def part_spans(stamps: np.ndarray, mode: str) -> list[Span]:
    """What the stamps of PRODUCTS products say; BenchError unless there are all that the mode has."""
    spans = []
    for part in (*STAMPED.get(mode, ()), "local", "nonlocal"):
        begins, ends = (stamps[stamps[:, 0] == 2 * PARTS.index(part) + k, 1].tolist() for k in range(2))
        if not len(begins) == len(ends) == PRODUCTS:
            raise BenchError(
                f"mode {mode}: {len(begins)} and {len(ends)} stamps of begin and end of {part} in {PRODUCTS} products; "
                "it gave way to another, as -info says, or there are as many ghosts as rows"
            )
        spans += [Span(part, k, *both) for k, both in enumerate(zip(begins, ends, strict=True))]
    return spans


def shown(ranks: Sequence[Sequence[Span]]) -> list[dict[str, Any]]:
    """The spans of one product, and those of others beside it: as dictionaries, in the order of ranks and times.

    It is that of the median length on rank 0, from the end of the product before to its own, without the first ones.
    Times are from its begin on, products are counted from it.
    """
    ends = [{span.product: span.end for span in spans if span.what == "nonlocal"} for spans in ranks]
    lengths = {k: ends[0][k] - ends[0][k - 1] for k in range(FIRST_SHOWN, PRODUCTS)}
    middle = statistics.median_low(lengths.values())
    product = next(k for k, length in lengths.items() if length == middle)
    begin, end = min(e[product - 1] for e in ends), max(e[product] for e in ends)
    found = []
    for rank, spans in enumerate(ranks):
        for span in sorted(spans, key=lambda span: (span.begin, span.end)):
            if span.product == product or (span.begin < end and span.end > begin):
                times = {"begin": span.begin - begin, "end": span.end - begin, "product": span.product - product}
                found.append({"rank": rank, **span._asdict(), **times})
    return found


def multiply(product: Product, comm: Any, wait: Callable[[], Any]) -> list[Span]:
    """PRODUCTS products, which are not waited for: where the host is. They are over when this returns."""
    wait()
    comm.barrier()
    spans = []
    for k in range(PRODUCTS):
        begin = time.monotonic_ns()
        product.call()
        spans.append(Span("MatMult", k, begin, time.monotonic_ns()))
    wait()
    comm.barrier()
    return spans


def on_all(comm: Any, find: Callable[[], Any]) -> list[Any]:
    """What each rank finds; BenchError on all of them if one raises it."""
    found, error = None, ""
    try:
        found = find()
    except BenchError as e:
        error = f"rank {comm.rank}: {e}"
    of_all = comm.tompi4py().allgather((found, error))
    if errors := [error for _, error in of_all if error]:
        raise BenchError(errors[0])
    return [found for found, _ in of_all]


def record(product: Product, comm: Any, stamps: Stamps, calls: Calls, mode: str) -> dict[str, Any]:
    """A sequence of products with their stamps and calls; what is shown of it on all ranks, and the clocks."""
    stamps.clear()
    before = on_all(comm, stamps.compare_clocks)[comm.rank]
    calls.begin()
    on_host = multiply(product, comm, stamps.wait)

    def find() -> tuple[list[Span], dict[str, int]]:
        after = stamps.compare_clocks()
        made = calls.spans(on_host)
        if mode != "peer" and not made:
            raise BenchError(f"mode {mode}: no call of MPI was seen: that PETSc and mpicc have the same MPI is needed")
        found = [*on_host, *made, *part_spans(host_times(stamps.read(), before, after), mode)]
        return found, {"step_ns": after.step, "drift_ns": after.ahead - before.ahead}

    found = on_all(comm, find)
    return {"spans": shown([spans for spans, _ in found]), "clocks": [clocks for _, clocks in found]}


def in_words(gpu_aware: bool) -> str:
    """The condition of a run, behind something else; nothing for the default."""
    return "" if gpu_aware else ", MPI not GPU-aware"


def measured(rows: RankRows, matrix_type: str, mode: str, stamps: Stamps, calls: Calls) -> dict[str, Any]:
    """The seconds of a product in a mode without and with stamps, and its spans; BenchError if a product is wrong."""
    from petsc4py import PETSc

    comm, expected = PETSc.COMM_WORLD, rows.product()
    PETSc.Options()["mat_halo_mode"] = mode
    case: dict[str, Any] = {}
    for name, scope in (("seconds", contextlib.nullcontext), ("stamped_seconds", stamps.stamping)):
        product = make_product(rows, matrix_type, AS_MADE, comm)
        with scope():
            case[name] = statistics.median(measure(product, comm))
            if scope == stamps.stamping:
                case |= record(product, comm, stamps, calls, mode)
        if not is_right(product, expected, comm):
            raise BenchError(f"mode {mode}: the product is wrong, and so are its times")
        product.destroy()
    return case


def main(calls: Calls, words: list[str] | None = None) -> int:
    import mpi4py.MPI  # noqa: F401 - before PETSc, which would ask for a lower level of threads than mode task needs
    from petsc4py import PETSc

    parser = argparse.ArgumentParser(prog="halo_timeline.py", description="What ranks do in one MatMult, and when.")
    parser.add_argument("--matrix", action="append", metavar="M", help=f"(default: {' '.join(MATRICES)})")
    parser.add_argument("--mode", action="append", choices=MODES, help="may be repeated (default: all)")
    parser.add_argument("--type", default="pjds", help="matrix type (default %(default)s)")
    add_output(parser)
    arguments = parser.parse_args(words)
    comm = PETSc.COMM_WORLD
    if comm.size == 1:
        raise BenchError(f"there is no exchange on one rank: {NO_RANKS}")
    scalar, index = native_library.petsc_types()
    specs = arguments.matrix or MATRICES
    for spec in specs:
        check_ranks_matrix(spec, comm.size, False, index)
    gpu_aware = PETSc.Options().getBool("use_gpu_aware_mpi", True)
    name = f"halo timeline, {comm.size} ranks{in_words(gpu_aware)}"
    recorder = Recorder(name, arguments.json, arguments.commit) if comm.rank == 0 else None
    stamps = Stamps(calls)
    for spec in specs:
        rows = make_rows(spec, comm.rank, comm.size, False, scalar, index)
        for mode in arguments.mode or MODES:
            facts = {"matrix": spec, "type": arguments.type, "mode": mode}
            case = {**facts, **measured(rows, arguments.type, mode, stamps, calls)}
            if recorder:
                recorder.add(case, ranks=comm.size, products=PRODUCTS, gpu_aware=gpu_aware)
                seconds = (f"{case[name] * 1e6:.1f} us" for name in ("seconds", "stamped_seconds"))
                show(f"{spec}, {mode}{in_words(gpu_aware)}: {' a product, with stamps '.join(seconds)}")
    return 0


def start() -> int:
    """The program, begun once more with halo_timeline.c compiled and loaded before MPI."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    first, _, others = preloaded.partition(":")
    library = Path(first)
    if library.name != SOURCES.name:
        flags = ("-shared", "-fPIC", "-Wl,--as-needed")
        library = compile_program(SOURCES.with_suffix(".c"), Path(tempfile.mkdtemp()), flags)
        os.environ["LD_PRELOAD"] = f"{library}:{preloaded}"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    os.environ["LD_PRELOAD"] = others  # of programs that this one starts
    calls = Calls(library)
    shutil.rmtree(library.parent)
    return program("halo_timeline", functools.partial(main, calls))


if __name__ == "__main__":
    sys.exit(exit_status("halo_timeline", start))
