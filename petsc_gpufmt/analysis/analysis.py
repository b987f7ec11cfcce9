"""All that is said of a matrix: its facts, a row for each format, what `-mat_type gpufmt` takes, what to paste."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from petsc_gpufmt.analysis.facts import Facts, find_facts, pattern_of
from petsc_gpufmt.analysis.source import Source
from petsc_gpufmt.analysis.stored import BSR, Stored, store_all
from petsc_gpufmt.analysis.times import (
    least_seconds,
    modelled_seconds,
    pays_after,
    petsc_csr_seconds,
    share_of_limit,
    storing_seconds,
)
from petsc_gpufmt.choice.gpufmt import Gpufmt
from petsc_gpufmt.choice.model import csr_bytes, rank, worth_timing
from petsc_gpufmt.choice.profile import Profile
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.scaling.machine import Gpu, ModelledDevice

PETSC_CSR = "aijcusparse"


@dataclass(frozen=True)
class FormatRow:
    """One format, or PETSc's CSR. What is not known is None.

    Attributes
    ----------
    name : of the matrix type
    nstored, padding : entries with padding, and its share of them
    bytes_held, bytes_per_mult : counted: of all arrays, and those that a product moves
    seconds : of a product, predicted
    at_least : whether `seconds` is a bound: the model does not know the format
    share_of_limit : the time of a copy of `bytes_per_mult` over `seconds`
    storing_seconds : of building it on the device and filling in values, predicted
    pays_after : products after which this has paid off against PETSc's CSR; None also if it never does
    summary : parameters in words, or why the matrix is not stored
    """

    name: str
    nstored: int | None
    padding: float | None
    bytes_held: int | None
    bytes_per_mult: int | None
    seconds: float | None
    at_least: bool
    share_of_limit: float | None
    storing_seconds: float | None
    pays_after: int | None
    summary: str


@dataclass(frozen=True)
class Pick:
    """What `-mat_type gpufmt` takes.

    Attributes
    ----------
    name : of the format
    reason : its own words
    estimates : lines from which it was chosen
    timed : formats that it would time on the device, as the model finds them close; empty if none
    timed_after : products after which it would
    block_size : that has to be told for this, by MatSetBlockSize() or an option; 1: none
    without_blocks : what it takes if no block size is told
    """

    name: str
    reason: str
    estimates: tuple[str, ...]
    timed: tuple[str, ...]
    timed_after: int
    block_size: int
    without_blocks: str


@dataclass(frozen=True)
class Analysis:
    """Of one matrix on one GPU; `rows` has PETSc's CSR first, `paste` are options of a program."""

    name: str
    gpu: Gpu
    scalar: str
    index: str
    facts: Facts
    rows: tuple[FormatRow, ...]
    pick: Pick
    paste: str

    def row(self, name: str) -> FormatRow:
        return next(row for row in self.rows if row.name == name)


def modelled_device(types: tuple[Any, Any], gpu: Gpu) -> ModelledDevice:
    """The host, where formats take the parameters that they would take on `gpu`, measured ones among them."""
    device = ModelledDevice(*types, gpu.resident_threads)
    device.model = gpu.name
    return device


def analyse(source: Source, types: tuple[Any, Any], gpu: Gpu) -> Analysis:
    """All of it; `types` are the dtypes of values and indices of PETSc."""
    device = modelled_device(types, gpu)
    csr = pattern_of(source, device)
    facts = find_facts(source, csr, device)
    pick, told = choose(csr, facts, device)
    profile = Profile.of(told, device)
    block_size = blocks_of(told, profile)
    petsc = petsc_row(profile, device, gpu)
    rows = [format_row(stored, profile, petsc, device, gpu) for stored in store_all(told, device, block_size)]
    pays = next(row for row in rows if row.name == pick.name).pays_after is not None
    return Analysis(
        source.name,
        gpu,
        device.scalar.name,
        device.index.name,
        facts,
        (petsc, *rows),
        pick,
        paste_line(pick.name if pays else PETSC_CSR, block_size if pick.name == BSR and pays else 1),
    )


def choose(csr: CsrPattern, facts: Facts, device: ModelledDevice) -> tuple[Pick, CsrPattern]:
    """What `gpufmt` takes, and the pattern for which it does: with block sizes if it takes BSR for these alone."""
    pick = picked(csr, device)
    if facts.told_block == 1 and facts.block_size > 1 and pick.name != BSR:
        told = replace(csr, row_block=facts.block_size, col_block=facts.block_size)
        with_blocks = picked(told, device)
        if with_blocks.name == BSR:
            return replace(with_blocks, block_size=facts.block_size, without_blocks=pick.name), told
    return pick, csr


def picked(csr: CsrPattern, device: ModelledDevice) -> Pick:
    chosen = Gpufmt.build(csr, device, dict(Gpufmt.default_options))
    timed = worth_timing(rank(Profile.of(csr, device), device)) if chosen.replan_after else []
    name = chosen.stored_as
    reason = chosen.decision.removeprefix(f"{name}: ")
    return Pick(name, reason, chosen.notes, tuple(c.name for c in timed), chosen.replan_after, 1, name)


def blocks_of(csr: CsrPattern, profile: Profile) -> int:
    """The block size with which BSR is stored: that which is told, else that which a profile has found."""
    if csr.row_block > 1:
        return csr.row_block
    rows, columns = profile.block_shape
    return rows if rows == columns else 1


def petsc_row(profile: Profile, device: ModelledDevice, gpu: Gpu) -> FormatRow:
    """PETSc's CSR on a GPU, which is there without storing anything."""
    nbytes = csr_bytes(profile, device)
    held = nbytes - (profile.nrows + profile.ncols) * device.scalar.itemsize
    seconds = petsc_csr_seconds(nbytes, profile.nrows, gpu)
    share = share_of_limit(nbytes, seconds, gpu)
    return FormatRow(
        PETSC_CSR, profile.nnz, 0.0, held, nbytes, seconds, False, share, 0.0, None, "CSR of PETSc, by cuSPARSE"
    )


def format_row(stored: Stored, profile: Profile, petsc: FormatRow, device: ModelledDevice, gpu: Gpu) -> FormatRow:
    """What was counted, and what is predicted from it."""
    stats, name = stored.stats, stored.name
    if stats is None:
        return FormatRow(name, None, None, None, None, None, False, None, None, None, stored.summary)
    nbytes = stats.bytes_per_mult
    modelled = modelled_seconds(name, nbytes, profile, device, gpu) if nbytes else None
    seconds = modelled or least_seconds(nbytes, gpu)
    storing = storing_seconds(name, stats.nnz, stats.nstored, device.scalar.itemsize, gpu)
    return FormatRow(
        name,
        stats.nstored,
        stats.fill_ratio,
        stats.bytes_held,
        nbytes,
        seconds,
        modelled is None,
        share_of_limit(nbytes, seconds, gpu),
        storing,
        pays_after(storing, seconds, petsc.seconds or 0.0) if stats.nnz else None,
        stored.summary,
    )


def paste_line(name: str, block_size: int) -> str:
    """Options of a program that creates its matrices and vectors by MatSetFromOptions and VecSetFromOptions."""
    blocks = [f"-mat_bsr_block_size {block_size}"] if block_size > 1 else []
    return " ".join([f"-mat_type {name}", *blocks, "-vec_type cuda"])
