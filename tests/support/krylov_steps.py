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
    pytest.param(("emulation", np.float64, np.int32), id="emulation"),
    pytest.param(("emulation", np.float32, np.int64), id="emulation, single"),
    pytest.param(("cuda", np.float64, np.int32), marks=pytest.mark.gpu, id="cuda"),
]


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
        for (launch,) in self.made.launches.values():
            launch.arguments = tuple(self._replaced(a, changed) for a in launch.arguments)
        self.made = self.made._replace(state=changed)

    def _replaced(self, argument, state):
        if isinstance(argument, tuple):
            return type(argument)(*(self._replaced(a, state) for a in argument))
        return state if argument is self.made.state else argument

    def run(self, step):
        self.backend.run(self.made.launches[step], self.vectors)
