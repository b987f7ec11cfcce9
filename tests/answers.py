"""Requests to the planner as the library makes them, with plans replayed as in C."""

import ctypes
import gc

from petsc_gpufmt import planner
from petsc_gpufmt.backend import HOST_FUNCTION
from petsc_gpufmt.plan import Slot, argument_word


def failing(monkeypatch, module, name, *failures):
    """`module.name` raises the given errors in its first calls; returns the list of calls."""
    function, calls = getattr(module, name), []

    def call(*arguments):
        calls.append(arguments)
        if len(calls) <= len(failures):
            raise failures[len(calls) - 1]
        return function(*arguments)

    monkeypatch.setattr(module, name, call)
    return calls


def settled_tokens():
    """How much the planner owns, without what only waits for the garbage collector."""
    gc.collect()
    return planner.owned_tokens()


class Answer:
    """One request and its answer; the token goes back at the end of the `with` block.

    `callback` is the name of the planner's function, `fields` are changes of the request.
    """

    def __init__(self, callback, request, answer, fields):
        for name, value in fields.items():
            setattr(request, name, value)
        self.request, self.answer = request, answer
        getattr(planner._planner, callback)(ctypes.byref(request), ctypes.byref(answer))

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
            for i in range(launch.nargs):
                if launch.slots[i] >= 0:
                    launch.words[i] = argument_word(arrays[Slot(launch.slots[i])])
            HOST_FUNCTION(launch.function)(launch.grid, launch.block, launch.params)
