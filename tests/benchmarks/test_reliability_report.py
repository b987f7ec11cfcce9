"""The page of what was attacked: all rows, and failures as they are."""

import reliability_report


def result(attack, **row):
    row = {"what": "a | b", "asked": 100, "tried": 7, "failures": [], "remark": "", **row}
    environment = {"petsc": "3.26.1", "commit": "abc", "date": "2026-01-01"}
    return {
        "attack": attack,
        "about": "About it.",
        "share": 0.1,
        "seed": 3,
        "seconds": 90.0,
        "environment": environment,
        "rows": [row],
    }


def test_attacks_come_by_name_with_their_numbers():
    text = reliability_report.page([result("two_words", remark="why"), result("one")])

    assert text.index("## One") < text.index("## Two words")
    assert text.count("| a \\| b | 7 | 100 | 0 |  |") == 1
    assert "| a \\| b | 7 | 100 | 0 | why |" in text
    assert "On the host, PETSc 3.26.1, commit abc, 2026-01-01: 1.5 min, share 0.1, seed 3." in text
    assert "Ended badly" not in text


def test_what_ended_badly_is_told():
    text = reliability_report.page([result("one", failures=["seed 5: hung"])])

    assert "| 7 | 100 | 1 |" in text
    assert "Ended badly:\n\n    seed 5: hung" in text


def test_of_many_that_ended_badly_one_of_each_test_is_told():
    failures = [f"quick: a.test_b[{k}]: assert {k}" for k in range(40)]
    many = reliability_report.page([result("one", failures=[*failures, "quick: a.test_c: assert x"])])

    assert "| 7 | 100 | 41 |" in many
    assert "Ended badly:\n\n    quick: a.test_b[0]: assert 0 (and 39 more)\n    quick: a.test_c: assert x\n" in many
    assert "more)" not in reliability_report.page([result("one", failures=failures)])


def test_kinds_are_counted_and_explained():
    explained = {"why": ["error: a/ex1 ex1_1 -n 1 -x"] * 2}
    one = result("one", counts={"equal": 5, "error": 2, "hang": 0}, explained=explained)
    one["rows"].append({**one["rows"][0], "what": "untried", "tried": 0})
    text = reliability_report.page([one])

    assert "| what | asked for | equal | error |\n| --- | --: | --: | --: |\n| a \\| b | 100 | 5 | 2 |" in text
    assert "| why | 2 | a/ex1 |" in text and "| hang" not in text
    assert "untried" not in text and "\n1 more rows" in text


def test_all_attacks_are_added_up():
    text = reliability_report.page([result("two_words", failures=["seed 5: hung"]), result("one")])

    assert "| [One](#one) | host | 7 | 100 | 0 |\n| [Two words](#two-words) | host | 7 | 100 | 1 |\n" in text


def test_runs_on_gpus_follow_that_on_the_host():
    on_gpus = result("one", what="c")
    on_gpus["environment"] = {**on_gpus["environment"], "gpu": "NVIDIA X", "gpu_count": 4}
    text = reliability_report.page([on_gpus, result("one")])

    assert "| [One](#one) | host | 7 | 100 | 0 |\n| [One](#one) | 4 x NVIDIA X | 7 | 100 | 0 |\n" in text
    assert text.count("## One") == text.count("About it.") == 1
    assert text.index("On the host") < text.index("| a \\| b |") < text.index("On 4 x NVIDIA X") < text.index("| c |")


def test_the_page_is_that_of_the_committed_results(capsys, monkeypatch):
    """After a run: python benchmarks/reliability_report.py > docs/reliability.md."""
    monkeypatch.setattr("sys.argv", ["reliability_report.py"])
    reliability_report.main()
    page = reliability_report.RESULTS.parents[2] / "docs" / "reliability.md"
    assert capsys.readouterr().out == page.read_text()
