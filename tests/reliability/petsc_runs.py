"""One of PETSc's test blocks with a type in the place of aij, and what became of it beside aij."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from blocks import Block, words_of
from compare import differences
from filters import FILTERS
from programs import Programs, Run

LIMIT = 20.0  # seconds of one run with aij
TOLERANCE = {"relative": 1e-5, "absolute": 1e-8}

SAME = ("equal", "views")
BAD = ("numbers", "error", "crash", "hang")
NOT_COMPARED = ("no aij", "aij fails", "aij is slow")  # whatever the type is
LEFT_OUT = (*NOT_COMPARED, "aij differs from itself")

# What a view says of a type is not what a program computes.
_VIEWS = ("storage", "levels", "smoothers", "inodes", "product", "package")
_AIJ = re.compile(r"\b(seq|mpi)?aij\b")
_MAT_TYPE = re.compile(r"-(\w+_)?mat_type")
_LEFT = re.compile(r"^Option left: name:(\S+)", re.MULTILINE)
_OF_OPTIONS = re.compile(
    r"^(Option left: name:|WARNING! There are options you set|WARNING! could be spelling|There (is|are) .*unused|$)"
)
_SIGNAL = re.compile(r"Caught signal number (?!15\b)\d+")
_SHOWN = 14


class Outcome(NamedTuple):
    """How a run ended, one of SAME, BAD and LEFT_OUT; why; how many products of ours it planned; what it printed."""

    kind: str
    detail: str = ""
    plans: int = 0
    found: str = ""
    way: int = 0  # in which the type took the place of aij

    def is_like(self, other: Outcome) -> bool:
        """Whether it ended as the other one: in the same numbers, with the same error."""
        texts = (self.found, other.found) if self.kind == "numbers" else (self.detail, other.detail)
        return self.kind == other.kind and not differences(*map(_without_views, texts), **TOLERANCE)


@dataclass(frozen=True)
class Task:
    """One run of a block: a number of ranks and the arguments of one combination of its loops."""

    block: Block
    ranks: int
    line: str

    @property
    def name(self) -> str:
        return f"{self.block.program} {self.block.name} -n {self.ranks} {' '.join(self.line.split())}"


def with_type(words: Sequence[str], suffix: str) -> list[str]:
    """The words with aij<suffix> for aij, and options that choose it where no option names another type.

    `suffix` "" is aij itself.
    """
    replaced = [f"{word}{suffix}" if _AIJ.fullmatch(word) else word for word in words]
    named = {word: value for word, value in pairwise(words) if _MAT_TYPE.fullmatch(word)}
    if all(_AIJ.fullmatch(value) for value in named.values()):
        for option in ("-mat_type", "-dm_mat_type"):
            replaced += [] if option in named else [option, f"aij{suffix}"]
    return replaced


def with_blocks(words: Sequence[str], suffix: str) -> list[str]:
    """The words and PETSc's option that makes every sequential aij one of that type, those in parallel ones too."""
    return [*words, "-mat_seqaij_type", f"seqaij{suffix}"]


def with_both(words: Sequence[str], suffix: str) -> list[str]:
    return with_blocks(with_type(words, suffix), suffix)


Way = Callable[[Sequence[str], str], list[str]]


class Blocks:
    """Runs of one task with aij and with other types."""

    def __init__(self, programs: Programs, task: Task, limit: float = LIMIT):
        self._programs, self._task, self._limit = programs, task, limit
        sources = str(programs.sources)
        self._words = words_of(
            task.line,
            **{"wPETSC_DIR": sources, "PETSC_DIR": sources, "DATAFILESPATH": "", "SRCDIR": self._folder_of_source()},
            **{"PETSC_INDEX_SIZE": "32", "PETSC_SCALAR_SIZE": "64"},
        )
        self._ways: list[Way] = []
        self._wanted = ""

    def _folder_of_source(self) -> str:
        return str(self._programs.sources / "src" / self._task.block.directory)

    def look(self) -> Outcome | None:
        """Run with aij; why this is not one to be compared, None if it is."""
        words, named = with_type(self._words, ""), True
        try:
            run, self._wanted = self._run(with_blocks(words, ""), self._limit, plugin=False)
            if self._failed(run):  # where no option names a type, the program may want another one
                named = False
                run, self._wanted = self._run(with_blocks(self._words, ""), self._limit, plugin=False)
        except TimeoutError:
            return Outcome("aij is slow")
        if self._failed(run):
            return Outcome("aij fails", _last_error(run.finished.output))
        left = set(_LEFT.findall(run.finished.output))
        chosen = {word for word, value in pairwise(words) if _AIJ.fullmatch(value)}
        in_blocks = "-mat_seqaij_type" not in left
        if named and chosen - left:
            self._ways = [with_type] + [with_both] * in_blocks
        else:
            self._ways = [with_blocks] * in_blocks
        return None if self._ways else Outcome("no aij")

    def compare(self, suffix: str) -> Outcome:
        """Of the type aij<suffix> that options name; if it had no product, of all sequential matrices too."""
        outcome = self.compare_way(suffix, 0)
        if outcome.kind in SAME and not outcome.plans and len(self._ways) > 1:
            outcome = self.compare_way(suffix, 1)
        return outcome

    def compare_way(self, suffix: str, way: int, plugin: bool = True, more: Sequence[str] = ()) -> Outcome:
        try:
            run, found = self._run([*self._ways[way](self._words, suffix), *more], 2 * self._limit, plugin)
        except TimeoutError as error:
            return Outcome("hang", str(error).split(":")[0], way=way)
        output, plans = run.finished.output, run.events["GpufmtPlan"]
        if _SIGNAL.search(output) or run.finished.status < 0:
            return Outcome("crash", _last_error(output) or f"status {run.finished.status}", way=way)
        if self._failed(run):
            return Outcome("error", _last_error(output) or f"status {run.finished.status}", way=way)
        if not self._differ(self._wanted, found):
            return Outcome("equal", plans=plans)
        difference = self._differ(_without_views(self._wanted), _without_views(found))
        if not difference:
            return Outcome("views", plans=plans)
        if not self._repeats(way):
            return Outcome("aij differs from itself", plans=plans)
        return Outcome("numbers", "\n".join(difference.splitlines()[2:_SHOWN]), plans, found, way)

    def with_order_of_agg(self, suffix: str, way: int) -> Outcome:
        """With the aggregates of PETSc's GAMG, whose order ours has on one rank alone unless it is asked for."""
        of_gamg = {word.removesuffix("pc_type") for word, value in pairwise(self._words) if value == "gamg"}
        more = [f"{prefix}pc_gamg_gpufmt_order petsc" for prefix in sorted(of_gamg | {"-", "-hmg_inner_"})]
        return self.compare_way(suffix, way, more=" ".join(more).split())

    def _repeats(self, way: int) -> bool:
        """Whether aij prints the same once more."""
        try:
            _, again = self._run(self._ways[way](self._words, ""), self._limit, plugin=False)
        except TimeoutError:
            return False
        return not self._differ(_without_views(self._wanted), _without_views(again))

    def _failed(self, run: Run) -> bool:
        return run.finished.status != 0 and not self._task.block.filter.startswith("Error:")

    def _differ(self, wanted: str, found: str) -> str:
        difference = differences(wanted, found, **TOLERANCE)
        if difference and self._task.ranks > 1:  # ranks print when they like
            ordered = ("\n".join(sorted(text.splitlines())) for text in (wanted, found))
            return difference if differences(*ordered, **TOLERANCE) else ""
        return difference

    def _run(self, words: list[str], limit: float, plugin: bool) -> tuple[Run, str]:
        """The run, and its output as PETSc's filter leaves it."""
        block = self._task.block
        with TemporaryDirectory() as place:
            folder = Path(place)
            for name in block.files:
                source = Path(self._folder_of_source()) / name
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
            environment = dict(word.split("=", 1) for word in words_of(block.environment))
            environment["PETSC_DIR"] = str(self._programs.sources)
            options = "-options_left -check_pointer_intensity 0 -error_output_stdout"
            run = self._programs.run(
                block.program, self._task.ranks, words, folder, plugin, options, seconds=limit, **environment
            )
        return run, _filtered(run.finished.output, block.filter)


def _filtered(output: str, commands: str) -> str:
    text = "\n".join(line for line in output.splitlines() if not _OF_OPTIONS.match(line)) + "\n"
    if commands := commands.removeprefix("Error:").strip():
        quoted = commands.replace("'", "\\'")  # PETSc's harness reads it so, escapes among it
        script = f"commands=$'{quoted}'; eval \"cat | $commands\""
        return subprocess.run(["bash", "-c", script], input=text, capture_output=True, text=True, timeout=60).stdout
    return text


def _without_types(text: str) -> str:
    """With the name of aij in the place of those of its types."""
    return re.sub(r"\b((?:seq|mpi)?aij)(?!cusparse|kokkos|viennacl|hipsparse)[a-z]+\b", r"\1", text)


def _without_views(text: str) -> str:
    text = _without_types(text)
    for name in _VIEWS:
        text = FILTERS[name].apply(text)
    return text


_ERROR = re.compile(r"\[\d+\]PETSC ERROR: ")


def _last_error(output: str) -> str:
    """What PETSc says first of an error, without the names of files and hosts."""
    lines = [_ERROR.split(line)[-1].strip() for line in output.splitlines() if _ERROR.search(line)]  # ranks mix theirs
    told = dict.fromkeys(line for line in lines if line and not line.startswith("---"))
    return " | ".join([*told][:2]) if told else " | ".join(output.splitlines()[-3:])[:300]
