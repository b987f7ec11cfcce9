"""The structures of native/gpufmt_plan.h, field by field; those of multigrid are in multigrid_abi.py, those of
Krylov solvers in krylov_abi.py."""

from __future__ import annotations

import ctypes as c
import enum
import struct
from array import array
from collections.abc import Sequence
from typing import Any

from petsc_gpufmt.backends.plan import WORD_OF, Launch, Operation, PeerStep, Slot

ABI_VERSION = 21
BACKENDS = ("host", "cuda")


class Ask(enum.IntEnum):
    """What the planner is asked for."""

    STORE = 0
    PRODUCT = 1
    ENTRY_SUM = 2
    UNION = 3
    SCALE_AND_ADD = 4
    AGGREGATES = 5
    TENTATIVE = 6
    COO = 7
    SMOOTHED = 8
    START_VECTOR = 9
    PARALLEL_AGGREGATES = 10
    ELSEWHERE = 11
    PARALLEL_TENTATIVE = 12
    GATHER = 13
    GRAPH = 14
    OUTSIDE = 15
    PARALLEL_SMOOTHED = 16
    PEER = 17
    JACOBI = 18
    KRYLOV = 19
    LOOP = 20
    FUSED = 21
    LENGTHS = 22


class LaunchStruct(c.Structure):
    _fields_ = [
        ("function", c.c_void_p),
        ("grid", c.c_uint32 * 3),
        ("block", c.c_uint32 * 3),
        ("shared_bytes", c.c_uint32),
        ("nwords", c.c_int32),
        ("nparams", c.c_int32),
        ("words", c.POINTER(c.c_uint64)),
        ("slots", c.POINTER(c.c_int32)),
        ("params", c.POINTER(c.c_void_p)),
    ]


class PlanStruct(c.Structure):
    _fields_ = [("nlaunches", c.c_int64), ("launches", c.POINTER(LaunchStruct))]


class PlaceStruct(c.Structure):
    _fields_ = [
        ("backend", c.c_int32),
        ("device", c.c_int32),
        ("index_bytes", c.c_int32),
        ("scalar_bytes", c.c_int32),
        ("is_complex", c.c_int32),
        ("stream", c.c_void_p),
    ]


class OutcomeStruct(c.Structure):
    _fields_ = [
        ("token", c.c_int64),
        ("error", c.c_int32),
        ("interrupted", c.c_int32),
        ("entering", c.c_int32),
        ("message", c.c_char * 1024),
    ]


class StoreRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("format", c.c_char_p),
        ("options", c.c_char_p),
        ("transposed", c.c_int32),
        ("nrows", c.c_int64),
        ("ncols", c.c_int64),
        ("nnz", c.c_int64),
        ("rowptr", c.c_void_p),
        ("colidx", c.c_void_p),
        ("held", c.c_int64),
        ("row_block", c.c_int64),
        ("col_block", c.c_int64),
        ("mults", c.c_int64),
    ]


class StoreAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("plans", PlanStruct * len(Operation)),
        ("nonempty_rows", c.c_int64),
        ("nstored", c.c_int64),
        ("bytes_held", c.c_int64),
        ("replan_after", c.c_int64),
        ("stored", c.c_int64),
        ("summary", c.c_char * 256),
        ("detail", c.c_char * 4096),
    ]


class FusedRequestStruct(c.Structure):
    _fields_ = [("place", PlaceStruct), ("stored", c.c_int64), ("fused", c.c_int32)]


class FusedAnswerStruct(c.Structure):
    _fields_ = [("outcome", OutcomeStruct), ("plan", PlanStruct), ("offered", c.c_int32)]


class OperandStruct(c.Structure):
    _fields_ = [
        ("nrows", c.c_int64),
        ("ncols", c.c_int64),
        ("nnz", c.c_int64),
        ("rowptr", c.c_void_p),
        ("colidx", c.c_void_p),
        ("held", c.c_int64),
    ]


PLANNED_MATRIX: list[tuple[str, Any]] = [
    ("outcome", OutcomeStruct),
    ("numeric", PlanStruct),
    ("nrows", c.c_int64),
    ("ncols", c.c_int64),
    ("nnz", c.c_int64),
    ("rowptr", c.c_void_p),
    ("colidx", c.c_void_p),
    ("held", c.c_int64),
]
"""What an answer begins with that has the pattern of a matrix, and the plan for its values."""


class ProductRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("product", c.c_int32),
        ("noperands", c.c_int32),
        ("operands", OperandStruct * 3),
        ("options", c.c_char_p),
        ("described", c.c_int32),
    ]


class ProductAnswerStruct(c.Structure):
    _fields_ = [
        *PLANNED_MATRIX,
        ("terms", c.c_int64),
        ("bytes_needed", c.c_int64),
        ("bytes_held", c.c_int64),
        ("summary", c.c_char * 256),
        ("detail", c.c_char * 4096),
    ]


class EntrySumRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("ntargets", c.c_int64),
        ("nterms", c.c_int64),
        ("begins", c.c_void_p),
        ("index", c.c_void_p),
        ("sizes", c.c_int64 * 3),
    ]


class EntrySumAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("sum", PlanStruct),
    ]


class SummandStruct(c.Structure):
    _fields_ = [
        ("pattern", OperandStruct),
        ("first", c.c_int64),
        ("last", c.c_int64),
        ("shift", c.c_int64),
        ("places", c.c_void_p),
        ("targets", c.c_void_p),
        ("first_row", c.c_int64),
        ("last_row", c.c_int64),
        ("outside", c.c_int32),
    ]


class UnionRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("nrows", c.c_int64),
        ("ncols", c.c_int64),
        ("low", c.c_int64),
        ("high", c.c_int64),
        ("nsummands", c.c_int32),
        ("summands", SummandStruct * 3),
    ]


class UnionPartAnswerStruct(c.Structure):
    _fields_ = [
        ("nnz", c.c_int64),
        ("nterms", c.c_int64),
        ("rowptr", c.c_void_p),
        ("colidx", c.c_void_p),
        ("held", c.c_int64),
        ("token", c.c_int64),
        ("sum", PlanStruct),
    ]


class UnionAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("parts", UnionPartAnswerStruct * 2),
        ("nghosts", c.c_int64),
        ("ghosts", c.c_void_p),
    ]


class ScaleAndAddRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("scale_and_add", c.c_int32),
        ("target", OperandStruct),
        ("added", OperandStruct),
        ("columns", c.c_void_p),
    ]


class ScaleAndAddAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("scale_and_add", PlanStruct),
        ("applies", c.c_int32),
        ("no_diagonal", c.c_void_p),
    ]


class CooBlockStruct(c.Structure):
    _fields_ = [(name, c.c_int64) for name in ("first_row", "nrows", "first_col", "ncols")]


class OutsideRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("block", CooBlockStruct),
        ("nentries", c.c_int64),
        ("rows", c.c_void_p),
        ("cols", c.c_void_p),
        ("on_device", c.c_int32),
    ]


class OutsideAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("count", c.c_int64),
        ("rows", c.c_void_p),
        ("cols", c.c_void_p),
        ("numbers", c.c_void_p),
        ("all_rows", c.c_void_p),
        ("all_cols", c.c_void_p),
    ]


class CooRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("block", CooBlockStruct),
        ("is_part", c.c_int32),
        ("on_device", c.c_int32),
        ("nentries", c.c_int64),
        ("rows", c.c_void_p),
        ("cols", c.c_void_p),
        ("nmore", c.c_int64),
        ("more_rows", c.c_void_p),
        ("more_cols", c.c_void_p),
        ("numbers", c.c_void_p),
        ("sizes", c.c_int64 * 2),
    ]


class CooAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("token", c.c_int64),
        ("sum", PlanStruct),
        ("nnz", c.c_int64),
        ("nterms", c.c_int64),
        ("rowptr", c.c_void_p),
        ("colidx", c.c_void_p),
        ("begins", c.c_void_p),
        ("index", c.c_void_p),
        ("summary", c.c_char * 256),
    ]


class GatherRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("nnz", c.c_int64),
        ("nentries", c.c_int64),
        ("entries", c.c_void_p),
        ("colidx", c.c_void_p),
        ("columns", c.c_void_p),
    ]


class GatherAnswerStruct(c.Structure):
    _fields_ = [("outcome", OutcomeStruct), ("gather", PlanStruct)]


class PeerMessageStruct(c.Structure):
    _fields_ = [
        ("target", c.c_void_p),
        ("stride", c.c_int64),
        ("flag", c.c_void_p),
        ("index", c.c_void_p),
        ("first", c.c_int64),
        ("count", c.c_int64),
        ("done", c.c_int64),
    ]


class PeerArrivalsStruct(c.Structure):
    _fields_ = [
        ("flags", c.c_void_p),
        ("spacing", c.c_int64),
        ("nneighbours", c.c_int64),
        ("rank", c.c_int64),
        ("limit", c.c_int64),
        ("arrived", c.c_void_p),
        ("stride", c.c_int64),
        ("count", c.c_int64),
        ("nranks", c.c_int64),
        ("failures", c.c_void_p),
        ("failure", c.c_void_p),
        ("report", c.c_void_p),
        ("exchange", c.c_void_p),
    ]


class PeerRequestStruct(c.Structure):
    _fields_ = [("place", PlaceStruct)]


class PeerAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("steps", PlanStruct * len(PeerStep)),
        ("block_entries", c.c_int64 * len(PeerStep)),
    ]


class LengthsRequestStruct(c.Structure):
    _fields_ = [("place", PlaceStruct)]


class LengthsAnswerStruct(c.Structure):
    _fields_ = [("outcome", OutcomeStruct), ("lengths", PlanStruct), ("seen", c.c_void_p)]


class LoopRequestStruct(c.Structure):
    _fields_ = [("place", PlaceStruct)]


class LoopAnswerStruct(c.Structure):
    _fields_ = [("outcome", OutcomeStruct), ("condition", PlanStruct), ("why_not", c.c_char * 256)]


PLAN_FUNCTION = c.CFUNCTYPE(None, c.c_int32, c.c_void_p, c.c_void_p)
RELEASE_FUNCTION = c.CFUNCTYPE(None, c.c_int64)
RELEASE_ALL_FUNCTION = c.CFUNCTYPE(None)
FREE_POOL_FUNCTION = c.CFUNCTYPE(None)
PREPARE_FUNCTION = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_char_p)
NAME_KERNELS_FUNCTION = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_int64)


class PlannerStruct(c.Structure):
    _fields_ = [
        ("abi_version", c.c_int32),
        ("plan", PLAN_FUNCTION),
        ("release", RELEASE_FUNCTION),
        ("release_all", RELEASE_ALL_FUNCTION),
        ("free_pool", FREE_POOL_FUNCTION),
        ("prepare", PREPARE_FUNCTION),
        ("name_kernels", NAME_KERNELS_FUNCTION),
    ]


LAUNCH_LAYOUT = struct.Struct("@Q3I3IIii3Q")
"""LaunchStruct as one record: its fields one by one would take ten times as long to set."""


def export_plan(launches: Sequence[Launch], plan: PlanStruct) -> list[Any]:
    """Fill `plan` with `launches`; the objects returned must live as long as the struct is used."""
    structs = (LaunchStruct * len(launches))()
    flattened = [launch.flattened() for launch in launches]
    words = array("Q", [WORD_OF[type(a)](a) for members, _ in flattened for a in members])
    slots = array("i", [int(a) if type(a) is Slot else -1 for members, _ in flattened for a in members])
    word, slot = words.buffer_info()[0], slots.buffer_info()[0]
    params = array("Q")
    beginnings: list[tuple[int, int, int]] = []  # of words, slots and params of a launch: the last counted, not yet at
    for members, first_words in flattened:
        beginnings.append((word, slot, len(params)))
        params.extend([word + 8 * first for first in first_words])
        word, slot = word + 8 * len(members), slot + 4 * len(members)
    param = params.buffer_info()[0]
    for k, (launch, (members, first_words), (word, slot, before)) in enumerate(
        zip(launches, flattened, beginnings, strict=True)
    ):
        shape = *launch.grid, *launch.block, launch.shared_bytes
        counts = len(members), len(first_words)
        addresses = word, slot, param + 8 * before
        LAUNCH_LAYOUT.pack_into(structs, k * LAUNCH_LAYOUT.size, launch.function, *shape, *counts, *addresses)
    plan.nlaunches = len(launches)
    plan.launches = structs
    return [structs, words, slots, params, *launches]
