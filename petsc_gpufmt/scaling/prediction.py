"""Seconds of MatMult on so many ranks, in each mode of the halo exchange.

A product is a local part, a nonlocal part and an exchange. The local part takes what `choice/model.py` says of a matrix
of its size. The nonlocal part takes a launch, the bytes of its entries, of its rows of z, read and written, and of the
ghost vector, and a round of threads for each `resident_threads` rows that it is launched over.

    vector    exchange + local + nonlocal
    overlap   exchange + what it takes more beside the local part + local + nonlocal
    task      thread_handover + exchange + local + nonlocal
    peer      max(local, exchange) + what it takes more beside the local part + nonlocal; of few entries
              exchange + local + nonlocal; on several hosts as overlap

In overlap MPI moves nothing between the begin of the exchange and its end, and then the device is busy. In task another
thread calls it meanwhile, but copies between devices wait behind the local part, as was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.choice.model import Candidate, rank, shortest_mult
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.scaling.machine import Machine
from petsc_gpufmt.scaling.partition import Parts
from petsc_gpufmt.scaling.problem import Problem, scaled

MODES = ("vector", "overlap", "task", "peer")
# Of a smaller share of the ideal, a prediction says why.
BREAKS_DOWN = 0.5
CHOSEN = "gpufmt"
# The nonlocal part is stored in it.
NONLOCAL_FORMAT = "pjds"
# Of fewer entries a rank exchanges before its local part, in mode peer: LONG_LOCAL_PART of native/halo/peer_setup.c.
LONG_LOCAL_PART = 3_000_000


@dataclass(frozen=True)
class Prediction:
    """A product on so many ranks in one mode. Counts are the largest, times those of the slowest rank.

    Attributes
    ----------
    ranks, mode : what it is for
    rows, entries, halo, neighbours : most of any rank; halo is entries of x
    local, nonlocal_, exchange : seconds of the parts
    waited : seconds of the exchange in which the device does not compute
    seconds : of the product
    gflops : of all ranks together, 2 flops an entry
    efficiency : against one rank: 1 if so many ranks are so many times as fast, or with --weak as fast
    losses : what keeps the slowest rank from its share of the time of one -> seconds
    """

    ranks: int
    mode: str
    rows: int
    entries: int
    halo: int
    neighbours: int
    local: float
    nonlocal_: float
    exchange: float
    waited: float
    seconds: float
    gflops: float
    efficiency: float
    losses: dict[str, float]


@dataclass(frozen=True)
class RankTimes:
    """Seconds of one rank, but for those that depend on the mode.

    Attributes
    ----------
    local, even : the local part, and what it would be if all ranks had as many rows and entries
    nonlocal_ : the nonlocal part, 0 without nonlocal entries
    launches : of local and nonlocal, what they take with hardly an entry
    """

    local: float
    even: float
    nonlocal_: float
    launches: float


@dataclass(frozen=True)
class Exchange:
    """Seconds of an exchange of one rank: waits, and transfers of bytes, in which the device computes or does not.

    What is hidden takes place beside the local part, and is waited for where it takes longer.
    """

    shown_waits: float = 0.0
    shown_transfer: float = 0.0
    hidden_waits: float = 0.0
    hidden_transfer: float = 0.0

    @property
    def seconds(self) -> float:
        return self.shown_waits + self.shown_transfer + self.hidden_waits + self.hidden_transfer

    def waited(self, local: float) -> tuple[float, float]:
        """(waits, transfers) in which the device does not compute, beside a local part of so many seconds."""
        hidden = self.hidden_waits + self.hidden_transfer
        share = max(0.0, 1 - local / hidden) if hidden else 0.0
        return self.shown_waits + share * self.hidden_waits, self.shown_transfer + share * self.hidden_transfer


class Model:
    """A problem on a machine.

    Parameters
    ----------
    backend : the device by which formats are chosen, with the sizes of scalars and indices
    format_name : of the local part; by default the one that the type gpufmt takes
    compressed : the nonlocal part is launched over its rows alone, as pjds has it, not over all
    """

    def __init__(
        self,
        problem: Problem,
        machine: Machine,
        backend: Backend,
        format_name: str = CHOSEN,
        compressed: bool = True,
    ):
        self.problem, self.machine, self.backend = problem, machine, backend
        self.format_name, self.compressed = format_name, compressed

    def predict(self, ranks: Sequence[int], modes: Sequence[str], weak: bool = False) -> dict[str, list[Prediction]]:
        """Predictions of each mode, in the order of `ranks`; with `weak` the problem grows with them.

        Raises UnsupportedError for a format that the model does not know, and for `peer` where peers do not reach.
        """
        if "peer" in modes and self.machine.peer is None:
            raise UnsupportedError("--mode peer: this link lets no GPU reach another one; choose another link or mode")
        found: dict[tuple[str, int], Prediction] = {}
        alone: dict[str, float] = {}
        for size in dict.fromkeys((1, *ranks)):
            rows = self.problem.grown(size) if weak else self.problem.rows
            parts = rows.parts(size, self.machine.gpus_per_host)
            even = self.local_part(rows.nrows / size, rows.nnz / size)
            times = [self.rank_times(parts, k, even.seconds) for k in range(parts.rows.size)]
            for mode in modes:
                taken = [self._product(mode, size, parts, k, times[k]) for k in range(parts.rows.size)]
                slowest = max(taken, key=lambda p: p.seconds)
                one = alone.setdefault(mode, slowest.seconds)
                efficiency = one / slowest.seconds / (1 if weak else size)
                found[mode, size] = replace(slowest, gflops=2e-9 * rows.nnz / slowest.seconds, efficiency=efficiency)
        return {mode: [found[mode, size] for size in ranks] for mode in modes}

    def local_part(self, nrows: float, nnz: float) -> Candidate:
        """So many of the rows in the format of the model; UnsupportedError for one that is not modelled."""
        profile = scaled(self.problem.profile, round(nrows), round(nrows), round(nnz))
        gpu = self.machine.gpu
        from_memory = self._in_format(rank(profile, self.backend, gpu.bandwidth))
        return self._in_format(rank(profile, self.backend, gpu.bandwidth_of(from_memory.nbytes, nrows)))

    def _in_format(self, ranked: Sequence[Candidate]) -> Candidate:
        if self.format_name == CHOSEN:
            return ranked[0]
        for candidate in ranked:
            if candidate.name == self.format_name:
                return candidate
        names = ", ".join((CHOSEN, *(candidate.name for candidate in ranked)))
        raise UnsupportedError(f"--format {self.format_name}: the model has for this matrix {names}")

    def rank_times(self, parts: Parts, k: int, even: float) -> RankTimes:
        """Those of the k-th rank that was looked at; `even` as there."""
        launches = local = nonlocal_ = 0.0
        if parts.rows[k]:
            candidate = self.local_part(parts.rows[k], parts.local_entries[k])
            local, launches = candidate.seconds, shortest_mult(candidate.name)
        if parts.nonlocal_entries[k]:
            launch = shortest_mult(NONLOCAL_FORMAT)
            nonlocal_ = launch + self._nonlocal_work(parts, k)
            launches += launch
        return RankTimes(local, even, nonlocal_, launches)

    def _nonlocal_work(self, parts: Parts, k: int) -> float:
        """Seconds of the nonlocal part beside its launch."""
        scalar, index = self.backend.scalar.itemsize, self.backend.index.itemsize
        entries, rows, halo = (int(a[k]) for a in (parts.nonlocal_entries, parts.nonlocal_rows, parts.halo))
        nbytes = entries * (scalar + index) + 2 * rows * scalar + halo * scalar
        rounds = (rows if self.compressed else int(parts.rows[k])) / self.machine.gpu.resident_threads
        return nbytes / self.machine.gpu.bandwidth + rounds * self.machine.empty_round

    def exchange(self, mode: str, parts: Parts, k: int, size: int) -> Exchange:
        """That of the k-th rank that was looked at, of `size`."""
        machine, scalar = self.machine, self.backend.scalar.itemsize
        neighbours, far = int(parts.neighbours[k]), int(parts.far_neighbours[k])
        nbytes, far_bytes = int(parts.halo[k]) * scalar, int(parts.far_halo[k]) * scalar
        if not neighbours:
            return Exchange()
        if mode == "peer" and machine.peer and size <= machine.gpus_per_host:
            peer = machine.peer
            waits, transfer = peer.start + neighbours * peer.latency, nbytes / peer.bandwidth
            if parts.local_entries[k] < LONG_LOCAL_PART:
                return Exchange(waits, transfer)
            return Exchange(peer.beside, hidden_waits=waits, hidden_transfer=transfer)
        inside, outside = machine.mpi, machine.network
        waits = max(inside.start, outside.start if far else 0.0)
        waits += (neighbours - far) * inside.latency + far * outside.latency
        transfer = (nbytes - far_bytes) / inside.bandwidth + far_bytes / outside.bandwidth
        more = {"vector": 0.0, "task": machine.thread_handover}
        return Exchange(waits + more.get(mode, inside.beside), transfer)

    def _product(self, mode: str, size: int, parts: Parts, k: int, times: RankTimes) -> Prediction:
        """That of the k-th rank, which does not know of the others."""
        exchange = self.exchange(mode, parts, k, size)
        waits, transfer = exchange.waited(times.local)
        seconds = times.local + waits + transfer + times.nonlocal_
        launch = shortest_mult(NONLOCAL_FORMAT) if times.nonlocal_ else 0.0
        losses = {
            "launches of kernels": times.launches,
            "the nonlocal part": times.nonlocal_ - launch,
            "latency of the exchange": waits,
            "bandwidth of the link": transfer,
            "uneven rows": max(0.0, times.local - times.even),
        }
        return Prediction(
            ranks=size,
            mode=mode,
            rows=int(parts.rows.max()),
            entries=int((parts.local_entries + parts.nonlocal_entries).max()),
            halo=int(parts.halo.max()),
            neighbours=int(parts.neighbours.max()),
            local=times.local,
            nonlocal_=times.nonlocal_,
            exchange=exchange.seconds,
            waited=waits + transfer,
            seconds=seconds,
            gflops=0.0,
            efficiency=1.0,
            losses=losses,
        )


def breakdown(predictions: Sequence[Prediction], weak: bool = False) -> str:
    """In one line: from how many ranks on less than half of the ideal is reached, why, and where more do not help."""
    mode, ordered = predictions[0].mode, sorted(predictions, key=lambda p: p.ranks)
    last = ordered[-1]
    broken = next((p for p in ordered if p.efficiency < BREAKS_DOWN), None)
    if broken is None:
        line = f"{mode}: no breakdown, {last.efficiency:.0%} of the ideal on {last.ranks} ranks"
    else:
        reason = max(broken.losses, key=lambda name: broken.losses[name])
        line = (
            f"{mode}: breaks down at {broken.ranks} ranks, {broken.efficiency:.0%} of the ideal: "
            f"{reason} {in_microseconds(broken.losses[reason])} of {in_microseconds(broken.seconds)} us"
        )
    fastest = min(ordered, key=lambda p: p.seconds)
    return line if weak or fastest is last else f"{line}; fastest on {fastest.ranks} rank{'s' * (fastest.ranks > 1)}"


def in_microseconds(seconds: float) -> str:
    """Three digits, or all before the point: 0.48, 12.3, 3270."""
    micro = seconds * 1e6
    return f"{micro:.0f}" if micro >= 100 else f"{micro:.3g}"
