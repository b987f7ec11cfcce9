"""What is known of a pattern before it is stored, so that a format does not look at it once more."""

from __future__ import annotations

from typing import Any, NamedTuple


class Known(NamedTuple):
    """What the choice of a format has found on its way, beyond the counts of the rows.

    Attributes
    ----------
    sought_patterns : whether row patterns were looked for
    patterns : RowPatterns of the rows in their order; None if there are none, or were not looked for
    blocks : Blocks of formats/bsr/layout.py for the block sizes of the matrix; None if not counted
    """

    sought_patterns: bool = False
    patterns: Any = None
    blocks: Any = None


NOTHING = Known()
