"""The structures of native/gpufmt_plan.h, field by field."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from typing import Any

from petsc_gpufmt.plan import Launch, Operation, Slot, argument_word

ABI_VERSION = 7
BACKENDS = ("host", "cuda")


class LaunchStruct(c.Structure):
    _fields_ = [
        ("function", c.c_void_p),
        ("grid", c.c_uint32 * 3),
        ("block", c.c_uint32 * 3),
        ("shared_bytes", c.c_uint32),
        ("nargs", c.c_int32),
        ("words", c.POINTER(c.c_uint64)),
        ("slots", c.POINTER(c.c_int32)),
        ("params", c.POINTER(c.c_void_p)),
    ]


class PlanStruct(c.Structure):
    _fields_ = [("nlaunches", c.c_int64), ("launches", c.POINTER(LaunchStruct))]


class OutcomeStruct(c.Structure):
    _fields_ = [
        ("token", c.c_int64),
        ("error", c.c_int32),
        ("interrupted", c.c_int32),
        ("message", c.c_char * 1024),
    ]


class RequestStruct(c.Structure):
    _fields_ = [
        ("format", c.c_char_p),
        ("options", c.c_char_p),
        ("backend", c.c_int32),
        ("transposed", c.c_int32),
        ("device", c.c_int32),
        ("index_bytes", c.c_int32),
        ("scalar_bytes", c.c_int32),
        ("stream", c.c_void_p),
        ("nrows", c.c_int64),
        ("ncols", c.c_int64),
        ("nnz", c.c_int64),
        ("rowptr", c.c_void_p),
        ("colidx", c.c_void_p),
        ("row_block", c.c_int64),
        ("col_block", c.c_int64),
        ("products", c.c_int64),
    ]


class AnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("plans", PlanStruct * len(Operation)),
        ("nonempty_rows", c.c_int64),
        ("nstored", c.c_int64),
        ("bytes_held", c.c_int64),
        ("replan_after", c.c_int64),
        ("summary", c.c_char * 256),
        ("detail", c.c_char * 4096),
    ]


class OperandStruct(c.Structure):
    _fields_ = [
        ("nrows", c.c_int64),
        ("ncols", c.c_int64),
        ("nnz", c.c_int64),
        ("rowptr", c.c_void_p),
        ("colidx", c.c_void_p),
    ]


class ProductRequestStruct(c.Structure):
    _fields_ = [
        ("product", c.c_int32),
        ("noperands", c.c_int32),
        ("operands", OperandStruct * 3),
        ("options", c.c_char_p),
        ("backend", c.c_int32),
        ("device", c.c_int32),
        ("index_bytes", c.c_int32),
        ("scalar_bytes", c.c_int32),
        ("stream", c.c_void_p),
    ]


class ProductAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("numeric", PlanStruct),
        ("nrows", c.c_int64),
        ("ncols", c.c_int64),
        ("nnz", c.c_int64),
        ("rowptr", c.c_void_p),
        ("colidx", c.c_void_p),
        ("terms", c.c_int64),
        ("bytes_needed", c.c_int64),
        ("bytes_held", c.c_int64),
        ("summary", c.c_char * 256),
        ("detail", c.c_char * 4096),
    ]


class SumRequestStruct(c.Structure):
    _fields_ = [
        ("ntargets", c.c_int64),
        ("nterms", c.c_int64),
        ("begins", c.c_void_p),
        ("index", c.c_void_p),
        ("sizes", c.c_int64 * 3),
        ("backend", c.c_int32),
        ("device", c.c_int32),
        ("index_bytes", c.c_int32),
        ("scalar_bytes", c.c_int32),
        ("stream", c.c_void_p),
    ]


class SumAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("sum", PlanStruct),
    ]


class SummandStruct(c.Structure):
    _fields_ = [("pattern", OperandStruct), ("places", c.c_void_p), ("targets", c.c_void_p)]


class UnionRequestStruct(c.Structure):
    _fields_ = [
        ("nrows", c.c_int64),
        ("ncols", c.c_int64),
        ("low", c.c_int64),
        ("high", c.c_int64),
        ("nsummands", c.c_int32),
        ("summands", SummandStruct * 3),
        ("backend", c.c_int32),
        ("device", c.c_int32),
        ("index_bytes", c.c_int32),
        ("scalar_bytes", c.c_int32),
        ("stream", c.c_void_p),
    ]


class UnionPartAnswerStruct(c.Structure):
    _fields_ = [
        ("nnz", c.c_int64),
        ("nterms", c.c_int64),
        ("rowptr", c.c_void_p),
        ("colidx", c.c_void_p),
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


class UpdateRequestStruct(c.Structure):
    _fields_ = [
        ("update", c.c_int32),
        ("target", OperandStruct),
        ("added", OperandStruct),
        ("columns", c.c_void_p),
        ("backend", c.c_int32),
        ("device", c.c_int32),
        ("index_bytes", c.c_int32),
        ("scalar_bytes", c.c_int32),
        ("stream", c.c_void_p),
    ]


class UpdateAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("update", PlanStruct),
        ("applies", c.c_int32),
    ]


PLAN_FUNCTION = c.CFUNCTYPE(None, c.POINTER(RequestStruct), c.POINTER(AnswerStruct))
PLAN_PRODUCT_FUNCTION = c.CFUNCTYPE(None, c.POINTER(ProductRequestStruct), c.POINTER(ProductAnswerStruct))
PLAN_SUM_FUNCTION = c.CFUNCTYPE(None, c.POINTER(SumRequestStruct), c.POINTER(SumAnswerStruct))
PLAN_UNION_FUNCTION = c.CFUNCTYPE(None, c.POINTER(UnionRequestStruct), c.POINTER(UnionAnswerStruct))
PLAN_UPDATE_FUNCTION = c.CFUNCTYPE(None, c.POINTER(UpdateRequestStruct), c.POINTER(UpdateAnswerStruct))
RELEASE_FUNCTION = c.CFUNCTYPE(None, c.c_int64)
FREE_POOL_FUNCTION = c.CFUNCTYPE(None)


class PlannerStruct(c.Structure):
    _fields_ = [
        ("abi_version", c.c_int32),
        ("plan", PLAN_FUNCTION),
        ("plan_product", PLAN_PRODUCT_FUNCTION),
        ("plan_sum", PLAN_SUM_FUNCTION),
        ("plan_union", PLAN_UNION_FUNCTION),
        ("plan_update", PLAN_UPDATE_FUNCTION),
        ("release", RELEASE_FUNCTION),
        ("free_pool", FREE_POOL_FUNCTION),
    ]


def export_launch(launch: Launch, struct: LaunchStruct) -> list[Any]:
    """Fill `struct` from `launch`; the objects returned must live as long as the struct is used."""
    arguments, nargs = launch.arguments, len(launch.arguments)
    words = (c.c_uint64 * nargs)(*map(argument_word, arguments))
    slots = (c.c_int32 * nargs)(*[int(a) if type(a) is Slot else -1 for a in arguments])
    first = c.addressof(words)
    params = (c.c_void_p * nargs)(*range(first, first + 8 * nargs, 8))
    struct.function = launch.function
    struct.grid[:] = launch.grid
    struct.block[:] = launch.block
    struct.shared_bytes = launch.shared_bytes
    struct.nargs = nargs
    struct.words, struct.slots, struct.params = words, slots, params
    return [launch, words, slots, params]


def export_plan(launches: Sequence[Launch], struct: PlanStruct) -> list[Any]:
    """Fill `struct` with `launches`; the objects returned must live as long as the struct is used."""
    array = (LaunchStruct * len(launches))()
    kept: list[Any] = [array]
    for launch, item in zip(launches, array, strict=True):
        kept += export_launch(launch, item)
    struct.nlaunches = len(launches)
    struct.launches = array
    return kept
