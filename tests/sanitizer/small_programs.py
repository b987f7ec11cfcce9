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


def right_or_wrong(program, description, parts):
    """A whole program: print what its parts find with a backend, name -> whether it is right. Returns its status.

    `parts` are named, and --part leaves the others out: some tools take minutes for each.
    """
    parser = command_line(description)
    parser.add_argument("--part", action="append", choices=list(parts), help="of the program; may be repeated")
    arguments = parser.parse_args()
    wrong = 0
    with place_of(program, arguments.host) as place:
        for part in arguments.part or parts:
            for name, right in parts[part](place.backend).items():
                print(f"{name:24} {'right' if right else 'WRONG'}", flush=True)
                wrong += not right
    return 1 if wrong else 0
