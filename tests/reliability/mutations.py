"""Hostile changes of files: of their bytes, of the numbers and lines in them, and of what is packed inside of them."""

from __future__ import annotations

import gzip
import io
import random
import re
import struct
import zipfile
from collections.abc import Callable

NUMBERS = tuple(
    "-1 0 1 2 -0 1.5 007 65536 1000000 2147483647 2147483648 -2147483648 4294967296 9223372036854775807 "
    "18446744073709551616 1e308 1e999 -1e999 nan NaN inf -Infinity 0x10 1_000 1e 99999999999999999999999999 --1 +3 "
    f"1e-400 true null {10**400}".split()
)
DEEP = b"[" * 960 + b"]" * 960
WORDS = (
    b"",
    b"\0",
    b"%s%n",
    b"\xff\xfe",
    "\u0661\u00e9".encode(),
    b"{",
    DEEP,
    DEEP[:960],
    b'"',
    b"%" * 500,
    b"x" * 70000,
)
BINARY = (-1, 0, 1, 2, 255, 65536, 2**20, 2**31 - 1, -(2**31), 1211214, 1211216)
NUMBER = re.compile(rb"[-+]?[0-9][0-9.eE+-]*")

Mutation = Callable[[bytes, random.Random], bytes]


def _place(data: bytes, rng: random.Random) -> int:
    """Half of them in the head."""
    return rng.randrange(min(len(data), 120) if rng.random() < 0.5 else len(data)) if data else 0


def flip(data: bytes, rng: random.Random) -> bytes:
    k = _place(data, rng)
    return data[:k] + bytes([data[k] ^ 1 << rng.randrange(8)]) + data[k + 1 :] if data else data


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def insert(data: bytes, rng: random.Random) -> bytes:
    k, new = _place(data, rng), rng.choice(WORDS) if rng.random() < 0.3 else rng.randbytes(rng.randrange(1, 9))
    return data[:k] + new + data[k:]


def delete(data: bytes, rng: random.Random) -> bytes:
    k = _place(data, rng)
    return data[:k] + data[k + rng.randrange(1, 17) :]


def repeat(data: bytes, rng: random.Random) -> bytes:
    k = _place(data, rng)
    part = data[k : k + rng.randrange(1, 65)]
    return data[:k] + part * rng.randrange(2, 9) + data[k + len(part) :]


def number(data: bytes, rng: random.Random) -> bytes:
    found = list(NUMBER.finditer(data))
    if not found:
        return flip(data, rng)
    at = rng.choice(found[:6] if rng.random() < 0.5 else found)
    return data[: at.start()] + rng.choice(NUMBERS).encode() + data[at.end() :]


def swap_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def binary(data: bytes, rng: random.Random) -> bytes:
    """A number of four or eight bytes in the place of another one, of either order of bytes."""
    form = rng.choice((">i", "<i", ">q", "<q"))
    size = struct.calcsize(form)
    k = _place(data, rng) // size * size
    return data[:k] + struct.pack(form, rng.choice(BINARY)) + data[k + size :]


MUTATIONS: tuple[Mutation, ...] = (flip, truncate, insert, delete, repeat, number, number, swap_lines, binary)


def of_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to three changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(MUTATIONS)(data, rng)
    return data


def of_gzip(data: bytes, rng: random.Random) -> bytes:
    """Of a packed file, or of what is packed in it."""
    if rng.random() < 0.4:
        return of_bytes(data, rng)
    return gzip.compress(of_bytes(gzip.decompress(data), rng), compresslevel=1, mtime=0)


def of_zip(data: bytes, rng: random.Random) -> bytes:
    """Of an archive, of a member, or of the set of members."""
    if rng.random() < 0.3:
        return of_bytes(data, rng)
    members = members_of(data)
    name, kind = rng.choice(list(members)), rng.random()
    if kind < 0.1:
        del members[name]
    elif kind < 0.25:
        members[name] = members[rng.choice(list(members))]
    else:
        members[name] = of_bytes(members[name], rng)
    return archive_of(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """It does not tell when it was made: the same bytes each time."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for member, contents in members.items():
            archive.writestr(zipfile.ZipInfo(member), contents, compression)
    return packed.getvalue()
