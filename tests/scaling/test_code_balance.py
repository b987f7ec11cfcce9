"""The equations of Kreutzer et al. 2012, sections II-B and III, against the figures that the paper gives."""

import pytest

from petsc_gpufmt.scaling.code_balance import (
    balanced_nnz_per_row,
    code_balance,
    mult_seconds,
    split_balance,
    transfer_seconds,
)

# rows, entries a row, GF/s of the kernel (pJDS or ELLPACK-R, double precision, ECC) and with the transfers
HMEP, SAMG, DLR1 = (6.2e6, 15, 7.9, 3.7), (3.4e6, 7, 8.5, 2.3), (2.8e5, 144, 12.9, 10.9)


def with_transfers(matrix, bus):
    """GF/s of a product with T_PCI beside the time that the kernel takes."""
    nrows, nnz_per_row, kernel, _ = matrix
    flops = 2 * nrows * nnz_per_row
    return 1e-9 * flops / (flops / (kernel * 1e9) + transfer_seconds(nrows, bus))


def test_code_balance_is_equation_1():
    assert code_balance(7, 1.0) == pytest.approx(6 + 4 + 8 / 7)
    assert code_balance(144, 1 / 144) == pytest.approx(6 + 4 / 144 + 8 / 144)


def test_code_balance_of_single_precision():
    assert code_balance(8, 0.5, scalar_bytes=4) == pytest.approx((4 + 4 + 2 + 8 / 8) / 2)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.01])
def test_alpha_lies_between_one_read_of_x_and_one_for_each_entry(alpha):
    with pytest.raises(ValueError, match=f"alpha {alpha:g}: choose 1 / 7 to 1"):
        code_balance(7, alpha)


def test_a_split_product_moves_8_bytes_over_n_nzr_more():
    for nnz_per_row in (7, 123):
        more = split_balance(nnz_per_row, 0.5) - code_balance(nnz_per_row, 0.5)
        assert more == pytest.approx(8 / nnz_per_row)


def test_the_penalty_of_a_split_product_is_below_a_tenth_for_dlr1_and_uhbr():
    for nnz_per_row in (144, 123):
        assert split_balance(nnz_per_row, 1.0) < 1.1 * code_balance(nnz_per_row, 1.0)


def test_times_are_equation_2():
    nrows, nnz_per_row, alpha = 3.4e6, 7, 0.4
    expected = 8 * nrows / 91e9 * (nnz_per_row * (alpha + 3 / 2) + 2)
    assert mult_seconds(nrows, nnz_per_row, alpha, 91e9) == pytest.approx(expected)
    assert transfer_seconds(nrows, 4e9) == pytest.approx(16 * nrows / 4e9)


def test_thresholds_are_equations_3_and_4():
    for times, ratio, alpha in ((1, 10, 1.0), (10, 20, 0.3)):
        nnz_per_row = balanced_nnz_per_row(times, ratio, alpha)
        product, transfers = mult_seconds(1e6, nnz_per_row, alpha, ratio * 4e9), transfer_seconds(1e6, 4e9)
        assert product == pytest.approx(times * transfers)


def test_thresholds_with_x_read_once():
    for times in (1, 10):
        nnz_per_row = balanced_nnz_per_row(times, 20)
        product = mult_seconds(1e6, nnz_per_row, 1 / nnz_per_row, 80e9)
        assert product == pytest.approx(times * transfer_seconds(1e6, 4e9))


def test_thresholds_of_the_paper():
    """N_nzr of 25 and 7 for more than half, of 80 and 266 for less than a tenth."""
    assert balanced_nnz_per_row(1, 20) == pytest.approx(25, abs=0.5)
    assert balanced_nnz_per_row(1, 10, 1.0) == pytest.approx(7, abs=0.5)
    assert balanced_nnz_per_row(10, 10, 1.0) == pytest.approx(80, abs=1)
    assert balanced_nnz_per_row(10, 20) == pytest.approx(266, rel=0.01)


def test_thresholds_judge_the_matrices_of_the_paper_as_it_does():
    few, many = balanced_nnz_per_row(1, 20), balanced_nnz_per_row(10, 10, 1.0)
    assert HMEP[1] < few and SAMG[1] < few
    assert DLR1[1] > many and 315 > many and 123 > many


def test_the_least_threshold_is_one_entry():
    assert balanced_nnz_per_row(1, 1) == 1


def test_transfers_slow_the_matrices_of_the_paper_down_as_it_says():
    """The bus that explains HMEp explains sAMG and DLR1: 3.7, 2.3 and 10.9 GF/s."""
    nrows, nnz_per_row, kernel, whole = HMEP
    flops = 2 * nrows * nnz_per_row
    bus = 16 * nrows / (flops / (whole * 1e9) - flops / (kernel * 1e9))
    assert bus == pytest.approx(3.7e9, rel=0.02)
    for matrix in (SAMG, DLR1):
        assert with_transfers(matrix, bus) == pytest.approx(matrix[3], rel=0.03)
