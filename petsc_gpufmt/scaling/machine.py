"""GPUs and the links between them, with the constants of `machines.json`, which says where each is from."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.errors import UnsupportedError

CONSTANTS = Path(__file__).resolve().parent / "machines.json"
NETWORK = "network"
LARGEST_TERABYTES = 100.0


class ModelledDevice(HostBackend):
    """The host, where formats and profiles take it for a device with so many threads."""

    name = "modelled"

    def __init__(self, scalar: Any, index: Any, resident_threads: int):
        super().__init__(scalar, index)
        self.resident_threads, self.simd_width = resident_threads, 32


@dataclass(frozen=True)
class Gpu:
    """One device.

    Attributes
    ----------
    name : for people
    bandwidth : bytes that products of matrices with few entries a row move from memory in a second
    copy : bytes that a copy reads and writes in a second
    reading : how many times as fast entries are read
    row_bytes : as long as to move so many takes each row beside that
    resident_threads : that run at once
    cache_bytes : what the second-level cache holds of products again and again: all of so small ones, `held_share` of
        larger ones
    cache_factor : how many times as fast as memory it is
    """

    name: str
    bandwidth: float
    copy: float
    reading: float
    row_bytes: float
    resident_threads: int
    cache_bytes: float
    cache_factor: float

    def bandwidth_of(self, nbytes: float, nrows: float) -> float:
        """Bytes a second of products that move so many for so many rows, again and again."""
        held = held_share(nbytes / self.cache_bytes)
        of_rows = nbytes / (nbytes / self.reading + nrows * self.row_bytes)
        return self.bandwidth * of_rows / (1 - held + held / self.cache_factor)


def held_share(times: float) -> float:
    """Share of reads that a cache serves where `times` what it holds is read in turns, for ever.

    With random replacement a line survives the misses until it is read again with probability h = exp(-times (1 - h)):
    all of it up to once, 0.41 of 1.5 times, 0.2 of twice. (With the oldest line replaced, nothing beyond once would be
    found.) Solved by Lambert's W.
    """
    if times <= 1:
        return 1.0
    from scipy.special import lambertw

    return float(-lambertw(-times * math.exp(-times)).real / times)


@dataclass(frozen=True)
class Link:
    """A way from one rank to others.

    Attributes
    ----------
    start : seconds of an exchange before its first message
    latency : seconds of each message
    bandwidth : bytes a second of one rank in one direction
    beside : seconds that an exchange takes more while the device computes
    """

    start: float
    latency: float
    bandwidth: float
    beside: float = 0.0


@dataclass(frozen=True)
class Machine:
    """Hosts with GPUs, one rank each.

    Attributes
    ----------
    gpu : all are alike
    mpi : between ranks of a host through MPI
    peer : the same by stores of kernels into memory of peers; None where these do not reach
    network : through MPI between hosts
    gpus_per_host : of each host
    empty_round : seconds in which as many threads as run at once begin, find no entries, and end
    thread_handover : seconds that a host thread needs to take over an exchange and to say that it has ended
    """

    gpu: Gpu
    mpi: Link
    peer: Link | None
    network: Link
    gpus_per_host: int
    empty_round: float
    thread_handover: float


@functools.cache
def constants() -> dict[str, Any]:
    """What the file holds."""
    return json.loads(CONSTANTS.read_text())


def link_names() -> list[str]:
    """Those between GPUs of one host."""
    return [name for name in constants()["links"] if name != NETWORK]


def find_gpu(name: str) -> Gpu:
    """A GPU that the file knows, or for a number one with so many TB/s and the rest of an H200's."""
    known = constants()["gpus"]
    if name in known:
        return Gpu(**{key: value for key, value in known[name].items() if key != "source"})
    try:
        terabytes = float(name)
    except ValueError:
        terabytes = 0.0
    if not 0 < terabytes <= LARGEST_TERABYTES:
        raise UnsupportedError(
            f"--gpu {name}: choose {', '.join(known)}, or the bandwidth of its memory in TB/s, such as 2.0"
        )
    h200, bandwidth = find_gpu("h200"), terabytes * 1e12
    copy = bandwidth * h200.copy / h200.bandwidth
    return replace(h200, name=f"a GPU of {terabytes:g} TB/s", bandwidth=bandwidth, copy=copy)


def gpu_called(name: str | None) -> str | None:
    """How the file calls a GPU whose driver calls it `name`; None if it is not there."""
    return next((key for key, gpu in constants()["gpus"].items() if gpu["name"] == name), None)


def find_machine(
    gpu: str = "h200",
    link: str = "nvlink",
    gpus_per_host: int = 8,
    bandwidth: float | None = None,
    latency: float | None = None,
) -> Machine:
    """Hosts of GPUs with a link of `link_names()`.

    Parameters
    ----------
    bandwidth, latency : of the link, in GB/s and in microseconds of a message, in place of those of the file

    Raises UnsupportedError for a GPU or a link that is not known, and for numbers that are none of a machine.
    """
    if link not in link_names():
        raise UnsupportedError(f"--link {link}: choose {', '.join(link_names())}")
    for option, value in (("--bandwidth", bandwidth), ("--gpus-per-host", gpus_per_host)):
        if value is not None and not 0 < value < float("inf"):
            raise UnsupportedError(f"{option} {value:g}: give a number above 0")
    if latency is not None and not 0 <= latency < float("inf"):
        raise UnsupportedError(f"--latency {latency:g}: give a number of microseconds, 0 or more")
    given = (("bandwidth", bandwidth, 1e9), ("latency", latency, 1e-6))
    chosen = {name: value * unit for name, value, unit in given if value is not None}
    ways = constants()["links"][link]
    return Machine(
        find_gpu(gpu),
        replace(_link(ways["mpi"]), **chosen),
        replace(_link(ways["peer"]), **chosen) if "peer" in ways else None,
        _link(constants()["links"][NETWORK]["mpi"]),
        gpus_per_host,
        constants()["empty_round"]["seconds"],
        constants()["thread_handover"]["seconds"],
    )


def nvlink_machine(gpu: str = "h200", gpu_aware: bool = True) -> Machine:
    """GPUs that NVLink connects, where MPI reaches their memory, or messages go through that of the host."""
    machine = find_machine(gpu)
    return machine if gpu_aware else replace(machine, mpi=find_machine(gpu, "host").mpi)


def _link(values: dict[str, Any]) -> Link:
    return Link(**{key: value for key, value in values.items() if key != "source"})
