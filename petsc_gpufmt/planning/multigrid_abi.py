"""The structures of native/gpufmt_plan_multigrid.h, field by field."""

from __future__ import annotations

import ctypes as c

from petsc_gpufmt.backends.plan import AggregationStep
from petsc_gpufmt.planning.abi import PLANNED_MATRIX, OperandStruct, OutcomeStruct, PlaceStruct, PlanStruct


class GraphRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("matrix", OperandStruct),
        ("values", c.c_void_p),
        ("threshold", c.c_double),
        ("block", c.c_int32),
        ("symmetrize", c.c_int32),
        ("keep_diagonal", c.c_int32),
        ("symmetric", c.c_int32),
    ]


class GraphAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("graph", OperandStruct),
        ("longest", c.c_int64),
        ("held", c.c_int64),
        ("applies", c.c_int32),
        ("is_matrix", c.c_int32),
        ("summary", c.c_char * 256),
    ]


class AggregatesRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("graph", OperandStruct),
        ("longest", c.c_int64),
        ("order", c.c_void_p),
        ("distance", c.c_int32),
    ]


class AggregatesAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("naggregates", c.c_int64),
        ("aggregates", c.c_void_p),
        ("turns", c.c_void_p),
        ("rounds", c.c_int64),
        ("summary", c.c_char * 256),
    ]


class ParallelAggregatesRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("own", OperandStruct),
        ("others", OperandStruct),
        ("ghosts", c.c_void_p),
        ("first", c.c_int64),
        ("distance", c.c_int32),
        ("symmetric", c.c_int32),
    ]


class ParallelAggregatesAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("steps", PlanStruct * len(AggregationStep)),
        ("words", c.c_void_p),
        ("nearest", c.c_void_p),
        ("numbers", c.c_void_p),
        ("counts", c.c_void_p),
        ("held", c.c_int64 * 2),
        ("asymmetry", c.c_uint64),
        ("applies", c.c_int32),
    ]


class TentativeRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("nnodes", c.c_int64),
        ("naggregates", c.c_int64),
        ("aggregates", c.c_void_p),
        ("turns", c.c_void_p),
        ("block", c.c_int32),
        ("nvectors", c.c_int32),
        ("near_null", c.c_void_p),
    ]


class TentativeAnswerStruct(c.Structure):
    _fields_ = [
        *PLANNED_MATRIX,
        ("coarse_near_null", c.c_void_p),
        ("summary", c.c_char * 256),
    ]


class ElsewhereRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("nnodes", c.c_int64),
        ("aggregates", c.c_void_p),
        ("first", c.c_int64),
        ("naggregates", c.c_int64),
    ]


class ElsewhereAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("count", c.c_int64),
        ("nodes", c.c_void_p),
        ("aggregates", c.c_void_p),
    ]


class ParallelTentativeRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("own", ElsewhereRequestStruct),
        ("nreceived", c.c_int64),
        ("received", c.c_void_p),
        ("nghosts", c.c_int64),
        ("ghosts", c.c_void_p),
        ("nlooked_at", c.c_int64),
        ("block", c.c_int32),
        ("nvectors", c.c_int32),
        ("near_null", c.c_void_p),
    ]


class BlockAnswerStruct(c.Structure):
    _fields_ = [
        ("ncols", c.c_int64),
        ("nnz", c.c_int64),
        ("rowptr", c.c_void_p),
        ("colidx", c.c_void_p),
        ("held", c.c_int64),
    ]


class ParallelTentativeAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("blocks", BlockAnswerStruct * 2),
        ("nghosts", c.c_int64),
        ("ghosts", c.c_void_p),
        ("values", c.c_void_p),
        ("elsewhere", c.c_void_p),
        ("rows", PlanStruct),
        ("numbers", c.c_void_p),
        ("tentative", c.c_void_p),
        ("coarse_near_null", c.c_void_p),
    ]


class SmoothedRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("matrix", OperandStruct),
        ("naggregates", c.c_int64),
        ("aggregates", c.c_void_p),
        ("block", c.c_int32),
        ("nvectors", c.c_int32),
    ]


class SmoothedAnswerStruct(c.Structure):
    _fields_ = [
        *PLANNED_MATRIX,
        ("applies", c.c_int32),
        ("summary", c.c_char * 256),
    ]


class ParallelSmoothedRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("own", OperandStruct),
        ("others", OperandStruct),
        ("nlow", c.c_int64),
        ("first", c.c_int64),
        ("naggregates", c.c_int64),
        ("nghosts", c.c_int64),
        ("ghosts", c.c_void_p),
        ("numbers", c.c_void_p),
        ("tentative", c.c_void_p),
        ("nvectors", c.c_int32),
    ]


class ParallelSmoothedAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("blocks", BlockAnswerStruct * 2),
        ("numeric", PlanStruct * 2),
        ("nghosts", c.c_int64),
        ("ghosts", c.c_void_p),
        ("applies", c.c_int32),
        ("summary", c.c_char * 256),
    ]


class StartVectorRequestStruct(c.Structure):
    _fields_ = [("place", PlaceStruct), ("nrows", c.c_int64), ("first", c.c_int64)]


class StartVectorAnswerStruct(c.Structure):
    _fields_ = [("outcome", OutcomeStruct), ("fill", PlanStruct)]
