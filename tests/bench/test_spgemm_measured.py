"""The benchmark of sparse products: its references, pyramids and checks, what it writes. No test looks at a time."""

from __future__ import annotations

import types

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench import galerkin, matrices, results, spgemm  # noqa: E402
from petsc_gpufmt.bench import spgemm_contenders as contenders  # noqa: E402
from petsc_gpufmt.bench import spgemm_tasks as tasks  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.matrices import BenchMatrix, make_matrix  # noqa: E402
from petsc_gpufmt.bench.places import host_place  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402
from petsc_gpufmt.errors import OutOfMemoryError  # noqa: E402
from petsc_gpufmt.patterns.csr import CsrPattern  # noqa: E402
from petsc_gpufmt.spgemm.product import SparseProduct  # noqa: E402


def rng():
    return np.random.default_rng(977)


def make(spec):
    backend = host_place().backend
    return make_matrix(spec, backend.scalar, backend.index, rng())


def random(nrows, ncols, density=0.2):
    backend = host_place().backend
    matrix = scipy_sparse.random(nrows, ncols, density, format="csr", dtype=backend.scalar, random_state=rng())
    matrix.sort_indices()
    matrix.indptr, matrix.indices = matrix.indptr.astype(backend.index), matrix.indices.astype(backend.index)
    return matrix


def csr(rows):
    return scipy_sparse.csr_matrix(np.array(rows, dtype=float))


@pytest.mark.parametrize("shape", [(30, 20, 40), (0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1)])
def test_reference_of_a_product(shape):
    A, B = random(*shape[:2], 0.3), random(*shape[1:], 0.3)
    task = tasks.matrix_product(A, B)
    C = task.reference.C
    np.testing.assert_allclose(C.matrix.toarray(), A.toarray() @ B.toarray(), rtol=1e-6, atol=1e-12)
    assert task.terms == sum(B.indptr[k + 1] - B.indptr[k] for k in A.indices)
    assert C.magnitudes.size == C.matrix.nnz
    assert task.reference.error(C.matrix) == 0


def test_reference_of_a_galerkin_product():
    A, P = random(40, 40), random(40, 12)
    task = tasks.galerkin_product(A, P)
    np.testing.assert_allclose(task.reference.C.matrix.toarray(), (P.T @ A @ P).toarray(), rtol=1e-6, atol=1e-6)
    transpose = P.T.tocsr()
    assert task.terms == tasks.count_terms(A, P).sum() + tasks.count_terms(transpose, A @ P).sum()
    assert tasks.sorted_transpose(P).indices.dtype == P.indices.dtype


def test_magnitudes_are_those_of_the_terms():
    task = tasks.matrix_product(csr([[3, -2]]), csr([[1, 5], [-4, 0]]))
    np.testing.assert_array_equal(task.reference.C.magnitudes, [3 + 8, 15])
    np.testing.assert_array_equal(task.reference.roundings, [2 + 2])


def test_entries_that_cancel_belong_to_the_product():
    task = tasks.matrix_product(csr([[1, 1]]), csr([[2], [-2]]))
    C = task.reference.C.matrix
    assert (C.nnz, C.data[0]) == (1, 0)
    assert task.reference.error(scipy_sparse.csr_matrix((1, 1))) == np.inf


def test_error_tells_rounding_from_mistakes():
    task = tasks.matrix_product(random(60, 50), random(50, 70))
    right = task.reference.C.matrix
    row = int(np.argmax(np.diff(right.indptr)))
    entry = right.indptr[row]
    eps = np.finfo(right.dtype).eps

    def changed(**arrays):
        copy = {"data": right.data.copy(), "indices": right.indices.copy(), "indptr": right.indptr.copy()} | arrays
        return contenders.host_csr(right.shape, copy["indptr"], copy["indices"], copy["data"])

    def with_entry(value):
        data = right.data.copy()
        data[entry] = value
        return changed(data=data)

    assert 0 < task.reference.error(with_entry(right.data[entry] + eps * task.reference.C.magnitudes[entry])) <= 1
    for value in (right.data[entry] + 1e3 * eps * task.reference.C.magnitudes[entry], np.nan, np.inf):
        assert task.reference.error(with_entry(value)) > 1

    order = np.arange(right.nnz)
    order[[entry, entry + 1]] = order[[entry + 1, entry]]
    unsorted = changed(indices=right.indices[order], data=right.data[order])
    assert task.reference.error(unsorted) == np.inf
    assert task.reference.error(unsorted, sort=True) == 0
    assert unsorted.indices[entry] > unsorted.indices[entry + 1]  # the result itself is left as it came out

    other = right.indices.copy()
    other[entry] = -1
    assert task.reference.error(changed(indices=other)) == np.inf
    assert task.reference.error(right[:-1]) == np.inf


def test_shapes_have_to_chain():
    with pytest.raises(BenchError, match="inner sizes differ"):
        tasks.matrix_product(random(3, 4), random(5, 3))


def test_blocks_of_rows_cover_all():
    for work in (np.zeros(0, int), np.ones(5, int), np.array([0, 1000, 0, 0, 3]), np.zeros(1000, int)):
        blocks = tasks.row_blocks(work)
        assert [row for begin, end in blocks for row in range(begin, end)] == list(range(work.size))


def test_aggregates():
    A = make("7point:12").csr
    aggregate = galerkin.aggregates(A, rng())
    count = aggregate.max() + 1
    assert set(aggregate) == set(range(count))
    two_steps = (abs(A) @ abs(A)).tocoo()
    near = set(zip(two_steps.row.tolist(), two_steps.col.tolist(), strict=True))
    for number in range(count):  # all members are within two steps of one of them
        members = np.flatnonzero(aggregate == number)
        assert any(all((root, member) in near for member in members) for root in members)


def test_prolongator_has_the_pattern_of_smoothed_aggregates():
    A = make("7point:6").csr
    P = galerkin.prolongator(A, rng())
    aggregate = galerkin.aggregates(A, rng())
    assert P.shape == (216, aggregate.max() + 1)
    for row in (0, 100, 215):
        neighbours = A.indices[A.indptr[row] : A.indptr[row + 1]]
        found = P.indices[P.indptr[row] : P.indptr[row + 1]]
        np.testing.assert_array_equal(found, np.unique(aggregate[neighbours]))
    assert P.indices.dtype == A.indices.dtype


def test_pyramid_ends_below_the_smallest_width(monkeypatch):
    monkeypatch.setattr(galerkin, "SMALLEST_WIDTH", 20)
    levels = galerkin.pyramid(make("7point:10"), rng())
    assert len(levels) > 1
    for level, following in zip(levels, levels[1:], strict=False):
        np.testing.assert_array_equal(following.operands[0].toarray(), level.reference.C.matrix.toarray())
    assert levels[-1].operands[0].shape[0] >= 20 > levels[-1].reference.C.matrix.shape[0]


def test_which_matrices_have_a_pyramid(monkeypatch):
    monkeypatch.setattr(galerkin, "SMALLEST_WIDTH", 2)
    assert galerkin.has_pyramid(csr([[1, 2], [3, 4]]))
    assert not galerkin.has_pyramid(csr([[1, 2], [0, 4]]))
    assert not galerkin.has_pyramid(csr([[1, 2], [3, 0]]))
    assert not galerkin.has_pyramid(csr([[1, 2, 3], [3, 4, 5]]))
    assert not galerkin.has_pyramid(csr([[1]]))


@pytest.mark.parametrize(
    ("longest_row", "calls"), [(0, 1), (4, 1), (16, 1), (17, 2), (204, 2), (280, 3), (893, 3), (1383, 3), (4700, 4)]
)
def test_calls_of_mullimited(longest_row, calls):
    """The iterations of the paper's table 3.1, for the longest rows in its table 1.1."""
    assert contenders.merge_calls(longest_row, 16) == calls


@pytest.mark.parametrize("longest_row", [2, 16, 17, 40, 257])
def test_calls_of_mullimited_are_those_that_merging_takes(longest_row):
    backend = host_place().backend
    A = scipy_sparse.csr_matrix(np.ones((1, longest_row), backend.scalar))
    B = scipy_sparse.identity(longest_row, backend.scalar, format="csr")
    left, right = (CsrPattern(*m.shape, *(a.astype(backend.index) for a in (m.indptr, m.indices))) for m in (A, B))
    for width in contenders.WIDTHS:
        product = SparseProduct.build(left, right, backend, {"accumulator": "merge", "merge_width": width})
        assert [a.iterations for a in product.accumulators] == [contenders.merge_calls(longest_row, width)]


def test_rows_cut_into_pieces():
    np.testing.assert_array_equal(spgemm.pieces(np.array([0, 5, 5, 6, 10]), 2), [0, 2, 4, 5, 6, 8, 10])
    np.testing.assert_array_equal(spgemm.pieces(np.array([0]), 2), [0])


def test_compression_level_by_level():
    A = make("7point:5").csr
    levels = spgemm.compression_levels(A, host_place())
    terms = tasks.count_terms(A, A).sum()
    entries = 0
    for row in range(A.shape[0]):
        columns = A.indices[A.indptr[row] : A.indptr[row + 1]]
        for start in range(0, columns.size, 2):
            entries += np.unique(np.concatenate([A[k].indices for k in columns[start : start + 2]])).size
    assert len(levels) == 4  # pieces of 1, 2, 4 and 8 entries of rows of at most 7
    assert levels[:2] == [1, pytest.approx(entries / terms)]
    assert levels[-1] == pytest.approx((A @ A).nnz / terms)


def small_case(kind="square"):
    matrix = BenchMatrix("small", random(50, 50))
    task = tasks.matrix_product(matrix.csr, matrix.csr)
    if kind == "galerkin":
        task = tasks.galerkin_product(matrix.csr, random(50, 9))
    return spgemm.ProductCase(kind, matrix, [task])


@pytest.mark.parametrize("kind", ["square", "galerkin"])
def test_every_contender_of_the_host_is_right(kind):
    case, place = small_case(kind), host_place()
    for contender in contenders.spgemm_contenders(["host"], None):
        entry = spgemm.measure_contender(contender, case, place)
        if contender.obstacle(case.tasks[0]):
            continue
        assert entry["correct"], (contender.name, entry)
        assert ("numeric_seconds" in entry) == (contender.name != "SciPy")
        assert ("first_seconds" in entry) == isinstance(contender, contenders.PetscSpgemm)


def test_petscs_type_is_not_asked_for_a_product_that_cusparse_cannot_make(monkeypatch):
    class NoResources:
        def cold(self):
            raise RuntimeError("insufficient resources")

        def close(self):
            closed.append(True)

    closed = []
    monkeypatch.setattr(contenders.CupySpgemm, "prepare", lambda self, task, place: NoResources())
    monkeypatch.setattr(contenders, "PetscRun", lambda task, types: pytest.fail("asked"))
    entry = spgemm.measure_contender(contenders.AijcusparseSpgemm("aijcusparse", "cuda"), small_case("square"), None)
    assert "cuSPARSE fails (insufficient resources)" in entry["skipped"]
    assert closed == [True]


class Failing(contenders.SpgemmContender):
    """Raises the error of the class."""

    error: Exception = ValueError("no reason\nsecond line")

    def prepare(self, task, place):
        raise self.error


def test_a_peer_that_fails_is_told_and_ours_counts_as_wrong():
    case, place = small_case(), host_place()
    entry = spgemm.measure_contender(Failing("other", "host"), case, place)
    assert (entry["skipped"], entry["failed"]) == ("ValueError: no reason", False)

    class Ours(Failing):
        ours = True

    entry = spgemm.measure_contender(Ours("rmerge", "host"), case, place)
    assert entry["failed"]
    line = spgemm.wrong_products({"kind": "square", "matrix": {"name": "small"}, "products": [entry]})
    assert line == ["small, square, rmerge on host: ValueError: no reason"]


def test_memory_that_is_too_small_for_forced_options_is_no_mistake():
    class Forced(Failing):
        ours, forced, error = True, True, OutOfMemoryError("needs 9 GB")

    class Automatic(Failing):
        ours, error = True, OutOfMemoryError("needs 9 GB")

    case, place = small_case(), host_place()
    assert spgemm.measure_contender(Forced("rmerge:x", "host"), case, place)["failed"] is False
    assert spgemm.measure_contender(Automatic("rmerge", "host"), case, place)["failed"] is True


def test_errors_of_petsc_are_told_by_their_last_line():
    class Error(Exception):
        ierr = 56

    assert spgemm.describe_error(Error("first\nlast  ")) == "PETSc error 56: last"
    assert spgemm.describe_error(ValueError()) == "ValueError: "


def test_variants():
    found = contenders.planned_contender("rmerge:accumulator=merge,merge_width=8", "host")
    assert found.options == {"accumulator": "merge", "merge_width": 8}
    assert (found.forced, contenders.planned_contender("rmerge", "host").forced) == (True, False)
    for variant in ("other", "rmerge:width=3", "rmerge:merge_width=wide"):
        with pytest.raises(BenchError, match=f"--variant {variant}"):
            contenders.planned_contender(variant, "host")


def test_who_is_measured():
    def names(*arguments):
        return [(c.name, c.place) for c in contenders.spgemm_contenders(*arguments)]

    host = names(["host"], ["rmerge"])
    assert host == [(name, "host") for name in ("rmerge", "gpufmt", "aij", "hypre", "SciPy")]
    device = names(["host", "cuda"], None)
    assert [name for name, place in device if place == "host"] == ["SciPy"]
    assert {"cuSPARSE ALG1", "cuSPARSE ALG2", "cuSPARSE ALG3", "CuPy", "aijcusparse"} <= {name for name, _ in device}
    assert [name for name, _ in device[:2]] == ["rmerge", "rmerge:accumulator=hash"]
    assert [name for name, _ in device[2:7]] == contenders.merge_widths()


def test_equal_operands_are_made_once():
    one, other, asked = [1], [2], []

    def make(operand):
        asked.append(operand)
        return [*operand, 0]

    made = contenders.once_each((one, one, other), make)
    assert made[0] is made[1] and made == [[1, 0], [1, 0], [2, 0]]
    assert asked == [one, other]


def test_products_of_a_pyramid_are_added_up():
    parts = [
        {
            "cold_seconds": 1.0,
            "first_seconds": 4.0,
            "extra_bytes": 5,
            "error_over_bound": 0.1,
            "stored_as": "a",
            "same_bits": True,
        },
        {
            "cold_seconds": 2.0,
            "first_seconds": 5.0,
            "extra_bytes": 3,
            "error_over_bound": 0.4,
            "stored_as": "b",
            "same_bits": False,
        },
    ]
    assert spgemm.sums(parts) == {
        **{
            "cold_seconds": 3.0,
            "first_seconds": 9.0,
            "extra_bytes": 5,
            "error_over_bound": 0.4,
            "stored_as": "a | b",
            "same_bits": False,
        }
    }


def run_bench(tmp_path, *words):
    path = tmp_path / "results.json"
    status = main(["bench", "spgemm", "--host", "--variant", "rmerge", "--json", str(path), *words])
    return status, results.read_runs(path)[0] if path.exists() else None


def test_spgemm_writes_results(tmp_path, monkeypatch):
    monkeypatch.setattr(galerkin, "SMALLEST_WIDTH", 30)
    status, run = run_bench(tmp_path, "--matrix", "7point:4", "--matrix", "27point:3", "--without", "hypre")
    assert status == 0
    found = [(case["matrix"]["name"], case["kind"], case["real"]) for case in run["cases"]]
    assert found == [
        ("7-point 4^3", "square", False),
        ("7-point 4^3", "galerkin", False),
        ("27-point 3^3", "square", False),
    ]
    (square, pyramid, _) = run["cases"]
    assert [p["name"] for p in square["products"]] == ["rmerge", "gpufmt", "aij", "SciPy"]
    assert all(p["correct"] for case in run["cases"] for p in case["products"])
    assert square["matrix"]["terms"] == square["matrix"]["compression"] * square["matrix"]["result_nnz"]
    assert "terms to" in square["products"][0]["stored_as"]
    assert pyramid["matrix"]["levels"] == 1


def test_folder_of_matrices(tmp_path, monkeypatch):
    monkeypatch.setattr(matrices, "REAL_NONZEROS", 1)
    monkeypatch.setitem(spgemm.DEFAULT_MATRICES, "host", ("7point:3",))
    monkeypatch.setitem(spgemm.PYRAMID_MATRICES, "host", ())
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, shape in (("a", (20, 20)), ("b", (20, 30))):
        scipy_sparse.save_npz(folder / f"{name}.npz", random(*shape))
    status, run = run_bench(tmp_path, "--matrices", str(folder), "--without", "hypre")
    assert status == 0
    assert [(case["matrix"]["name"], case["real"]) for case in run["cases"]] == [("7-point 3^3", False), ("a", True)]
    named = ("--matrix", "7point:3", "--matrix", str(folder / "a.npz"), "--only", "square")
    _, run = run_bench(tmp_path, *named, "--without", "hypre")
    assert [(case["matrix"]["name"], case["real"]) for case in run["cases"]] == [("7-point 3^3", False), ("a", True)]


def test_a_matrix_without_products_is_refused(tmp_path, capsys):
    path = tmp_path / "wide.npz"
    scipy_sparse.save_npz(path, random(20, 30))
    assert run_bench(tmp_path, "--matrix", str(path))[0] == 2
    assert "no product was measured: A A needs a square matrix" in capsys.readouterr().err
    assert run_bench(tmp_path, "--matrix", "7point:4", "--only", "galerkin")[0] == 2


def test_squares_with_too_many_terms_are_left_out(tmp_path, monkeypatch, capsys):
    A = make("7point:3").csr
    monkeypatch.setattr(spgemm, "MOST_TERMS", int(tasks.count_terms(A, A).sum()))
    status, run = run_bench(tmp_path, "--matrix", "7point:3", "--matrix", "7point:4", "--without", "hypre")
    assert status == 0
    assert [case["matrix"]["name"] for case in run["cases"]] == ["7-point 3^3"]
    assert "7-point 4^3, A A left out" in capsys.readouterr().out


def test_wrong_products_are_reported(tmp_path, monkeypatch, capsys):
    right = contenders.PlannedRun.result

    def wrong(run):
        C = right(run)
        C.data[0] += 1e-3
        return C

    monkeypatch.setattr(contenders.PlannedRun, "result", wrong)
    words = ("--matrix", "7point:3", "--only", "square")
    status, run = run_bench(tmp_path, *words)
    assert status == 1
    assert "WRONG: 7-point 3^3, square, rmerge on host: error" in capsys.readouterr().out
    monkeypatch.setattr(contenders.PlannedRun, "result", right)

    values = iter(range(100))

    def other_bits(run):
        C = right(run)
        C.data[0] *= 1 + next(values) * np.finfo(C.dtype).eps
        return C

    monkeypatch.setattr(contenders.PlannedRun, "result", other_bits)
    assert run_bench(tmp_path, *words)[0] == 1
    assert "rmerge on host: other bits in the next run" in capsys.readouterr().out


def test_wrong_results_of_peers_do_not_fail_the_benchmark(tmp_path, monkeypatch):
    right = contenders.CsrRun.result

    def wrong(run):
        C = right(run)
        C.data[0] += 1e-3
        return C

    monkeypatch.setattr(contenders.CsrRun, "result", wrong)
    status, run = run_bench(tmp_path, "--matrix", "7point:3", "--only", "square")
    assert status == 0
    assert [p["correct"] for p in run["cases"][0]["products"] if p["name"] == "SciPy"] == [False]


def test_calls_are_timed_as_often_as_the_seconds_of_their_case_allow(monkeypatch):
    monkeypatch.setattr(spgemm, "SECONDS", 0.05)
    monkeypatch.setattr(spgemm, "REPEATS", 31)

    assert [spgemm.few_repeats(first, 0.1) for first in (1.0, 0.04, 0.008, 1e-6)] == [1, 2, 12, 31]
    assert spgemm.few_repeats(0.02, spgemm.ProductCase("square", None, []).seconds) == 2


def test_operands_that_cannot_be_made_leave_nothing_behind():
    closed = []
    run = contenders.PetscRun.__new__(contenders.PetscRun)
    run.task, run.types, run.close = types.SimpleNamespace(operands=[None]), ["aij"], lambda: closed.append(1)
    with pytest.raises(AttributeError):
        run.renew()
    assert len(closed) == 2
