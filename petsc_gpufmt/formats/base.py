"""What every storage format offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.plan import Launch, Operation

if TYPE_CHECKING:
    from petsc_gpufmt.backend import Backend
    from petsc_gpufmt.csr import CsrPattern


@dataclass(frozen=True)
class Stats:
    """Sizes of a stored matrix.

    Attributes
    ----------
    nnz : entries of the matrix
    nstored : nnz + padding
    fill_ratio : padding / nstored
    bytes_held : bytes of all arrays
    bytes_per_product : bytes that z = A x must move: stored values and indices, row data, x and z once
    nonempty_rows : rows with at least one entry
    """

    nnz: int
    nstored: int
    fill_ratio: float
    bytes_held: int
    bytes_per_product: int
    nonempty_rows: int


class Format(ABC):
    """A matrix pattern stored in one format on one backend; values enter by the REFRESH plan."""

    name: ClassVar[str]
    """As in ``-mat_type <name>``, and the stem of all files of the format."""

    default_options: ClassVar[dict[str, int]]

    @classmethod
    @abstractmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, int]) -> Format:
        """Store the pattern `csr`, whose arrays live on `backend`; `options` has all keys of `default_options`."""

    @abstractmethod
    def plan(self, operation: Operation) -> list[Launch]:
        """Launches that carry out `operation`; empty where there is nothing to do."""

    @abstractmethod
    def stats(self) -> Stats:
        """Sizes, see Stats."""

    @abstractmethod
    def summary(self) -> str:
        """The parameters in words, for MatView()."""

    @abstractmethod
    def reference(self, x: Any, y: Any = None) -> Any:
        """A x, or y + A x: slow and readable, over the stored arrays; NumPy in and out. The oracle of the tests."""


def parse_options(cls: type[Format], text: str) -> dict[str, int]:
    """Options from "name=value;...", with the defaults of `cls` for the others."""
    options = dict(cls.default_options)
    for item in filter(None, text.split(";")):
        key, _, value = item.partition("=")
        if key not in options:
            raise OptionError(
                f"-mat_{cls.name}_{key} is not an option: "
                f"there are {', '.join(f'-mat_{cls.name}_{k}' for k in options)}"
            )
        options[key] = int(value)
    return options
