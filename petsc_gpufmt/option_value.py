"""The value of an option, which comes from PETSc's database as text."""

from __future__ import annotations

import re

from petsc_gpufmt.errors import OptionError

LARGEST = 2**63 - 1


def option_value(option: str, text: str, default: int | str) -> int | str:
    """`text` as a value of the kind of `default`; OptionError with the name of the option if it is none."""
    if isinstance(default, str):
        return text
    if not re.fullmatch("[+-]?[0-9]{1,19}", text) or abs(int(text)) > LARGEST:
        raise OptionError(f"{option} {text}: a whole number is needed, of 64 bits at most")
    return int(text)
