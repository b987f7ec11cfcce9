"""The values of options, which come from PETSc's database as text."""

from __future__ import annotations

import re

from petsc_gpufmt.errors import OptionError

LARGEST = 2**63 - 1

AUTO = "auto"
"""The word that leaves a choice to us, the first of each option's words."""


def option_value(option: str, text: str, default: int | str) -> int | str:
    """`text` as a value of the kind of `default`; OptionError with the name of the option if it is none."""
    if isinstance(default, str):
        return text
    if not re.fullmatch("[+-]?[0-9]{1,19}", text) or abs(int(text)) > LARGEST:
        raise OptionError(f"{option} {text}: a whole number is needed, of 64 bits at most")
    return int(text)


def option_word(option: str, value: int | str, words: tuple[str, ...]) -> str:
    """The one of `words` that `value` is, in letters of any size; OptionError, naming the option, if it is none.

    A number is the place of a word, as files of tuned options had it before there were words.
    """
    if isinstance(value, int) and 0 <= value < len(words):
        return words[value]
    word = str(value).lower()
    if word not in words:
        raise OptionError(f"{option} {value}: choose one of {', '.join(words)}")
    return word
