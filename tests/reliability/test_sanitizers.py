"""Sanitizers: defects put in on purpose, which each has to find, and the same functions where they have none."""

import pytest

from reliability import sanitizers

DEFECTS = [
    ("address", "Overflow", "c_double", 9, "heap-buffer-overflow"),
    ("address", "Freed", "c_double", 9, "heap-use-after-free"),
    ("undefined", "Next", "c_int", 2**31 - 1, "signed integer overflow"),
    ("undefined", "Misaligned", "c_double", 3, "misaligned address"),
    ("thread", "Race", "c_int", 9, "data race"),
]


def sanitizer_here(name):
    sanitizer = sanitizers.SANITIZERS[name]
    if sanitizers.library_of(sanitizer.library) is None:
        pytest.skip(f"the compiler has no {sanitizer.library}")
    return sanitizer


@pytest.mark.slow
@pytest.mark.parametrize(("name", "function", "result", "number", "words"), DEFECTS)
def test_a_defect_is_found(name, function, result, number, words, tmp_path):
    _, found = sanitizers.run_defect(sanitizer_here(name), function, result, number, tmp_path)
    assert any(words in line for line in found), found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["address", "undefined", "thread"])
def test_where_there_is_no_defect_none_is_found(name, tmp_path):
    output, found = sanitizers.run_defect(sanitizer_here(name), "Next", "c_int", 41, tmp_path)
    assert output == "42\n" and found == []
