"""The reader of PETSc's test blocks reads them as PETSc's own does, and knows what a build can run."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from blocks import BlockError, expanded, read_blocks, words_of
from requirements import Build

TEXT = """\
int main(void) { return 0; }
/*TEST
   build:
     requires: !complex

   test:
     args: -a {{1 2}separate output} -b

   # a comment
   testset:
     suffix: set
     nsize: {{1 3}}
     requires: triangle
     args: -c \\
           -d
     filter: sort
     test:
       args: -e
     test:
       suffix: two
       requires: int32
       filter: grep -v "x"
       localrunfiles: data more
   test:
     suffix: later
     TODO: not now
TEST*/
"""


@pytest.fixture
def blocks(tmp_path):
    source = tmp_path / "ex9.c"
    source.write_text(TEXT)
    return {block.name: block for block in read_blocks(source, "mat/tests/ex9")}


def test_names_follow_the_suffixes(blocks):
    assert list(blocks) == ["ex9_1", "ex9_set+a", "ex9_set_two", "ex9_later"]
    assert {block.program for block in blocks.values()} == {"mat/tests/ex9"}
    assert {block.directory for block in blocks.values()} == {"mat/tests"}


def test_what_a_test_has_comes_from_its_set_and_from_the_build(blocks):
    assert blocks["ex9_1"].requires == ("!complex",)
    assert blocks["ex9_set+a"].requires == ("!complex", "triangle")
    assert blocks["ex9_set_two"].requires == ("!complex", "triangle", "int32")
    assert blocks["ex9_set+a"].arguments.split() == ["-c", "-d", "-e"]
    assert blocks["ex9_set+a"].filter == "sort"
    assert blocks["ex9_set_two"].filter == 'grep -v "x"'
    assert blocks["ex9_set_two"].files == ("data", "more")


def test_loops_give_a_run_for_each_combination(blocks):
    assert [(ranks, line.split()) for ranks, line in blocks["ex9_1"].runs()] == [
        (1, ["-a", "1", "-b"]),
        (1, ["-a", "2", "-b"]),
    ]
    assert [ranks for ranks, _ in blocks["ex9_set_two"].runs()] == [1, 3]


def test_what_petsc_leaves_out_is_told(blocks):
    assert blocks["ex9_later"].left_out == "TODO: not now"
    assert not blocks["ex9_1"].left_out


def test_a_source_without_a_block_has_none(tmp_path):
    source = tmp_path / "ex1.c"
    source.write_text("int main(void) { return 0; }\n")
    assert read_blocks(source, "mat/tests/ex1") == []


@pytest.mark.parametrize("text", ["   args: -a\n", "   tset:\n     args: -a\n"])
def test_what_is_no_block_is_an_error(tmp_path, text):
    source = tmp_path / "ex1.c"
    source.write_text(f"/*TEST\n{text}TEST*/\n")
    with pytest.raises(BlockError, match="mat/tests/ex1"):
        read_blocks(source, "mat/tests/ex1")


def test_words_are_those_of_a_shell():
    line = "-f ${wPETSC_DIR}/m-int@PETSC_INDEX_SIZE@ -o 'a b'"
    assert words_of(line, wPETSC_DIR="/src", PETSC_INDEX_SIZE="32") == ["-f", "/src/m-int32", "-o", "a b"]


BUILD = Build(frozenset({"PETSC_HAVE_X", "PETSC_USE_LOG", "PETSC_USE_DEBUG"}), "double", 32)


@pytest.mark.parametrize(
    "met",
    [
        ["x"],
        ["!cuda", "double"],
        ["!complex", "!single", "debug"],
        ["int32", "!int64"],
        ["defined(PETSC_USE_LOG)", "!defined(PETSC_USE_64BIT_INDICES)"],
        ["!CUDA_VERSION_GE(11,0,0)"],
    ],
)
def test_requirements_that_are_met(met):
    assert BUILD.lacks(met) == []


@pytest.mark.parametrize(
    "word",
    ["!x", "cuda", "!double", "single", "__float128", "complex", "int64", "!debug", "defined(PETSC_HAVE_MPIIO)"],
)
def test_requirements_that_are_not(word):
    assert BUILD.lacks(["x", word]) == [word]


@pytest.mark.petsc
@pytest.mark.parametrize("folder", ["mat/tests", "ksp/ksp", "snes/tutorials", "dm/impls/plex/tests"])
def test_blocks_are_those_that_petsc_reads(programs, folder, monkeypatch):
    """Ranks, words and filters of all runs, with config/testparse.py of the same sources beside this reader."""
    monkeypatch.syspath_prepend(str(programs.sources / "config"))
    monkeypatch.setenv("PETSC_DIR", str(programs.sources))
    testparse = importlib.import_module("testparse")
    compared = 0
    for source in sorted((programs.sources / "src" / folder).rglob("*.c")):
        if "/*TEST\n" not in source.read_text(errors="replace"):
            continue
        blocks = read_blocks(source, str(source.relative_to(programs.sources / "src").with_suffix("")))
        ours = {(ranks, _letters(line), block.filter) for block in blocks for ranks, line in block.runs()}
        assert ours == _petsc_runs(testparse, source), source
        compared += len(ours)
    assert compared > 300


def _letters(line: str) -> tuple[str, ...]:
    return tuple(sorted(line.split()))


def _petsc_runs(testparse, source: Path) -> set[tuple[int, tuple[str, ...], str]]:
    runs = set()
    for test in testparse.parseTestFile(str(source), 0)[source.name].values():
        if not isinstance(test, dict):
            continue
        for name in test.get("subtests", [None]):
            own = test[name] if name else {}
            keys = {**test, **own, "args": f"{test.get('args', '')} {own.get('args', '') if name else ''}"}
            for ranks in " ".join(expanded(keys.get("nsize", "1"))).split():
                runs |= {(int(ranks), _letters(line), keys.get("filter", "")) for line in expanded(keys["args"])}
    return runs
