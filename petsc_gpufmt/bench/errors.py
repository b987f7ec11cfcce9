"""Errors of the benchmarks."""


class BenchError(Exception):
    """A benchmark cannot be run as asked. The text says what was asked, what was found and what to change."""
