"""Reads the TEST blocks at the foot of PETSc's programs: what to run, on how many ranks, with which arguments.

    /*TEST
       build:
         requires: !complex
       testset:
         nsize: {{1 2}}
         args: -pc_type {{jacobi sor}separate output}
         test:
           suffix: a
           args: -ksp_monitor
    TEST*/

A test of a testset adds its `args`, `requires` and `env` to those of the set, and replaces the rest. `{{a b}}` stands
for each of the words in turn.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ADDED = ("args", "diff_args", "requires", "comments", "env")
_KEYS = {*_ADDED, "test", "testset", "build", "nsize", "command", "suffix", "filter", "filter_output"}
_KEYS |= {"localrunfiles", "TODO", "SKIP", "output_file", "timeoutfactor", "temporaries", "depends"}
_LOOP = re.compile(r"\{\{([^}]*)\}[^}]*\}")  # behind the words may stand how outputs are kept


class BlockError(ValueError):
    """A TEST block is not as PETSc writes them."""


@dataclass(frozen=True)
class Block:
    """One test.

    program: below src/, without `.c`.
    name: `ex4_3` for the suffix 3 of ex4; tests of a set that have no suffix get a letter, `ex4_3+a`.
    ranks, arguments, environment: as written, with their loops and shell variables.
    requires: of the build of PETSc.
    filter: shell commands that an output goes through before it is compared; "Error:" before them where the program
        is to fail.
    files: beside the program, to be copied into the folder of the run.
    left_out: why PETSc itself does not run it so, or "".
    """

    program: str
    name: str
    ranks: str
    arguments: str
    environment: str
    requires: tuple[str, ...]
    filter: str
    files: tuple[str, ...]
    left_out: str

    @property
    def directory(self) -> str:
        """Of PETSc's source tree, below src/."""
        return str(Path(self.program).parent)

    def runs(self) -> list[tuple[int, str]]:
        """Numbers of ranks and arguments, one for each combination of the words of the loops."""
        numbers = [int(word) for words in expanded(self.ranks) for word in words.split()]
        return [(number, line) for number in numbers for line in expanded(self.arguments)]


def expanded(text: str) -> list[str]:
    """The text with each combination of the words of its loops."""
    pieces = _LOOP.split(text)
    choices = [piece.split() if k % 2 else [piece] for k, piece in enumerate(pieces)]
    return ["".join(choice) for choice in itertools.product(*choices)]


def words_of(arguments: str, **variables: str) -> list[str]:
    """The words of a command line, with `${NAME}` and `@NAME@` replaced."""
    for name, value in variables.items():
        arguments = arguments.replace(f"${{{name}}}", value).replace(f"@{name}@", value)
    return shlex.split(arguments)


def read_blocks(source: Path, program: str) -> list[Block]:
    """The blocks of a C source, in their order; none if it has no TEST block."""
    pieces = source.read_text(errors="replace").split("/*TEST\n")[1:]
    lines = _lines("\n".join(piece.split("TEST*/")[0] for piece in pieces))
    blocks, build = [], {}
    for key, value, inside in _entries(lines, program):
        if key == "build":
            build = _keys(inside, program)
        elif key in ("test", "testset") and not value:
            blocks += _of_a_set(program, inside, build)
        else:
            raise BlockError(f"{program}: {key!r} stands outside of a test")
    return blocks


def _lines(text: str) -> list[str]:
    """Without comments and blank lines, each with what continues it."""
    text = text.replace("\\\n", " ")
    lines: list[str] = []
    for line in text.splitlines():
        line = line.split("#")[0].rstrip()
        if not line.strip():
            continue
        if lines and line.partition(":")[0].strip() not in _KEYS:
            lines[-1] += "\n" + line.strip()  # a quoted value goes on
        else:
            lines.append(line)
    return lines


Entry = tuple[str, str, list[str]]


def _entries(lines: list[str], program: str) -> Iterator[Entry]:
    """Key, value and the lines below it of each line of the least indentation."""
    if not lines:
        return
    first = _indentation(lines[0])
    begins = [k for k, line in enumerate(lines) if _indentation(line) <= first]
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        key, colon, value = lines[begin].partition(":")
        if not colon or key.strip() not in _KEYS:
            raise BlockError(f"{program}: no key in {lines[begin]!r}")
        yield key.strip(), value.strip(), lines[begin + 1 : end]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _keys(lines: list[str], program: str) -> dict[str, str]:
    """Keys and values of one test; what is said twice is joined."""
    keys: dict[str, str] = {}
    for key, value, _ in _entries(lines, program):
        if key != "test":
            keys[key] = f"{keys[key]} {value}" if key in keys else value
    return keys


def _of_a_set(program: str, lines: list[str], build: dict[str, str]) -> Iterator[Block]:
    shared = _keys(lines, program)
    inside = [_keys(below, program) for key, _, below in _entries(lines, program) if key == "test"]
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    stem = Path(program).name
    if shared.get("suffix"):
        stem += f"_{shared['suffix']}"
    for own in inside or [{}]:
        name = stem
        if own.get("suffix"):
            name += f"_{own['suffix']}"
        name += "" if "_" in name else "_1"
        if inside and not own.get("suffix"):
            name += f"+{next(letters)}"
        keys = {**shared, **own}
        for key in _ADDED:
            keys[key] = " ".join(filter(None, (build.get(key, ""), shared.get(key, ""), own.get(key, ""))))
        yield _block(program, name, keys, build)


def _block(program: str, name: str, keys: dict[str, str], build: dict[str, str]) -> Block:
    left_out = next((f"{key}: {where[key]}" for where in (build, keys) for key in ("TODO", "SKIP") if key in where), "")
    if keys.get("command"):
        left_out = left_out or "command: a command of its own"
    return Block(
        program=program,
        name=name,
        ranks=keys.get("nsize") or "1",
        arguments=keys["args"],
        environment=keys["env"],
        requires=tuple(keys["requires"].split()),
        filter=keys.get("filter", ""),
        files=tuple(keys.get("localrunfiles", "").split()),
        left_out=left_out,
    )
