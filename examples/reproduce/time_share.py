"""A share of the time limit for what several parts show, so that time is left to show it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from report import Setting

SHARE = 0.8


def share_is_over(setting: Setting, what: str) -> bool:
    """Whether SHARE of the time that was left at the first call for `what` has passed."""
    now = time.perf_counter()
    return now > setting.kept.setdefault(f"end of {what}", now + SHARE * (setting.deadline - now))
