"""Bytes for each flop of a product, and transfers of vectors: models of one device in two papers.

Equations (1) to (4) of Kreutzer et al. 2012, sections II-B and III, and the code balance of EVC-HYB, by Guo, Gropp and
Olson 2016, section 3.2, which adds padding and the flops of alpha A x + beta y.

N_nzr are the entries of a row on average. alpha is the share of the reads of x that go to memory: 1 if nothing is
reused, 1 / N_nzr if each entry of x is read once. ELLPACK-R and pJDS move the same bytes, padding left out. Sizes are
those of double precision with 32-bit columns unless others are given. beta, of EVC-HYB, is the share of the entries in
what is stored with padding.
"""

from __future__ import annotations

SCALAR_BYTES, INDEX_BYTES = 8, 4


def code_balance(
    nnz_per_row: float, alpha: float, scalar_bytes: float = SCALAR_BYTES, index_bytes: float = INDEX_BYTES
) -> float:
    """Bytes a flop of a product, equation (1): a value, a column and alpha of x for two flops, and 2 words a row.

    6 + 4 alpha + 8 / N_nzr in double precision. ValueError unless 1 / N_nzr <= alpha <= 1.
    """
    if not 1 / nnz_per_row <= alpha <= 1:
        raise ValueError(f"alpha {alpha:g}: choose 1 / {nnz_per_row:g} to 1")
    return (scalar_bytes + index_bytes + scalar_bytes * alpha + 2 * scalar_bytes / nnz_per_row) / 2


def split_balance(
    nnz_per_row: float, alpha: float, scalar_bytes: float = SCALAR_BYTES, index_bytes: float = INDEX_BYTES
) -> float:
    """Bytes a flop of a product in a local and a nonlocal part, section III-A: z is read and written once more.

    That is 8 / N_nzr more in double precision.
    """
    return code_balance(nnz_per_row, alpha, scalar_bytes, index_bytes) + scalar_bytes / nnz_per_row


def mult_seconds(nrows: float, nnz_per_row: float, alpha: float, bandwidth: float) -> float:
    """T_MVM of equation (2): 8 N / B (N_nzr (alpha + 3/2) + 2); `bandwidth` of the device's memory in bytes/s."""
    return code_balance(nnz_per_row, alpha) * 2 * nrows * nnz_per_row / bandwidth


def transfer_seconds(nrows: float, bandwidth: float) -> float:
    """T_PCI of equation (2): x goes to the device and z comes back, 16 N bytes over a bus of `bandwidth` bytes/s."""
    return 2 * SCALAR_BYTES * nrows / bandwidth


def balanced_nnz_per_row(times: float, bandwidth_ratio: float, alpha: float | None = None) -> float:
    """N_nzr at which T_MVM is `times` T_PCI, where the memory is `bandwidth_ratio` times as fast as the bus.

    Equation (3) has 1: with fewer entries, transfers take more than half of the time. Equation (4) has 10: with more,
    they take less than a tenth of T_MVM. (2 times ratio - 2) / (alpha + 3/2); for alpha None, x is read once, and alpha
    is 1 / N_nzr.
    """
    if alpha is None:
        return max(1.0, (2 * times * bandwidth_ratio - 3) / 1.5)
    return (2 * times * bandwidth_ratio - 2) / (alpha + 1.5)


def hybrid_bytes(nnz_per_row: float, alpha: float, beta: float) -> float:
    """TBytes of an entry: 12 / beta + 8 alpha + 16 / N_nzr. ValueError for alpha below 0, beta outside of 0 to 1."""
    if not (0 <= alpha < float("inf") and 0 < beta <= 1 and nnz_per_row > 0):
        raise ValueError(f"alpha {alpha:g}, beta {beta:g}, N_nzr {nnz_per_row:g}: choose at least 0, 0 to 1, above 0")
    return (SCALAR_BYTES + INDEX_BYTES) / beta + SCALAR_BYTES * alpha + 2 * SCALAR_BYTES / nnz_per_row


def hybrid_flops(nnz_per_row: float) -> float:
    """TFlops of an entry: 2, and 3 for each row."""
    return 2 + 3 / nnz_per_row


def hybrid_balance(nnz_per_row: float, alpha: float, beta: float) -> float:
    """Bytes a flop of a product in EVC-HYB, B of section 3.2; alpha may be above 1, as a sector has four entries."""
    return hybrid_bytes(nnz_per_row, alpha, beta) / hybrid_flops(nnz_per_row)


def measured_alpha(volume: float, nnz: float, nnz_per_row: float, beta: float) -> float:
    """alpha of a product that moved `volume` bytes: (V / (2 NNZ) - 6 / beta - 8 / N_nzr) / 4, section 3.2.

    Below 0 where less was moved than the entries have, as of a matrix that a cache holds or with shorter columns.
    """
    return (volume / nnz - hybrid_bytes(nnz_per_row, 0.0, beta)) / SCALAR_BYTES


def most_flops(balance: float, bandwidth: float) -> float:
    """P_max of section 3.2, flops in a second where `bandwidth` bytes are moved: b / B."""
    return bandwidth / balance
