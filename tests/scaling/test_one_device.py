"""The papers' models of one device: figures of the papers, what ncu counted, and the command."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("scipy.sparse")

from petsc_gpufmt.choice.profile import Profile  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402
from petsc_gpufmt.errors import UnsupportedError  # noqa: E402
from petsc_gpufmt.scaling import ncu, one_device  # noqa: E402
from petsc_gpufmt.scaling.code_balance import code_balance, hybrid_balance, measured_alpha  # noqa: E402
from petsc_gpufmt.scaling.latency import MATRIX_LEVELS, X_LEVELS, mean_latency  # noqa: E402
from petsc_gpufmt.scaling.ncu import METRICS, Counted, read_counts  # noqa: E402

GOOGLE = (5105039, 916428, 4.93)  # web-Google: entries, rows and alpha of figure 10


def test_balance_of_web_google_is_the_papers():
    nnz, nrows, alpha = GOOGLE
    assert hybrid_balance(nnz / nrows, alpha, 1 / 1.0009) == pytest.approx(21.4, abs=0.2)


def test_alpha_is_what_the_volume_has_more_than_matrix_and_y():
    nnz, nrows, alpha = GOOGLE
    mean, beta = nnz / nrows, 0.9
    volume = (12 / beta + 8 * alpha) * nnz + 16 * nrows
    assert measured_alpha(volume, nnz, mean, beta) == pytest.approx(alpha)
    assert measured_alpha(1.0, nnz, mean, beta) < 0
    assert hybrid_balance(mean, alpha, beta) == pytest.approx(volume / (2 * nnz + 3 * nrows))


@pytest.mark.parametrize(
    ("alpha", "beta", "mean"), [(-0.1, 1, 7), (float("nan"), 1, 7), (1, 0, 7), (1, 1.1, 7), (1, 1, 0)]
)
def test_what_no_product_has_is_refused(alpha, beta, mean):
    with pytest.raises(ValueError, match="choose at least 0, 0 to 1, above 0"):
        hybrid_balance(mean, alpha, beta)


def test_latencies_of_the_paper():
    """C_X of web-Google with the least hits, of 1.95 % and 39.33 %; C_A with 6.48 % of hits in the second level."""
    assert mean_latency(0.0195, 0.3933, X_LEVELS) == pytest.approx(444, abs=1)
    assert mean_latency(0.0, 0.0648, MATRIX_LEVELS) == pytest.approx(580, abs=5)
    for rates in ((-0.1, 0.5), (0.5, 1.1), (float("nan"), 0.5)):
        with pytest.raises(ValueError, match="choose a share from 0 to 1"):
            mean_latency(*rates, X_LEVELS)


def test_formats_load_padding_or_leave_it_out():
    profile = Profile(1000, 1000, 10_000, longest=20, long_rows=10)
    ellpack, ellpackr, pjds, evchyb = one_device.format_models(profile, 0.5, 4e12)
    assert ellpackr.balance == pjds.balance == code_balance(10, 0.5)
    assert ellpack.beta == 0.5 and ellpack.balance == pytest.approx(code_balance(10, 0.5) + 6)
    assert evchyb.beta == pytest.approx(10_000 / 10_160) and evchyb.seconds > pjds.seconds
    assert pjds.least == code_balance(10, 0.1) and pjds.worst == code_balance(10, 1.0)
    assert pjds.flops == pytest.approx(2 * profile.nnz / pjds.seconds)


WIDE = """==PROF== Connected to process 1
"ID","Kernel Name","dram__bytes.sum","l1tex__t_sector_hit_rate.pct","lts__t_sector_hit_rate.pct"
"","","Mbyte","%","%"
"0","void evchyb_spmv<8, 8, 1>(EvcHyb, const double *)","1,200.5","40","50"
"1","void evchyb_spmv<8, 8, 1>(EvcHyb, const double *)","1,100.5","42","50"
"2","void evchyb_without_x<8, 8, 1>(EvcHyb)","900","0","10"
"3","evchyb_without_values","500","80","60"
"""
LONG = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n' + "".join(
    f'"0","evchyb_spmv(EvcHyb)","{name}","{unit}","{value}"\n'
    for name, unit, value in zip(
        (*METRICS, "other"), ("byte", "%", "%", "x"), ("220,000,000", "30", "40", "n/a"), strict=True
    )
)


def test_both_forms_of_the_profilers_csv_are_read(tmp_path):
    (path := tmp_path / "ncu.csv").write_text(WIDE)
    counts = read_counts(path)
    assert counts["evchyb_spmv"] == pytest.approx(Counted(2, 1150.5e6, 0.41, 0.5))
    assert one_device.hits_of(counts) == ((0.8, 0.6), (0.0, 0.1))
    path.write_text(LONG)
    assert read_counts(path) == {"evchyb_spmv": Counted(1, 220e6, 0.3, 0.4)}
    assert one_device.hits_of(read_counts(path)) == ((0.3, 0.4), (0.3, 0.4)) and one_device.hits_of({}) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no line has the column 'Kernel Name'"),
        (f'"ID","Kernel Name","{"x" * 140_000}"', "it is no CSV (field larger than field limit (131072))"),
        (WIDE[:-40], "is no count of bytes or percentage"),
        (WIDE.replace('"900"', '"nan"'), "'nan' Mbyte is no count"),
        (WIDE.replace('"80"', '"180"'), "a hit rate of 180 %"),
        (WIDE.replace("Mbyte", "furlong"), "furlong is no count"),
        (WIDE.replace("Mbyte", "fur\nlong" + "g" * 9999), "fur longggggg"),
        (LONG.replace("Metric Value", "Value"), "'' byte is no count"),
        (LONG.replace("evchyb_spmv(", "(", 1), " has no l1tex"),
        (
            WIDE.replace("dram__bytes.sum", "dram"),
            "evchyb_spmv has no dram__bytes.sum; ask for --metrics dram__bytes.sum,",
        ),
        (LONG.replace("220,000,000", "-3"), "'-3' byte is no count"),
    ],
)
def test_damaged_counts_are_refused_in_one_line(tmp_path, text, complaint, capsys):
    (path := tmp_path / "ncu.csv").write_text(text)
    with pytest.raises(UnsupportedError) as error:
        read_counts(path)
    assert complaint in str(error.value)
    assert main(["model", "7point:9", "--ncu", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["7point:9"], "ncu.csv: kernels are other; profile evchyb_spmv, as of bench parts"),
        (["7point:9", "largest"], "ncu.csv: it has more than 0 MiB; profile fewer launches"),
    ],
)
def test_other_kernels_and_too_many_are_refused_in_one_line(tmp_path, monkeypatch, capsys, words, complaint):
    (path := tmp_path / "ncu.csv").write_text(LONG.replace("evchyb_spmv(", "other("))
    if words.pop() == "largest":
        monkeypatch.setattr(ncu, "LARGEST_FILE", 9)
    assert main(["model", "7point:9", "--ncu", str(path)]) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1


def test_rows_without_entries_are_not_what_the_models_are_for(tmp_path, capsys):
    (path := tmp_path / "thin.mtx").write_text("%%MatrixMarket matrix coordinate real general\n9 9 1\n1 1 1.0\n")
    assert main(["model", str(path), "--one-device", "--gpu", "h200"]) == 2
    error = capsys.readouterr().err
    assert "it has less than an entry a row" in error and error.count("\n") == 1


def test_command_shows_all_models(tmp_path, capsys):
    (tmp_path / "ncu.csv").write_text(WIDE)
    words = ["model", "27point:128", "--gpu", "h200", "--bus", "50", "--ncu", str(tmp_path / "ncu.csv")]
    assert main([*words, "--json", str(tmp_path / "model.json")]) == 0
    output = capsys.readouterr().out
    for text in (
        "pJDS",
        "x and z over 50 GB/s take 671.1 us",
        "1150.5 MB moved: alpha",
        "C_X 162 cycles",
        "C_A 563 for",
    ):
        assert text in output, output
    found = json.loads((tmp_path / "model.json").read_text())
    assert found["matrix"] == "27point:128" and [m["name"] for m in found["formats"]][-1] == "EVC-HYB"
    assert found["volume"]["nbytes"] == 1150.5e6 and found["transfers"]["seconds"] == pytest.approx(671.1e-6, rel=1e-3)
    assert main(["model", "7point:64", "--hit-rates", "85,60,0,5", "--volume", "3e7", "--alpha", "1"]) == 0
    output = capsys.readouterr().out
    assert "alpha 1;" in output and "30.0 MB moved" in output and "C_X 149 cycles" in output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--bus", "0"], "--bus 0: give a number above 0"),
        (["--bus", "nan"], "--bus nan: give a number above 0"),
        (["--bus", "1e300"], "--bus 1e+300: give a number above 0 and up to 1e+06"),
        (["--volume", "-1"], "--volume -1: give a number above 0"),
        (["--volume", "inf"], "--volume inf: give"),
        (["--alpha", "1.5"], "--alpha 1.5: give 1 / N_nzr"),
        (["--alpha", "0.01"], "--alpha 0.01: x is read once at least, which is 0.1"),
        (["--hit-rates", "1,2,3"], "--hit-rates 1,2,3: give four percentages"),
        (["--hit-rates", "1,2,3,nan"], "--hit-rates 1,2,3,nan: give four percentages"),
        (["--hit-rates", "1,2,3,101"], "give four percentages"),
        (["--ncu", "absent.csv"], "--ncu absent.csv: it cannot be read"),
        (["--ncu", "absent.csv", "--volume", "5"], "leave --volume and --hit-rates out"),
        (["--one-device", "--weak"], "--one-device: it has no --ranks, --mode or --weak"),
        (["--one-device", "--json", "/proc/none/model.json"], "--json /proc/none/model.json: "),
    ],
)
def test_bad_arguments_of_one_device_are_one_line(capsys, words, text):
    assert main(["model", "7point:9", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("petsc_gpufmt: ") and text in error and error.count("\n") == 1
