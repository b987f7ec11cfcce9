"""The structures of native/gpufmt_plan_krylov.h, field by field; states are in the modules of their methods."""

from __future__ import annotations

import ctypes as c

from petsc_gpufmt.krylov.steps import MOST_ARRAYS, MOST_STEPS
from petsc_gpufmt.planning.abi import OutcomeStruct, PlaceStruct, PlanStruct


class KrylovRequestStruct(c.Structure):
    _fields_ = [
        ("place", PlaceStruct),
        ("method", c.c_int32),
        ("nrows", c.c_int64),
        ("restart", c.c_int64),
        ("point_block", c.c_int64),
    ]


class KrylovAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("steps", PlanStruct * MOST_STEPS),
        ("state", c.c_void_p),
        ("arrays", c.c_void_p * MOST_ARRAYS),
    ]


class JacobiRequestStruct(c.Structure):
    _fields_ = [("place", PlaceStruct)]


class JacobiAnswerStruct(c.Structure):
    _fields_ = [
        ("outcome", OutcomeStruct),
        ("reciprocals", PlanStruct),
        ("products", PlanStruct),
        ("not_positive", c.c_void_p),
    ]
