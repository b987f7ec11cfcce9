"""Attacks on the package: faults put in on purpose, twins, hostile files and options, long runs."""

ATTACKS: tuple[str, ...] = ()
