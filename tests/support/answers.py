"""Requests to the planner as the library makes them, with plans replayed as in C."""

import ctypes
import gc
import operator
from collections import Counter

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HOST_FUNCTION
from petsc_gpufmt.backends.plan import Slot, argument_word
from petsc_gpufmt.planning import abi, planner, requests


def failing(monkeypatch, module, name, *failures):
    """`module.name` raises the given errors in its first calls; returns the list of calls."""
    function, calls = getattr(module, name), []

    def call(*arguments, **named):
        calls.append(arguments)
        if len(calls) <= len(failures):
            raise failures[len(calls) - 1]
        return function(*arguments, **named)

    monkeypatch.setattr(module, name, call)
    return calls


def counted_requests(setitem=operator.setitem):
    """How often the planner is asked for each kind of request from now on."""
    counts = Counter()

    def counted(ask, kind):
        def fill(*arguments):
            counts[ask] += 1
            return kind.fill(*arguments)

        setitem(requests.KINDS, ask, kind._replace(fill=fill))

    for ask, kind in list(requests.KINDS.items()):
        counted(ask, kind)
    return counts


def settled_tokens():
    """How much the planner owns, without what only waits for the garbage collector."""
    gc.collect()
    return planner.owned_tokens()


def requested_place(backend="host"):
    """The head of a request with the types of PETSc."""
    scalar, index = native_library.petsc_types()
    types = {"index_bytes": index.itemsize, "scalar_bytes": scalar.itemsize, "is_complex": scalar.kind == "c"}
    return abi.PlaceStruct(abi.BACKENDS.index(backend), **types)


class Answer:
    """One request and its answer; the token goes back at the end of the `with` block.

    `fields` are changes of the request, or of the place that is its head.
    """

    def __init__(self, ask, request, answer, fields):
        for name, value in fields.items():
            setattr(request.place if hasattr(abi.PlaceStruct, name) else request, name, value)
        self.request, self.answer = request, answer
        planner._planner.plan(ask, ctypes.addressof(request), ctypes.addressof(answer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.token:
            planner._planner.release(self.token)

    @property
    def token(self):
        return self.answer.outcome.token

    @property
    def error(self):
        return self.answer.outcome.error, self.answer.outcome.message.decode()

    @staticmethod
    def launch(plan, arrays):
        """Fill the slots of a plan from arrays by slot and launch it, with nothing but what the structures hold."""
        for launch in plan.launches[: plan.nlaunches]:
            for i in range(launch.nwords):
                if launch.slots[i] >= 0:
                    launch.words[i] = argument_word(arrays[Slot(launch.slots[i])])
            HOST_FUNCTION(launch.function)(launch.grid, launch.block, launch.params)
