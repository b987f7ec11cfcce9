"""Nothing of the package runs text or data as code, and none of it starts a shell: held by the syntax trees."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import scipy.sparse

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("petsc_gpufmt", "tools", "benchmarks")
SOURCES = [*(path for name in FOLDERS for path in sorted((ROOT / name).rglob("*.py"))), ROOT / "setup.py"]
C_SUFFIXES = (".c", ".h", ".cu", ".cuh", ".def")
C_SOURCES = [
    path for name in ("petsc_gpufmt", "kernels") for path in (ROOT / name).rglob("*") if path.suffix in C_SUFFIXES
]

# modules that make objects or code of bytes, and text of shells
MODULES = (
    "pickle",
    "_pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "yaml",
    "code",
    "codeop",
)
BUILTINS = ("eval", "exec", "compile")
CALLS = ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn")
SHELL_FUNCTIONS = re.compile(r"(?<![\w.>])(system|popen)\s*\(")
COMMENT_OR_TEXT = re.compile(r'(?s)/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"')

ASKS_AN_INTERPRETER = "petsc_gpufmt/native/runtime/python.c"
"""Its one popen() asks the interpreter that the user named for its library; a name with a quote is refused before."""


def broken(text: str) -> Iterator[tuple[int, str]]:
    """Lines of Python that break a rule, and what they have."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from ((node.lineno, f"import {name}") for name in names if name.partition(".")[0] in MODULES)
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in (*BUILTINS, *CALLS) or called in (f"builtins.{name}" for name in BUILTINS):
            yield node.lineno, called
        for word in node.keywords:
            harmless = isinstance(word.value, ast.Constant) and not word.value.value
            if word.arg in ("shell", "allow_pickle") and not harmless:
                yield node.lineno, f"{called}({ast.unparse(word)})"


def calls_of_shells(text: str) -> list[str]:
    """Functions of C that start a shell, outside of comments and text."""
    return SHELL_FUNCTIONS.findall(COMMENT_OR_TEXT.sub(" ", text))


def test_there_is_something_to_look_at():
    assert len(SOURCES) > 150 and len(C_SOURCES) > 150


@pytest.mark.parametrize("folder", [*FOLDERS, "setup.py"])
def test_no_data_are_run_as_code(folder):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] == folder
        for line, what in broken(path.read_text())
    ]
    assert found == []


def test_no_shell_is_started_in_c():
    found = {str(path.relative_to(ROOT)): calls for path in C_SOURCES if (calls := calls_of_shells(path.read_text()))}
    assert found == {ASKS_AN_INTERPRETER: ["popen"]}


def test_a_quote_cannot_leave_the_command_that_asks_an_interpreter():
    before, _, after = (ROOT / ASKS_AN_INTERPRETER).read_text().partition("popen(")
    asked = before[before.rindex("AskLibrary(") :]
    assert "strchr(executable, '\\'')" in asked and "\"'%s' -c" in asked and after


def test_matrices_of_scipy_are_read_without_pickles():
    from scipy.sparse import _matrix_io

    assert _matrix_io.PICKLE_KWARGS == {"allow_pickle": False}
    assert "**PICKLE_KWARGS" in inspect.getsource(scipy.sparse.load_npz)


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import yaml.loader",
        "eval('1')",
        "def f():\n    exec(text)",
        "compile(text, '', 'exec')",
        "import os\nos.system('ls')",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=flag)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_what_breaks_a_rule_is_found(text):
    assert list(broken(text))


@pytest.mark.parametrize("text", ["np.load(path, allow_pickle=False)", "re.compile('x')", "run(['ls'], shell=False)"])
def test_what_breaks_none_is_not(text):
    assert not list(broken(text))


def test_what_starts_a_shell_in_c_is_found():
    assert calls_of_shells('x = popen (c, "r"); system(c);') == ["popen", "system"]
    assert calls_of_shells('/* system(1) */ f("system(2)"); __threadfence_system(); // popen(3)') == []
