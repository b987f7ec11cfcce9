"""Why lines of the committed results are not reached, for the page: docs/reproduction.md has it at length."""

from __future__ import annotations

import re
from typing import NamedTuple


class Reason(NamedTuple):
    """What holds for lines of one paper: patterns of the names of its parts and of its lines, and the words."""

    paper: str
    part: str
    line: str
    words: str


BUILT = "built: what couples its rows is not published"
HASHING = "peers multiply by hashing now, which is faster than merging here"
BETTER_HASHING = "peers multiply by hashing now, too"
FEWER = "of 13 matrices, some of them built"
SMALL = "launches and waits, which small products have most of"

REASONS = (
    Reason("cg_cevahir_2009", "figure-4", "over CSR", "the cache holds what a scalar CSR kernel reads again"),
    Reason("cg_cevahir_2009", "figure-4", "slower than the average", "built: its columns lie near to each other"),
    Reason("cg_cevahir_2009", "figure-4", "bandwidth", "small products, which launches bound"),
    Reason("cg_cevahir_2009", "figure-5", "speed-up", "iterations of 25 to 80 us, some 30 more to wait for others"),
    Reason("evchyb_guo_2016", "figure-3", "speed-up", "cuSPARSE's CSR balances its rows now"),
    Reason("evchyb_guo_2016", "figure-4", "loss", "a pass is a launch, which short products see"),
    Reason("evchyb_guo_2016", "figure-13", "T_total", "differences of a few microseconds, in the cache"),
    Reason("ksparse_abdelfattah_2016", "", "cuSPARSE-BSR", "cuSPARSE's BSR is better now"),
    Reason("ksparse_abdelfattah_2016", "", "cuSPARSE-HYB", "CSR of today stands for it, and balances rows"),
    Reason("ksparse_abdelfattah_2016", "", "MAGMA-SELLP", "sellcuda or pjds stand for it, whichever is faster"),
    Reason("ksparse_abdelfattah_2016", "", "fastest from blocks", "lanes of a warp are idle at 7 rows, most likely"),
    Reason("ksparse_abdelfattah_2016", "section-6.4", "petsc", "the nonlocal part is launched over all block rows"),
    Reason(
        "ksparse_abdelfattah_2016", "section-6.4", "cyclic", "neighbours are apart: much of x comes from the other GPU"
    ),
    Reason("pjds_kreutzer_2012", "table-1-storage", "HMEp", "its modes are not published"),
    Reason("pjds_kreutzer_2012", "table-1$", "pJDS over", "sorting parts rows that share x, most likely"),
    Reason("pjds_kreutzer_2012", "figure-5", "32 nodes", "products are 20 times as fast as then, the network is not"),
    Reason("rmerge_gremse_2015", "figure-3.1", "width", "16 lanes have merged more in a step here; not looked into"),
    Reason("rmerge_gremse_2015", "figure|table-3.1", "RMerge over|RMerge is the fastest", HASHING),
    Reason("rmerge_gremse_2015", "figure", "our choice over|our choice is the fastest", BETTER_HASHING),
    Reason("rmerge_gremse_2015", "table-1.1", "", BUILT),
    Reason("rmerge_gremse_2015", "table-3.1", "compression", BUILT),
    Reason("rmerge_gremse_2015", "table-3.1", "first product$|its set-up$", SMALL),
    Reason("rmerge_gremse_2015", "figure-3.3", "Pearson", FEWER),
    Reason("rmerge_gremse_2015", "figure-3.4", "strongest compression", FEWER),
    Reason("rmerge_gremse_2015", "section-3.4", "with the splitting", "its two products cost more than it saves"),
)


def reason_of(paper: str, part: str, line: str) -> str:
    """The words for a line that is not reached; empty where there are none, as in results of one's own."""
    for reason in REASONS:
        if reason.paper == paper and re.search(reason.part, part) and re.search(reason.line, line):
            return reason.words
    return ""
