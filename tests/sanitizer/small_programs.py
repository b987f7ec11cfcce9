"""What the programs for compute-sanitizer have in common: their command line, and where they run."""

import argparse
import contextlib
import sys

from exact_memory import take_arrays_one_by_one

from petsc_gpufmt.bench.places import available_places, device_reason


def command_line(description):
    """A parser with the option of every program."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--host", action="store_true", help="run on the host instead")
    return parser


@contextlib.contextmanager
def place_of(program, host):
    """The host, or the device, where each array has memory of its own; exits where there is none."""
    if not host and device_reason():
        sys.exit(f"{program}: {device_reason()}; --host runs on the host")
    with available_places(host) as places:
        place = places["host" if host else "cuda"]
        if not host:
            take_arrays_one_by_one(place.backend)
        yield place


def right_or_wrong(program, description, results):
    """A whole program: print what `results` finds with a backend, name -> whether it is right. Returns its status."""
    arguments = command_line(description).parse_args()
    with place_of(program, arguments.host) as place:
        found = results(place.backend)
    for name, right in found.items():
        print(f"{name:24} {'right' if right else 'WRONG'}")
    return 0 if all(found.values()) else 1
