"""Steps of Krylov methods, run one by one with vectors and a state on a backend."""

from __future__ import annotations

import numpy as np

from petsc_gpufmt.backends.plan import Slot


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

    def put_array(self, number, values):
        """In an array of the method, which launches have from now on."""
        changed = self.backend.adopt(values)
        take_instead(self.made, self.made.arrays[number], changed)
        self.made = self.made._replace(arrays={**self.made.arrays, number: changed})

    def run(self, step):
        self.backend.run(self.made.launches[step], self.vectors)
