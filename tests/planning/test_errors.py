"""What a new user does wrong: each time one clear line, a PETSc error code, and a matrix that still works."""

import re
import sys
from pathlib import Path

import launch
import numpy as np
import pytest
from petsc4py import PETSc

import petsc_gpufmt
from petsc_gpufmt import errors
from petsc_gpufmt.backends import native_library
from petsc_gpufmt.formats.pjds import Pjds

UNKNOWN_TYPE = 86


@pytest.fixture
def matrix():
    A = PETSc.Mat().create(PETSc.COMM_SELF)
    A.setSizes(20)
    A.setType("pjds")
    A.setUp()
    for i in range(20):
        A.setValue(i, i, i + 1.0)
    A.assemble()
    yield A
    A.destroy()


def multiply(A):
    x, z = A.createVecs()
    x.set(1.0)
    A.mult(x, z)
    return z.getArray().tolist()


def assert_one_line(text, *parts):
    lines = [line for line in text.splitlines() if all(part in line for part in parts)]
    assert len(lines) == 1, text


def assert_usable(A):
    assert multiply(A) == list(range(1, A.size[0] + 1))


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("mat_pjds_slice_height", 33, "choose one of 8, 16, 32, 64, 128"),
        ("mat_pjds_slice_height", 2**32, "choose one of 8, 16, 32, 64, 128"),  # 0 in 32 bits
        ("mat_pjds_slice_height", "tall", "a whole number is needed"),
        ("mat_pjds_sigma_window", -2, "choose a number of rows"),
        ("mat_pjds_index", "shorter", "choose one of auto, full, short, pattern"),
        ("mat_pjds_index", 4, "choose one of auto, full, short, pattern"),
        ("mat_pjds_index", -1, "choose one of auto, full, short, pattern"),
    ],
)
def test_a_wrong_option_value(options, matrix, name, value, remedy):
    options[name] = value
    matrix.setFromOptions()

    with pytest.raises(PETSc.Error) as failure:
        multiply(matrix)

    assert failure.value.ierr == errors.OptionError.petsc_code
    assert_one_line(
        str(failure.value), f"-{name} {value}: ", remedy, "pjds of a 20 x 20 block with 20 nonzeros on host"
    )
    options.delValue(name)
    assert_usable(matrix)


def test_the_number_of_a_choice_is_its_word_with_one_warning_for_each_option(options, matrix, capfd):
    options["mat_csrvector_index"] = options["mat_csradaptive_index"] = 2
    viewer = PETSc.Viewer.STDOUT(PETSc.COMM_SELF)
    viewer.pushFormat(PETSc.Viewer.Format.ASCII_INFO)
    for format_name in ("csrvector", "csradaptive", "csrvector"):
        A = matrix.convert(format_name, PETSc.Mat())
        assert_usable(A)
        A.view(viewer)
        A.destroy()
    viewer.popFormat()

    text = capfd.readouterr().out
    assert text.count("16-bit columns") == 3
    assert_one_line(text, "PETSc DEPRECATION WARNING", "the value 2 of the option -mat_csrvector_index")
    assert_one_line(text, "PETSc DEPRECATION WARNING", "the value 2 of the option -mat_csradaptive_index")
    assert_one_line(text, "Use -mat_csrvector_index short instead")


def test_a_wrong_option_value_leaves_what_was_stored_before_in_use(options, matrix):
    assert_usable(matrix)
    options["mat_pjds_slice_height"] = 33

    assert_usable(matrix)
    with pytest.raises(PETSc.Error, match="slice_height 33"):
        matrix.multTranspose(*matrix.createVecs())

    assert_usable(matrix)


def test_options_of_a_prefix_go_to_the_matrix_that_has_it(options, matrix):
    options["mine_mat_pjds_slice_height"] = 33
    assert_usable(matrix)

    mine = matrix.duplicate(copy=True)
    mine.setOptionsPrefix("mine_")
    mine.setFromOptions()
    with pytest.raises(PETSc.Error, match="slice_height 33"):
        multiply(mine)


def test_a_misspelt_option_is_listed_as_unused():
    program = (
        "import sys, petsc4py, petsc_gpufmt\n"
        "petsc4py.init(sys.argv)  # after the import: the options count nevertheless\n"
        "from petsc4py import PETSc\n"
        "A = PETSc.Mat().createAIJ((4, 4), nnz=1); A.setFromOptions(); A.setUp(); A.assemble()\n"
        "A.mult(*A.createVecs()); print(A.getType())\n"
    )
    arguments = ["-mat_type", "pjds", "-mat_pjds_slice_height", 16, "-mat_pjds_slice_hight", 8, "-options_left"]

    finished = launch.run([sys.executable, "-c", program, *arguments])

    assert finished.status == 0 and "seqaijpjds" in finished.output, finished
    left = finished.output.partition("not used")[2]
    assert "-mat_pjds_slice_hight" in left and "-mat_pjds_slice_height" not in left, finished


def test_the_log_goes_on_after_a_first_plan_that_failed():
    program = (
        "import sys, petsc4py; petsc4py.init(sys.argv)\n"
        "from petsc4py import PETSc\n"
        "import petsc_gpufmt\n"
        "options = PETSc.Options()\n"
        "A = PETSc.Mat().createAIJ((4, 4), nnz=1); A.setType('pjds'); A.setUp(); A.assemble(); A.shift(1.0)\n"
        "options['mat_pjds_slice_height'] = 'tall'\n"
        "try:\n"
        "    A.mult(*A.createVecs())\n"
        "except PETSc.Error as e:\n"
        "    print('refused', e.ierr)\n"
        "options['mat_pjds_slice_height'] = 8\n"
        "A.mult(*A.createVecs()); print('done')\n"
    )

    finished = launch.run([sys.executable, "-c", program, "-log_view"])

    refused = f"refused {errors.OptionError.petsc_code}"
    assert finished.status == 0 and refused in finished.output and "done" in finished.output, finished


def test_an_unknown_type(matrix):
    with pytest.raises(PETSc.Error) as failure:
        PETSc.Mat().create().setType("pjsd")

    assert failure.value.ierr == UNKNOWN_TYPE


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (MemoryError("9 GiB"), errors.OutOfMemoryError.petsc_code, "out of memory (9 GiB)"),
        (errors.IndexOverflowError("too many"), errors.IndexOverflowError.petsc_code, "too many"),
        (RuntimeError("a bug"), errors.GpufmtError.petsc_code, "RuntimeError: a bug"),
    ],
    ids=["memory", "overflow", "bug"],
)
def test_a_failure_while_storing(monkeypatch, matrix, raised, code, text):
    def fail(*_):
        raise raised

    with monkeypatch.context() as patch:
        patch.setattr(Pjds, "build", fail)
        with pytest.raises(PETSc.Error) as failure:
            multiply(matrix)

    assert failure.value.ierr == code
    assert_one_line(str(failure.value), "pjds of a 20 x 20 block", text)
    assert_usable(matrix)


def test_a_failure_after_the_pattern_has_changed_keeps_the_new_matrix(monkeypatch, matrix):
    assert_usable(matrix)
    matrix.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    matrix.setValue(0, 1, 5.0)
    matrix.assemble()

    with monkeypatch.context() as patch:
        patch.setattr(Pjds, "build", lambda *_: 1 / 0)
        with pytest.raises(PETSc.Error, match="ZeroDivisionError"):
            multiply(matrix)

    assert multiply(matrix) == [6.0, *np.arange(2.0, 21.0)]


def test_options_that_are_too_long_together(options, matrix):
    """The type gpufmt takes those of all formats to the planner, which looks at the values."""
    A = matrix.convert("aijgpufmt", PETSc.Mat())
    for format_name, table in native_library.option_table().items():
        for name in table:
            options[f"mat_{format_name}_{name}"] = "9" * 60
    with pytest.raises(PETSc.Error, match="options of matrix type gpufmt take more than 2048 characters") as error:
        multiply(A)
    assert error.value.ierr == 63  # PETSC_ERR_ARG_OUTOFRANGE
    for name in options.getAll():
        if name.startswith("mat_"):
            options.delValue(name)
    assert_usable(A)
    A.destroy()


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0)])
def test_a_matrix_without_rows_or_columns_is_no_error(shape):
    A = PETSc.Mat().createAIJ(shape, nnz=0, comm=PETSc.COMM_SELF)
    A.assemble()
    A.convert("aijpjds")
    x, z = A.createVecs()
    z.set(7.0)

    A.mult(x, z)

    assert z.getArray().tolist() == [0.0] * shape[0]


@pytest.fixture(scope="module")
def multiply_twice(tmp_path_factory):
    return launch.compiled("multiply_twice", tmp_path_factory.mktemp("programs"))


def run_with_library(program, **environment):
    return launch.run([program, "-dll_append", petsc_gpufmt.library_path(), "-mat_type", "pjds"], **environment)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PETSC_GPUFMT_PYTHON", "/nonexistent", "A plan needs Python, and /nonexistent cannot be started"),
        ("PETSC_GPUFMT_PYTHON", "/bin/true", "A plan needs Python, and /bin/true"),
        ("PETSC_GPUFMT_PYTHON", "/it's here", "/it's here has a quote in its path, which is not supported"),
        ("PYTHONHOME", "/nonexistent", "with PYTHONHOME=/nonexistent cannot be started"),
    ],
)
def test_a_c_program_that_finds_no_python(multiply_twice, variable, value, message):
    finished = run_with_library(multiply_twice, **{variable: value})

    assert finished.status == 0, finished
    assert_one_line(finished.output, message)
    assert "first 0" not in finished.output and "second 0 norm 12" in finished.output, finished


@pytest.mark.slow
def test_a_c_program_with_another_copy_of_the_library(multiply_twice, tmp_path):
    copy = tmp_path / "libpetscgpufmt.so"
    copy.write_bytes(petsc_gpufmt.library_path().read_bytes())

    finished = launch.run([multiply_twice, "-dll_append", copy, "-mat_type", "pjds"])

    assert finished.status == 0, finished
    assert "it uses another copy of libpetscgpufmt.so than this program: load the one that" in finished.output, finished
    assert "first 56 second 56" in finished.output, finished  # PETSC_ERR_SUP


@pytest.mark.slow
def test_a_c_program_whose_python_has_gone(multiply_twice, tmp_path):
    """A library that was built for a Python that is not there any more: the path lies in it as a C string."""
    library, here = petsc_gpufmt.library_path().read_bytes(), Path(sys.executable).parent
    (built_for,) = re.findall(re.escape(bytes(here)) + rb"/python[\d.]*\0", library)  # once, by any of its names
    moved = tmp_path / "libpetscgpufmt.so"
    moved.write_bytes(library.replace(built_for, b"/gone" + built_for[5:]))

    finished = launch.run([multiply_twice, "-dll_append", moved, "-mat_type", "pjds"])

    assert "first 56 second 56" in finished.output, finished
    assert "for which this library was built, is not there any more: set PETSC_GPUFMT_PYTHON" in finished.output


@pytest.mark.slow
def test_a_c_program_whose_python_cannot_import_the_package(multiply_twice, tmp_path):
    (tmp_path / "petsc_gpufmt.py").write_text("raise ImportError('wrong\\nplace')\n")

    finished = run_with_library(multiply_twice, PYTHONPATH=str(tmp_path))

    assert "and `import petsc_gpufmt` failed there (ImportError('wrong\\nplace'))" in finished.output, finished
    assert "first 56 second 56" in finished.output, finished


@pytest.mark.slow
def test_a_c_program_with_everything_in_place(multiply_twice):
    finished = run_with_library(multiply_twice)

    assert finished.status == 0 and "first 0 second 0 norm 12" in finished.output, finished


@pytest.mark.slow
@pytest.mark.parametrize("other", ["version", "configuration"])
def test_a_petsc_of_another_minor_release_or_configuration(other, tmp_path):
    """Private structs differ between these; a wheel may come from pip's cache."""
    program = "from petsc4py import PETSc; import petsc_gpufmt"
    preloaded = launch.compiled(f"other_{other}", tmp_path, "-shared", "-fPIC")
    finished = launch.run([sys.executable, "-c", program], LD_PRELOAD=str(preloaded))

    assert finished.status != 0, finished
    assert_one_line(finished.output, "was built for PETSc 3.", "CUDA, and this is PETSc 3.", "reinstall petsc_gpufmt")
    assert "--no-cache-dir" in finished.output
