"""Some hostile values of every option; and that the attack finds what it looks for."""

import sys
import textwrap

import launch
import numpy as np
import pytest
from petsc4py import PETSc

import petsc_gpufmt  # noqa: F401
from petsc_gpufmt.backends.native_library import option_table
from reliability import option_values
from reliability.hostile_options import MARK, PLAIN, hostile, subjects
from reliability.option_worker import said_badly

CORRUPT = 64  # PETSC_ERR_ARG_CORRUPT


def test_every_option_of_every_format_is_attacked():
    found = {subject.option for subject in subjects()}
    assert {f"mat_{name}_{option}" for name, options in option_table().items() for option in options} <= found
    assert {"mat_halo_mode", "mat_rmerge_width", "ksp_mixedcg_inner_rtol", "pc_gamg_gpufmt_order"} <= found


def test_values_are_the_same_for_the_same_seed():
    values = [hostile(1, "mat_pjds_index", number, ("auto",)) for number in range(300)]
    assert values == [hostile(1, "mat_pjds_index", number, ("auto",)) for number in range(300)]
    assert len(set(values)) > 250 and any(MARK in value for value in values[: len(PLAIN)])


@pytest.mark.slow
def test_no_hostile_value_ends_badly():
    rows = option_values.run(0.25, 2026, lambda line: None)
    assert len(rows) > 60 and {row.tried for row in rows[:-1]} == {125}
    assert [f"{row.what}: {line}" for row in rows for line in row.failures] == []


DEFECTS = {
    "a crash": ("ctypes.string_at(0)", "status -11"),
    "a hang": ("time.sleep(60)", "a hang"),
    "a wrong product": ("assert False, 'the product is wrong'", "the product is wrong"),
    "another exception": ("{}['key']", "KeyError"),
    "a file": (f"open('../{MARK}', 'w')", f"home/above/{MARK}"),
    "a name of a kernel": ("option_worker._asked.add('a; b')", "kernels ['a; b']"),
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_attack_finds(tmp_path, defect):
    code, found = DEFECTS[defect]
    worker = tmp_path / "worker.py"
    worker.write_text(
        textwrap.dedent(f"""
        import sys
        sys.path[:0] = {sys.path!r}
        import ctypes, dataclasses, time
        import petsc4py
        petsc4py.init(["worker", "-device_enable", "none", "-no_signal_handler"])
        from reliability import option_worker
        from reliability.hostile_options import PETSc
        known = [*option_worker.subjects()]
        def use():
            if PETSc.Options().getString("mat_pjds_index") == "nan":
                {code}
        bad = dataclasses.replace(next(s for s in known if s.option == "mat_pjds_index"), use=use)
        option_worker.subjects = lambda: [bad]
        option_worker.SECONDS = 1
        option_worker.main()
        """)
    )
    rows = option_values.run(0.04, 3, lambda line: None, options=("mat_pjds_index",), worker=worker)
    failures = [line for row in rows for line in row.failures]
    assert rows[0].tried == 20 and len(failures) == 1 and found in failures[0]


@pytest.mark.parametrize(
    "message", ["[0] something is wrong", "[0] -mat_pjds_index a\nb: choose", "[0] -mat_pjds_index: ValueError: x"]
)
def test_a_message_that_does_not_help_is_found(message):
    subject = next(subject for subject in subjects() if subject.option == "mat_pjds_index")
    assert said_badly(subject, message)
    assert said_badly(subject, "[0] f() at g.c:1\n[0] -mat_pjds_index a: choose one of auto, full") is None


@pytest.mark.parametrize("value", ["32;sigma_window=1", "3\n2", "\x01", "é"])
@pytest.mark.parametrize("option", ["mat_pjds_slice_height", "mat_rmerge_width", "mat_halo_mode"])
def test_values_with_characters_that_no_value_has_are_refused(options, option, value):
    options[option] = value
    subject = next(subject for subject in subjects() if subject.option == option)
    with pytest.raises(PETSc.Error) as refused:
        subject.use()
    text = str(refused.value)
    assert refused.value.ierr == 95 and f"-{option}: its value has the character number" in text
    assert text.rstrip().endswith("which no value has: choose a number or a word")


@pytest.mark.skipif(launch.petsc_checks(), reason="PETSc looks at columns itself")
@pytest.mark.parametrize("columns", [[0, 1, 99], [0, -3, 2], [2**31 - 1, 1, 2], [-(2**31), 0, 1]], ids=str)
@pytest.mark.parametrize("name", sorted(option_table()))
def test_columns_out_of_range_are_found_before_they_are_used(name, columns):
    arrays = [np.array(numbers, dtype=PETSc.IntType) for numbers in ([0, 1, 2, 3], columns)]
    A = PETSc.Mat().createAIJWithArrays((3, 3), (*arrays, np.ones(3)), comm=PETSc.COMM_SELF)
    with pytest.raises(PETSc.Error, match="column indices lie in") as refused:
        B = A.convert(f"aij{name}", PETSc.Mat())
        B.mult(*B.createVecs())
    assert refused.value.ierr == CORRUPT
