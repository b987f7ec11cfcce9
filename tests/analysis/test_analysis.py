"""What is said of formats: counted sizes, predicted times, the choice and what to paste."""

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_gpufmt.analysis import stored, times  # noqa: E402
from petsc_gpufmt.analysis.analysis import PETSC_CSR, analyse, modelled_device  # noqa: E402
from petsc_gpufmt.analysis.facts import pattern_of  # noqa: E402
from petsc_gpufmt.analysis.source import Source, read_source  # noqa: E402
from petsc_gpufmt.analysis.text import lines  # noqa: E402
from petsc_gpufmt.backends.native_library import petsc_types  # noqa: E402
from petsc_gpufmt.choice.gpufmt import Gpufmt  # noqa: E402
from petsc_gpufmt.choice.model import EFFICIENCY, rank, shortest_mult  # noqa: E402
from petsc_gpufmt.choice.profile import Profile  # noqa: E402
from petsc_gpufmt.choice.registry import STORAGE_FORMATS  # noqa: E402
from petsc_gpufmt.scaling.machine import find_gpu  # noqa: E402

TYPES = petsc_types()
SCALAR, INDEX = (dtype.itemsize for dtype in TYPES)


def analysed(given, gpu="h200"):
    if isinstance(given, str):
        return analyse(read_source(given, *TYPES), TYPES, find_gpu(gpu))
    csr = scipy_sparse.csr_matrix(given, dtype=TYPES[0])
    csr.sort_indices()
    return analyse(Source("given", csr), TYPES, find_gpu(gpu))


def with_long_row(n=2000):
    matrix = scipy_sparse.lil_matrix(scipy_sparse.diags([1.0, 2.0, 1.0], [-1, 0, 1], shape=(n, n)))
    matrix[17, :] = 1.0
    return matrix


def untold_blocks(size, n):
    return scipy_sparse.kron(scipy_sparse.random(n, n, 0.1, random_state=977), np.ones((size, size)), format="csr")


@pytest.fixture(scope="module")
def stencil():
    return analysed("7point:52")  # enough entries for row patterns to be looked for


def test_there_is_a_row_for_each_format(stencil):
    assert [row.name for row in stencil.rows] == [PETSC_CSR, *STORAGE_FORMATS]


def test_bytes_are_those_of_formats_as_a_device_stores_them(stencil):
    nrows, nnz = stencil.facts.nrows, stencil.facts.nnz
    csr, pjds, ellpack = (stencil.row(name) for name in (PETSC_CSR, "pjds", "ellpack"))
    assert csr.bytes_per_mult == nnz * (SCALAR + INDEX) + (nrows + 1) * INDEX + 2 * nrows * SCALAR
    assert csr.bytes_held == nnz * (SCALAR + INDEX) + (nrows + 1) * INDEX
    assert pjds.summary.startswith("slice height 32,") and "27 row patterns" in pjds.summary
    assert pjds.nstored % 32 == 0 and pjds.padding == pytest.approx(1 - nnz / pjds.nstored)
    assert ellpack.nstored == -(-nrows // 32) * 32 * 7


def test_times_are_those_of_the_model_with_the_bytes_that_were_counted(stencil):
    gpu = find_gpu("h200")
    device = modelled_device(TYPES, gpu)
    profile = Profile.of(pattern_of(read_source("7point:52", *TYPES), device), device)
    row = stencil.row("pjds")
    speed = gpu.bandwidth_of(row.bytes_per_mult, profile.nrows)
    candidate = next(c for c in rank(profile, device, speed) if c.name == "pjds")
    assert row.seconds == pytest.approx(candidate.seconds, rel=0.02)  # which does not know of the ends of slices
    as_modelled = times.modelled_seconds("pjds", round(candidate.nbytes), profile, device, gpu)
    assert as_modelled == pytest.approx(candidate.seconds, rel=1e-4)  # the number of bytes decides the bandwidth
    more = times.modelled_seconds("pjds", 10 * row.bytes_per_mult, profile, device, gpu)
    assert more == pytest.approx(
        10 * row.bytes_per_mult / gpu.bandwidth_of(10 * row.bytes_per_mult, profile.nrows), 0.2
    )
    assert times.modelled_seconds("jds", row.bytes_per_mult, profile, device, gpu) is None


def test_formats_without_a_model_have_a_bound(stencil):
    gpu = find_gpu("h200")
    modelled = {row.name for row in stencil.rows if not row.at_least}
    assert modelled == {PETSC_CSR, "pjds", "evchyb", "csradaptive"}
    nbytes = 10**10
    assert times.least_seconds(nbytes, gpu) == pytest.approx(nbytes / (gpu.bandwidth * gpu.reading))
    assert times.least_seconds(0, gpu) == times.least_seconds(1000, gpu) > 0


def test_the_share_of_the_limit_is_the_time_of_a_copy(stencil):
    for row in stencil.rows:
        assert row.share_of_limit == pytest.approx(row.bytes_per_mult / find_gpu("h200").copy / row.seconds)


def test_storing_pays_after_what_it_costs():
    assert times.pays_after(10.0, 2.0, 4.0) == 5
    assert times.pays_after(10.0, 2.0, 5.0) == 4
    assert times.pays_after(10.0, 4.0, 4.0) is None


def test_each_format_has_a_cost_of_storing():
    assert set(times.BUILD) == set(STORAGE_FORMATS)
    gpu = find_gpu("h200")
    few, many = (times.storing_seconds("pjds", n, n, SCALAR, gpu) for n in (10**3, 10**8))
    assert few == pytest.approx(4.1e-4, rel=0.01) and many > 4 * few


@pytest.mark.parametrize("slower", ["h100", "2.0"])
def test_a_gpu_of_less_bandwidth_takes_longer(stencil, slower):
    other = analysed("7point:52", slower)
    for row, on_h200 in zip(other.rows, stencil.rows, strict=True):
        assert row.seconds >= on_h200.seconds and (row.at_least or row.seconds > on_h200.seconds)
        assert (row.bytes_held, row.padding) == (on_h200.bytes_held, on_h200.padding)


def test_the_pick_is_what_the_type_gpufmt_takes(stencil):
    device = modelled_device(TYPES, find_gpu("h200"))
    chosen = Gpufmt.build(pattern_of(read_source("7point:52", *TYPES), device), device, dict(Gpufmt.default_options))
    assert stencil.pick.name == chosen.stored_as == "pjds"
    assert chosen.decision == f"pjds: {stencil.pick.reason}" and "27 row patterns" in stencil.pick.reason
    assert stencil.pick.estimates == chosen.notes
    assert stencil.paste == "-mat_type pjds -vec_type cuda"


def test_formats_that_are_close_are_named_with_when_they_are_timed():
    n, each = 60_000, 12
    columns = np.random.default_rng(977).integers(n, size=n * each)
    matrix = scipy_sparse.csr_matrix((np.ones(n * each), columns, np.arange(0, n * each + 1, each)), (n, n))
    matrix.sum_duplicates()
    found = analysed(matrix)
    assert len(found.pick.timed) > 1 and found.pick.timed[0] == found.pick.name
    assert found.pick.timed_after > 100
    assert any("timed on the device after" in line for line in lines(found))


def test_blocks_that_are_told():
    found = analysed("27point:8x3")
    assert found.pick.name == "bsr" and found.pick.block_size == 1
    assert found.paste == "-mat_type bsr -mat_bsr_block_size 3 -vec_type cuda"
    assert found.row("bsr").summary.startswith("blocks of 3 x 3") and not found.row("bsr").at_least


def test_blocks_that_have_to_be_told():
    found = analysed(untold_blocks(4, 100))
    assert found.pick.name == "bsr" and found.pick.block_size == 4 and found.pick.without_blocks != "bsr"
    assert found.paste == "-mat_type bsr -mat_bsr_block_size 4 -vec_type cuda"
    (line,) = (line for line in lines(found) if "has to be told" in line)
    assert f"-mat_block_size 4 or MatSetBlockSize(); else it takes {found.pick.without_blocks}" in line


def test_a_long_row_is_not_padded_to():
    found = analysed(with_long_row())
    assert found.pick.name == "evchyb" and "rows of up to 2000 entries" in found.pick.reason
    assert found.row("ellpack").padding > 0.99


def test_rectangles_that_are_mostly_padding_are_not_filled(monkeypatch):
    monkeypatch.setattr(stored, "LARGEST_RECTANGLE", 1000)
    found = analysed(with_long_row())
    for name in ("ellpack", "ellpackr"):
        row = found.row(name)
        assert row.seconds is row.bytes_held is None and row.summary.startswith("rows as long as the longest take")
        assert any(line.startswith(name) and "not stored" in line for line in lines(found))
    assert analysed("7point:5").row("ellpack").bytes_held  # large too, and hardly padded


def test_what_a_format_refuses_is_told(monkeypatch):
    from petsc_gpufmt.formats.jds import Jds

    def refuse(*arguments):
        raise stored.GpufmtError("too large")

    monkeypatch.setattr(Jds, "build", refuse)
    assert analysed("7point:5").row("jds").summary == "too large"


def test_petsc_csr_is_pasted_where_no_format_is_faster(monkeypatch):
    monkeypatch.setattr(times, "CSR_CALL", 0.0)
    found = analysed("7point:5")
    assert found.row(found.pick.name).pays_after is None
    assert found.paste == f"-mat_type {PETSC_CSR} -vec_type cuda"
    assert any(line.startswith("pays") and "never" in line for line in lines(found))


@pytest.mark.parametrize(
    "given",
    [
        "7point:1",
        "7point:8",
        "27point:4x2",
        "powerlaw:3000",
        with_long_row(),
        *map(scipy_sparse.csr_matrix, [(0, 0), (9, 5)]),
    ]
    + [scipy_sparse.random(*shape, 0.05, random_state=977) for shape in ((300, 40), (40, 300))],
    ids=["one", "7-point", "blocks", "power law", "long row", "nothing", "no entries", "tall", "wide"],
)
def test_the_text_fits_a_screen(given):
    found = analysed(given)
    text = list(lines(found))
    assert len(text) < 48 and max(map(len, text)) <= 118
    assert text[0].startswith(f"{found.name}: {found.facts.nrows} x {found.facts.ncols}, {found.facts.nnz} entries")
    assert text[-1] == f"paste      {found.paste}"
    assert [line.split()[0] for line in text if " * " in line] == [found.pick.name, "gpufmt"]
    assert [len(line.split()) for line in text if line.startswith(f"{PETSC_CSR} ")] == [8]
    for row in found.rows:
        if row.seconds and row.name in EFFICIENCY:
            assert row.seconds >= shortest_mult(row.name)


def test_not_a_number_is_reported():
    assert any("2 ARE NAN OR INFINITE" in line for line in lines(analysed(np.array([[np.nan, 1.0], [np.inf, 0.0]]))))


def test_many_lengths_are_cut_in_the_text_alone():
    lengths = 2 ** np.arange(14)
    rowptr = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.concatenate([np.arange(n) for n in lengths])
    found = analysed(scipy_sparse.csr_matrix((np.ones(columns.size), columns, rowptr), (14, 8192)))
    assert found.facts.lengths == (0, *[1] * 14)
    (line,) = (line for line in lines(found) if "longer" in line)
    assert line.split() == ["longer", "2"]
