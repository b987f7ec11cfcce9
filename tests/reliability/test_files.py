"""A small share of the mutated files; and that the attack finds readers that crash, hang, lie, or raise anything."""

import json
import random
import sys
import textwrap
import time

import pytest

from reliability import files, mutations
from reliability.file_worker import complaint
from reliability.readers import READERS, mutated

TRIED = 0.0002  # of a million


@pytest.mark.slow
def test_no_mutated_file_ends_badly():
    rows = files.run(TRIED, 2026, lambda line: None)
    assert [row.what for row in rows] == list(READERS) == list(files.NAMES)
    assert {row.tried for row in rows} == {files.part_of(files.ASKED, TRIED)}
    assert [line for row in rows for line in row.failures] == []


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on(tmp_path, monkeypatch):
    journal, reader = tmp_path / "journal", "counters of ncu"
    monkeypatch.setattr(files, "PIECE", 2)
    asked, begun = {"share": 4e-6, "seed": 1, "names": (reader,), "journal": journal}, []
    (nothing,) = files.run(**asked, report=begun.append, seconds=-1)
    assert nothing.tried == 0 and not begun
    journal.write_text(
        json.dumps({"piece": [1, 0, 2], "rows": {reader: {"tried": 2, "failures": ["bad"], "seconds": 7}}}) + "\n"
    )
    (row,) = files.run(**asked, report=begun.append)
    assert (row.tried, row.failures) == (4, ["bad"]) and row.seconds > 7
    assert begun == ["numbers 2 to 3 of each reader: 0 files ended badly"]
    assert files.run(**asked, report=begun.append) == [row] and len(begun) == 1


@pytest.mark.parametrize("name", READERS)
def test_files_are_the_same_for_the_same_seed_and_mostly_changed(name, monkeypatch):
    seeds = READERS[name].seeds()
    made = [mutated(name, 1, number) for number in range(40)]
    later = time.time() + 1e8
    monkeypatch.setattr(time, "time", lambda: later)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(later))
    assert made == [mutated(name, 1, number) for number in range(40)] != [mutated(name, 2, k) for k in range(40)]
    assert sum(data not in seeds for data in made) > 30


@pytest.mark.parametrize("mutation", [*mutations.MUTATIONS, mutations.of_bytes], ids=lambda m: m.__name__)
@pytest.mark.parametrize("data", [b"", b"\n", b"1", b"1 2\n3 4\n"])
def test_mutations_take_any_file(mutation, data):
    for seed in range(20):
        assert isinstance(mutation(data, random.Random(seed)), bytes)


DEFECTS = {
    "a crash": ("ctypes.string_at(0)", "status -11"),
    "a hang": ("time.sleep(60)", "a hang"),
    "another exception": ("{}['key']", "KeyError: 'key'"),
    "a wrong object": ("assert False, 'column out of range'", "a broken invariant: column out of range"),
    "an error of two lines": ("raise BenchError('one\\ntwo')", "not one clear line: 'one\\ntwo'"),
    "much memory": ("bytearray(200 << 20)", "MiB for a file of"),
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
        from reliability import file_worker
        from reliability.readers import READERS, BenchError, mutated
        def read(path):
            if path.read_bytes() == mutated("counters of ncu", 3, 5):
                {code}
        READERS["counters of ncu"] = dataclasses.replace(READERS["counters of ncu"], read=read)
        file_worker.SECONDS = 1
        file_worker.main()
        """)
    )
    (row,) = files.run(8e-6, 3, lambda line: None, names=("counters of ncu",), worker=worker)
    assert row.tried == 8 and len(row.failures) == 1
    assert row.failures[0].startswith("seed 3, number 5: ") and found in row.failures[0]


def test_a_valid_file_is_no_complaint(tmp_path):
    path = tmp_path / "file.csv"
    path.write_bytes(READERS["counters of ncu"].seeds()[0])
    assert complaint(READERS["counters of ncu"], path) is None
