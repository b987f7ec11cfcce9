"""Compares the output of a PETSc program with another one."""

from __future__ import annotations

import difflib
import re

# A real number: it has a decimal point or an exponent. Integers are text, so that counts must be equal.
_REAL = re.compile(r"([-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE][-+]?\d))(?:[eE][-+]?\d+)?)")

_SHOWN_LINES = 30


def differences(expected: str, found: str, *, relative: float, absolute: float) -> str:
    """Say where `found` differs from `expected`: '' if nowhere, else a unified diff of at most 30 lines.

    White space within a line is ignored, reals agree within `absolute` + `relative` times the larger one, all else is
    equal. Not-a-number agrees with nothing.
    """

    def same_real(a: float, b: float) -> bool:
        return abs(a - b) <= absolute + relative * max(abs(a), abs(b))

    def same_line(expected_line: str, found_line: str) -> bool:
        # The pattern has one group, so texts and reals alternate.
        expected_parts, found_parts = _REAL.split(expected_line), _REAL.split(found_line)
        if len(expected_parts) != len(found_parts):
            return False
        texts = zip(expected_parts[::2], found_parts[::2], strict=True)
        reals = zip(expected_parts[1::2], found_parts[1::2], strict=True)
        return all("".join(a.split()) == "".join(b.split()) for a, b in texts) and all(
            same_real(float(a), float(b)) for a, b in reals
        )

    expected_lines, found_lines = ([" ".join(line.split()) for line in text.splitlines()] for text in (expected, found))
    if len(expected_lines) == len(found_lines):
        pairs = list(zip(expected_lines, found_lines, strict=True))
        # Lines that agree are shown as expected, so that the diff has only those that do not.
        found_lines = [a if same_line(a, b) else b for a, b in pairs]
    else:
        found_lines = [next((a for a in expected_lines if same_line(a, b)), b) for b in found_lines]
    diff = list(difflib.unified_diff(expected_lines, found_lines, "expected", "found", n=1, lineterm=""))
    return "\n".join(diff[:_SHOWN_LINES])
