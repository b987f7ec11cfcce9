"""Programs: launches that are known but for their numbers of blocks and what their arguments are."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from petsc_gpufmt.backends import driver
from petsc_gpufmt.backends.device_array import DeviceArray
from petsc_gpufmt.backends.plan import WORD_OF, Launch, Struct


class Step(NamedTuple):
    """One kernel of a program.

    Attributes
    ----------
    stem, kernel, template : as for `Backend.function`
    threads : of a block
    arguments : their names, one after the other; those of the members of a struct in braces
    """

    stem: str
    kernel: str
    template: tuple[int, ...]
    threads: int
    arguments: str


class Program:
    """Launches in one dimension, whose arguments are some of what the program is given each time.

    It is made once, so that little is left to do for each of many small launches: a device keeps what it needs for it.

    Attributes
    ----------
    names : of what is given, in its order; the members of a struct follow each other
    steps : the kernels, in the order of their launches
    arguments : of each step, the first and the number of what each argument is made of; a number of 0 is no struct
    """

    def __init__(self, names: str, *steps: Step):
        """ValueError for an argument that is not given, and for a struct whose members do not follow each other."""
        self.names, self.steps = names.split(), steps
        place = {name: number for number, name in enumerate(self.names)}
        self.arguments = [list(self._arguments(step.arguments.split(), place)) for step in steps]

    def _arguments(self, words: list[str], place: dict[str, int]) -> Iterator[tuple[int, int]]:
        first, members = 0, 0  # of the struct that has begun
        for word in words:
            here, begins = place.get(word.strip("{}"), -1), word[0] == "{"
            if here < 0 or (members and here != first + members):
                given = " ".join(self.names)
                raise ValueError(f"{' '.join(words)} are not, a struct in one piece, among what is given: {given}")
            if begins:
                first = here
            if begins or members:
                members += 1
            if word[-1] == "}" or not members:
                yield (first, members) if members else (here, 0)
                members = 0

    def launches(
        self, function: Callable[[str, str, tuple[int, ...]], int], blocks: Sequence[int], given: Sequence[Any]
    ) -> list[Launch]:
        """A launch for each step that has blocks; `function` answers for its kernel."""
        made = []
        for step, places, nblocks in zip(self.steps, self.arguments, blocks, strict=True):
            if nblocks:
                arguments = [Struct(*given[first : first + n]) if n else given[first] for first, n in places]
                shape = (nblocks, 1, 1), (step.threads, 1, 1)
                made.append(Launch(function(step.stem, step.kernel, step.template), *shape, tuple(arguments)))
        return made


class Prepared:
    """A program with its kernels loaded on a device; its words are the numbers of blocks, and then what is given.

    It is for one thread at a time.
    """

    def __init__(self, program: Program, function: Callable[[str, str, tuple[int, ...]], int]):
        nsteps = len(program.steps)
        heads: list[int] = []
        for number, (step, places) in enumerate(zip(program.steps, program.arguments, strict=True)):
            arguments = [nsteps + first for first, _ in places]
            kernel = function(step.stem, step.kernel, step.template)
            heads += driver.head(kernel, number, (1, 1), (step.threads, 1, 1), 0, arguments)
        self._nsteps, self._heads = nsteps, (ctypes.c_uint64 * len(heads))(*heads)
        packer = struct.Struct(f"{nsteps + len(program.names)}q")
        self._words = ctypes.create_string_buffer(packer.size)
        self._pack, self._launcher = packer.pack_into, driver.Launcher()
        self._addresses = ctypes.addressof(self._heads), ctypes.addressof(self._words)

    def launch(self, blocks: Sequence[int], given: Sequence[Any], stream: int) -> None:
        """Queue the launches on a stream. struct.error unless there are as many blocks and arguments as asked for."""
        words = [a if type(a) is int else a.ptr if type(a) is DeviceArray else WORD_OF[type(a)](a) for a in given]
        self._pack(self._words, 0, *blocks, *words)
        self._launcher.launch(self._nsteps, *self._addresses, stream)
