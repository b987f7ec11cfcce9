"""The attack counts what the tests of tests/upstream say, and a test that fails is in its row."""

import pytest

from reliability import upstream

PASSES = '''
def test_one():
    """owner/library#1: it was wrong."""
'''
FAILS = '''
def test_two():
    """owner/library#2: it crashed."""
    assert 1 == 2, "as before"
'''


@pytest.mark.slow
def test_a_row_for_each_issue(tmp_path):
    (tmp_path / "conftest.py").write_text((upstream.FOLDER / "conftest.py").read_text())
    (tmp_path / "test_first.py").write_text(PASSES)
    (tmp_path / "test_second.py").write_text(FAILS)
    one, two = upstream.run(1.0, 0, lambda line: None, tmp_path)
    assert (one.what, one.tried, one.failures) == ("owner/library#1: it was wrong.", 1, [])
    assert (two.what, two.tried) == ("owner/library#2: it crashed.", 1) and "as before" in two.failures[0]
    assert [row.what for row in upstream.run(0.5, 0, lambda line: None, tmp_path)] == [one.what]


def test_a_run_that_does_not_begin_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(upstream.launch, "run", lambda *_, **__: upstream.launch.Finished("pytest", 4, "no such file"))
    (row,) = upstream.run(1.0, 0, lambda line: None, tmp_path)
    assert row.tried == 0 and row.failures == ["status 4: no such file"]
