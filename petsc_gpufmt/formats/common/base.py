"""What every storage format offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from petsc_gpufmt.backends.plan import Fused, Launch, Operation
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.option_value import option_value, option_word
from petsc_gpufmt.tuned_options import tuned

if TYPE_CHECKING:
    from petsc_gpufmt.backends.backend import Backend
    from petsc_gpufmt.formats.common.known import Known
    from petsc_gpufmt.patterns.csr import CsrPattern


class Stats(NamedTuple):
    """Sizes of a stored matrix.

    Attributes
    ----------
    nnz : entries of the matrix
    nstored : nnz + padding
    fill_ratio : padding / nstored
    bytes_held : bytes of all arrays
    bytes_per_mult : bytes that z = A x must move: stored values and indices, row data, x and z once
    nonempty_rows : rows with at least one entry
    """

    nnz: int
    nstored: int
    fill_ratio: float
    bytes_held: int
    bytes_per_mult: int
    nonempty_rows: int


class Format(ABC):
    """A matrix pattern stored in one format on one backend; values enter by the REFRESH plan."""

    name: ClassVar[str]
    """As in ``-mat_type <name>``, and the stem of all files of the format."""

    default_options: ClassVar[dict[str, int | str]]

    words: ClassVar[dict[str, tuple[str, ...]]] = {}
    """The words of each option that is a choice and not a quantity, the default first."""

    replan_after: int = 0
    """Mults after which the planner is to call `rebuild` with the same pattern; 0: never."""

    @property
    def stored_as(self) -> str:
        """Name of the format that the arrays are in: `name`, but for a format that delegates to another."""
        return self.name

    @classmethod
    def accepted_options(cls) -> dict[str, int | str]:
        """What `parse_options` takes, with defaults: `default_options`, and for a format that makes others, theirs."""
        return cls.default_options

    @classmethod
    @abstractmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any]) -> Format:
        """Store the pattern `csr`, whose arrays live on `backend`; `options` has all keys of `default_options`."""

    @classmethod
    def build_knowing(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any], known: Known) -> Format:
        """As `build`, with what is known of the pattern, which a format may look at another way."""
        return cls.build(csr, backend, options)

    @classmethod
    def rebuild(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any]) -> Format:
        """As `build`, for a pattern that has been multiplied `replan_after` times and so is worth more care."""
        return cls.build(csr, backend, options)

    def plan(self, operation: Operation) -> list[Launch]:
        """Launches that carry out `operation`; empty where there is nothing to do."""
        if operation is Operation.REFRESH:
            return self.refresh()
        if operation is Operation.DIAGONAL:
            return self.diagonal()
        if operation is Operation.ADD:
            return self.add()
        return self.mult(alpha=1.0, beta=1.0 if operation is Operation.MULTADD else 0.0)

    @classmethod
    def with_words(cls, options: dict[str, Any]) -> dict[str, Any]:
        """`options` with choices as they are spelled in `words`. OptionError for a choice that is not offered."""
        chosen = {
            name: option_word(_flag(cls, name), options[name], words)
            for name, words in cls.words.items()
            if name in options and options[name] not in words
        }
        return {**options, **chosen} if chosen else options

    @classmethod
    def measured(cls, backend: Backend, key: str) -> dict[str, Any]:
        """The options measured best for `key` on the GPU of `backend`, if any were."""
        return cls.with_words(tuned(backend, cls.name, key))

    @classmethod
    def with_measured(cls, options: dict[str, Any], csr: CsrPattern, backend: Backend) -> dict[str, Any]:
        """`options`, in place of the defaults what was measured best. OptionError for a choice that is not offered."""
        options, best = cls.with_words(options), cls.measured(backend, cls.tuning_key(csr))
        if not best:
            return options
        return {
            name: best.get(name, value) if value == cls.default_options[name] else value
            for name, value in options.items()
        }

    @classmethod
    def tuning_key(cls, csr: CsrPattern) -> str:
        """Matrices of one key take the same options from `petsc_gpufmt.tuned_options`."""
        return ""

    @classmethod
    def tuning_space(cls, csr: CsrPattern) -> list[dict[str, int | str]]:
        """Options worth trying for the key of `csr` in a search for the fastest; empty if there are none to choose."""
        return []

    @abstractmethod
    def mult(self, alpha: float, beta: float) -> list[Launch]:
        """z = alpha A x + beta y, with z, x and y in their slots; y is not read if beta is 0, and z may be y."""

    def add(self) -> list[Launch]:
        """z = z + A x, with z in the slots of z and y; rows without entries need not be looked at."""
        return self.mult(alpha=1.0, beta=1.0)

    def fused(self, operation: Fused) -> list[Launch] | None:
        """The launch of `operation`; none where there is nothing to do, None if the format does not offer it."""
        return None

    @abstractmethod
    def diagonal(self) -> list[Launch]:
        """z[i] = A[i, i] for all rows, 0 where there is no entry; repeated entries add up."""

    @abstractmethod
    def refresh(self) -> list[Launch]:
        """The CSR values of slot VALUES into the format."""

    @abstractmethod
    def stats(self) -> Stats:
        """Sizes, see Stats."""

    @abstractmethod
    def summary(self) -> str:
        """The parameters in words, for MatView()."""

    def detail(self) -> str:
        """More lines for MatView() with ``ascii_info_detail``, without a newline at the end; may be empty."""
        return ""

    @abstractmethod
    def reference(self, x: Any, y: Any = None) -> Any:
        """A x, or y + A x: slow and readable, over the stored arrays; NumPy in and out. The oracle of the tests."""


def parse_options(cls: type[Format], text: str) -> dict[str, Any]:
    """Options from "name=value;...", the others by default. OptionError for what `cls` does not take."""
    options = dict(cls.default_options)
    if not text:
        return options
    accepted = cls.accepted_options()
    for item in filter(None, text.split(";")):
        key, _, value = item.partition("=")
        if key not in accepted:
            kin = [k for k in accepted if k.partition(".")[0] == key.partition(".")[0] and "." in key]
            known = ", ".join(_flag(cls, k) for k in kin or cls.default_options)
            raise OptionError(f"{_flag(cls, key)} is not an option: there are {known}")
        options[key] = option_value(_flag(cls, key), value, accepted[key])
    return options


def _flag(cls: type[Format], key: str) -> str:
    """As users write an option: -mat_pjds_sigma_window, for a key of `cls` or for "pjds.sigma_window"."""
    return f"-mat_{key.replace('.', '_')}" if "." in key else f"-mat_{cls.name}_{key}"
