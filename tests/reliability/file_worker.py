"""Reads mutated files in a process of its own, which a crash or a hang may end.

Usage: python file_worker.py FOLDER SEED READER:FIRST:END ...

Prints a line of JSON for each file that ended badly, and one for each reader that is done. FOLDER/now has the number
of the file that is being read: who finds this process dead knows which it was.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import resource
import signal
import struct
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import petsc4py  # noqa: E402

if __name__ == "__main__":  # tests import this, and have PETSc as it is
    petsc4py.init(["worker", "-device_enable", "none", "-no_signal_handler"])

from petsc4py import PETSc  # noqa: E402,F401

from reliability.readers import READERS, Reader, first_line_of, mutated  # noqa: E402

SECONDS = 10
"""After which a file is a hang: readers take some milliseconds, and more where they count rows that there are not."""

ADDRESS_SPACE = 1 << 30
"""Beyond what the process has at the beginning: so that no file takes the memory of others on this machine."""

TIMES, CONSTANT = 4, 48 << 20
"""Memory that a reader may take: so many times the file, and bytes."""

PEAK = "VmHWM"


def status(field: str) -> int:
    """Bytes that the system says of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    return 0


def peak() -> int:
    """The most memory since this was cleared; getrusage() would tell of the process that has started this one, too."""
    return status(PEAK)


def complaint(reader: Reader, path: Path) -> str | None:
    """What is bad about how a file was read; None if nothing is."""
    try:
        reader.read(path)
    except reader.errors as e:
        try:
            first_line_of(e)
        except AssertionError as wrong:
            return str(wrong)
    except AssertionError as e:
        return f"a broken invariant: {e}"
    except BaseException as e:
        return f"{type(e).__name__}: {str(e)[:150]}"
    return None


def read_all(name: str, seed: int, numbers: range, folder: Path, now: mmap.mmap) -> None:
    reader, path = READERS[name], folder / f"file{READERS[name].suffix}"
    for data in reader.seeds():  # what is valid is read, and imports what is needed
        path.write_bytes(data)
        wrong = complaint(reader, path)
        if wrong and "complex" not in wrong:
            print(json.dumps({"reader": name, "number": -1, "wrong": f"a valid file: {wrong}"}), flush=True)
    highest = peak()
    for number in numbers:
        now[:8] = struct.pack("<q", number)
        data = mutated(name, seed, number)
        path.write_bytes(data)
        claimed = reader.claims(path)
        signal.alarm(SECONDS + min(claimed >> 30, 6 * SECONDS))
        wrong = complaint(reader, path)
        signal.alarm(0)
        if (now_highest := peak()) > highest:
            grown = now_highest - highest
            if grown > TIMES * len(data) + CONSTANT + claimed:
                wrong = wrong or f"{grown >> 20} MiB for a file of {len(data)} bytes"
            Path("/proc/self/clear_refs").write_text("5")  # what this file has taken does not hide the next
            highest = peak()
        if wrong:
            print(json.dumps({"reader": name, "number": number, "wrong": wrong}), flush=True)
    now[:8] = struct.pack("<q", -1)
    print(json.dumps({"reader": name, "done": numbers.stop}), flush=True)


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    faulthandler.enable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.environ["PETSC_GPUFMT_CACHE"] = str(folder / "cache")
    limit = status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(folder / "now", "r+b") as file:
        now = mmap.mmap(file.fileno(), 8)
    for job in sys.argv[3:]:
        name, first, end = job.rsplit(":", 2)
        read_all(name, seed, range(int(first), int(end)), folder, now)


if __name__ == "__main__":
    main()
