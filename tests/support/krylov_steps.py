"""Steps of Krylov methods, run one by one with vectors and a state on a backend."""

import numpy as np
import pytest
from places import SCALAR

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.krylov.steps import BLOCK_THREADS, ITEMS

FEW_BLOCKS = 3
"""What tests set `steps.MOST_BLOCKS` to."""
MANY_ROWS = 2 * FEW_BLOCKS * BLOCK_THREADS * ITEMS + 77
"""A thread has several then."""
NONE, PRECONDITIONED, UNPRECONDITIONED, NATURAL = range(4)
GOES_ON, CURVATURE, TEST, COUNT, BREAKDOWN = range(5)

PLACES = [
    pytest.param(("host", SCALAR, np.int32), id="host"),
    pytest.param(("device_like", np.float64, np.int32), id="emulation"),
    pytest.param(("device_like", np.float32, np.int64), id="emulation, single"),
    pytest.param(("cuda", np.float64, np.int32), marks=pytest.mark.gpu, id="cuda"),
]


def take_instead(made, array, other):
    """Launches get another array wherever they had this one."""

    def replaced(argument):
        if isinstance(argument, tuple):
            return type(argument)(*map(replaced, argument))
        return other if argument is array else argument

    for launches in made.launches.values():
        for launch in launches:
            launch.arguments = tuple(map(replaced, launch.arguments))


class RunningSteps:
    """Steps with vectors in their slots, by small letters, and a state of a type of NumPy."""

    def __init__(self, backend, made, state, vectors):
        self.backend, self.made, self.state_type = backend, made, state
        self.vectors = {}
        for name, values in vectors.items():
            self.put(name, values)

    def __getitem__(self, name):
        return self.backend.to_host(self.vectors[Slot[name.upper()]])

    def put(self, name, values):
        """None: the slot is empty."""
        array = None if values is None else self.backend.adopt(np.asarray(values).astype(self.backend.scalar))
        self.vectors[Slot[name.upper()]] = array

    @property
    def state(self):
        return self.backend.to_host(self.made.state).view(self.state_type)[0]

    def write(self, **fields):
        """Fields of the state."""
        state = self.state.copy()
        for name, value in fields.items():
            state[name] = value
        changed = self.backend.adopt(np.frombuffer(state.tobytes(), np.int8).copy())
        take_instead(self.made, self.made.state, changed)
        self.made = self.made._replace(state=changed)

    def run(self, step):
        self.backend.run(self.made.launches[step], self.vectors)
