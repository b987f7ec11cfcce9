"""Plans and the structures that pass them to the library."""

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from petsc_gpufmt.backends.plan import (
    AggregationStep,
    Launch,
    Operation,
    PeerStep,
    Product,
    ScaleAndAdd,
    Slot,
    Struct,
    address,
    argument_word,
    power_of_two,
)
from petsc_gpufmt.krylov import bcgs, cg, chebyshev, gmres, mixedcg
from petsc_gpufmt.krylov.steps import MOST_ARRAYS, MOST_STEPS, RECORDS, Method
from petsc_gpufmt.planning import abi, krylov_abi, multigrid_abi

HEADERS = sorted((Path(__file__).parents[2] / "petsc_gpufmt" / "native").glob("gpufmt_plan*.h"))
STRUCTURES = {
    "GpufmtLaunch": abi.LaunchStruct,
    "GpufmtPlan": abi.PlanStruct,
    "GpufmtPlace": abi.PlaceStruct,
    "GpufmtStoreRequest": abi.StoreRequestStruct,
    "GpufmtStoreAnswer": abi.StoreAnswerStruct,
    "GpufmtOutcome": abi.OutcomeStruct,
    "GpufmtOperand": abi.OperandStruct,
    "GpufmtProductRequest": abi.ProductRequestStruct,
    "GpufmtProductAnswer": abi.ProductAnswerStruct,
    "GpufmtEntrySumRequest": abi.EntrySumRequestStruct,
    "GpufmtEntrySumAnswer": abi.EntrySumAnswerStruct,
    "GpufmtSummandPattern": abi.SummandStruct,
    "GpufmtUnionRequest": abi.UnionRequestStruct,
    "GpufmtUnionPartAnswer": abi.UnionPartAnswerStruct,
    "GpufmtUnionAnswer": abi.UnionAnswerStruct,
    "GpufmtScaleAndAddRequest": abi.ScaleAndAddRequestStruct,
    "GpufmtScaleAndAddAnswer": abi.ScaleAndAddAnswerStruct,
    "GpufmtGraphRequest": multigrid_abi.GraphRequestStruct,
    "GpufmtGraphAnswer": multigrid_abi.GraphAnswerStruct,
    "GpufmtAggregatesRequest": multigrid_abi.AggregatesRequestStruct,
    "GpufmtAggregatesAnswer": multigrid_abi.AggregatesAnswerStruct,
    "GpufmtParallelAggregatesRequest": multigrid_abi.ParallelAggregatesRequestStruct,
    "GpufmtParallelAggregatesAnswer": multigrid_abi.ParallelAggregatesAnswerStruct,
    "GpufmtElsewhereRequest": multigrid_abi.ElsewhereRequestStruct,
    "GpufmtElsewhereAnswer": multigrid_abi.ElsewhereAnswerStruct,
    "GpufmtParallelSmoothedRequest": multigrid_abi.ParallelSmoothedRequestStruct,
    "GpufmtParallelSmoothedAnswer": multigrid_abi.ParallelSmoothedAnswerStruct,
    "GpufmtParallelTentativeRequest": multigrid_abi.ParallelTentativeRequestStruct,
    "GpufmtBlockAnswer": multigrid_abi.BlockAnswerStruct,
    "GpufmtParallelTentativeAnswer": multigrid_abi.ParallelTentativeAnswerStruct,
    "GpufmtTentativeRequest": multigrid_abi.TentativeRequestStruct,
    "GpufmtTentativeAnswer": multigrid_abi.TentativeAnswerStruct,
    "GpufmtCooBlock": abi.CooBlockStruct,
    "GpufmtLoopRequest": abi.LoopRequestStruct,
    "GpufmtLoopAnswer": abi.LoopAnswerStruct,
    "GpufmtLengthsRequest": abi.LengthsRequestStruct,
    "GpufmtLengthsAnswer": abi.LengthsAnswerStruct,
    "GpufmtOutsideRequest": abi.OutsideRequestStruct,
    "GpufmtOutsideAnswer": abi.OutsideAnswerStruct,
    "GpufmtCooRequest": abi.CooRequestStruct,
    "GpufmtCooAnswer": abi.CooAnswerStruct,
    "GpufmtSmoothedRequest": multigrid_abi.SmoothedRequestStruct,
    "GpufmtSmoothedAnswer": multigrid_abi.SmoothedAnswerStruct,
    "GpufmtStartVectorRequest": multigrid_abi.StartVectorRequestStruct,
    "GpufmtStartVectorAnswer": multigrid_abi.StartVectorAnswerStruct,
    "GpufmtJacobiRequest": krylov_abi.JacobiRequestStruct,
    "GpufmtJacobiAnswer": krylov_abi.JacobiAnswerStruct,
    "GpufmtGatherRequest": abi.GatherRequestStruct,
    "GpufmtGatherAnswer": abi.GatherAnswerStruct,
    "GpufmtPeerMessage": abi.PeerMessageStruct,
    "GpufmtPeerArrivals": abi.PeerArrivalsStruct,
    "GpufmtPeerRequest": abi.PeerRequestStruct,
    "GpufmtPeerAnswer": abi.PeerAnswerStruct,
    "GpufmtKrylovRequest": krylov_abi.KrylovRequestStruct,
    "GpufmtKrylovAnswer": krylov_abi.KrylovAnswerStruct,
    "GpufmtFusedRequest": abi.FusedRequestStruct,
    "GpufmtFusedAnswer": abi.FusedAnswerStruct,
    "GpufmtPlanner": abi.PlannerStruct,
}

SHARED = {
    "GpufmtCgRecord": cg.RECORD,
    "GpufmtCgState": cg.STATE,
    "GpufmtMixedState": mixedcg.STATE,
    "GpufmtBcgsRecord": bcgs.RECORD,
    "GpufmtBcgsState": bcgs.STATE,
    "GpufmtGmresColumn": gmres.COLUMN,
    "GpufmtGmresState": gmres.STATE,
}
"""What kernels and the library share, as types of NumPy."""


@pytest.fixture(scope="module")
def header_values(tmp_path_factory):
    """Calls back with C expressions over the header, returns their values."""

    def evaluate(expressions):
        folder = tmp_path_factory.mktemp("header")
        prints = "".join(f'  printf("%lld\\n", (long long)({expression}));\n' for expression in expressions)
        source = folder / "values.c"
        includes = "".join(f"#include {name}\n" for name in ("<stddef.h>", "<stdio.h>", *(f'"{h}"' for h in HEADERS)))
        source.write_text(f"{includes}int main(void)\n{{\n{prints}}}\n")
        program = folder / "values"
        subprocess.run(["cc", source, "-o", program], check=True, timeout=60)
        lines = subprocess.run([program], check=True, capture_output=True, text=True, timeout=60).stdout.split()
        return [int(line) for line in lines]

    return evaluate


def test_structures_have_the_layout_of_the_header(header_values):
    expected = {}
    for name, structure in STRUCTURES.items():
        expected[f"sizeof({name})"] = ctypes.sizeof(structure)
        for field, _ in structure._fields_:
            expected[f"offsetof({name}, {field})"] = getattr(structure, field).offset
            expected[f"sizeof((({name} *)0)->{field})"] = getattr(structure, field).size

    for name, dtype in SHARED.items():
        expected[f"sizeof({name})"] = dtype.itemsize
        expected |= {f"offsetof({name}, {field})": offset for field, (_, offset) in dtype.fields.items()}

    assert dict(zip(expected, header_values(expected), strict=True)) == expected


def test_numbers_are_those_of_the_header(header_values):
    expected = {
        "GPUFMT_ABI_VERSION": abi.ABI_VERSION,
        "GPUFMT_NUM_BACKENDS": len(abi.BACKENDS),
        "GPUFMT_NUM_SLOTS": len(Slot),
        "GPUFMT_NUM_PLANS": len(Operation),
        "GPUFMT_NUM_PRODUCTS": len(Product),
        "GPUFMT_NUM_SCALE_AND_ADD": len(ScaleAndAdd),
        "GPUFMT_NUM_ASKS": len(abi.Ask),
        "GPUFMT_NUM_STEPS": len(AggregationStep),
        "GPUFMT_NUM_PEER_STEPS": len(PeerStep),
        **{f"GPUFMT_BACKEND_{name.upper()}": number for number, name in enumerate(abi.BACKENDS)},
        **{f"GPUFMT_SLOT_{slot.name}": int(slot) for slot in Slot},
        **{f"GPUFMT_PLAN_{operation.name}": int(operation) for operation in Operation},
        **{f"GPUFMT_PRODUCT_{product.name}": int(product) for product in Product},
        **{f"GPUFMT_STEP_{step.name}": int(step) for step in AggregationStep},
        **{f"GPUFMT_PEER_{step.name}": int(step) for step in PeerStep},
        **{f"GPUFMT_ASK_{ask.name}": int(ask) for ask in abi.Ask},
        **{f"GPUFMT_{kind.name}": int(kind) for kind in ScaleAndAdd},
        "GPUFMT_NUM_KRYLOV": len(Method),
        "GPUFMT_MOST_KRYLOV_STEPS": MOST_STEPS,
        "GPUFMT_KRYLOV_RECORDS": RECORDS,
        "GPUFMT_MOST_KRYLOV_ARRAYS": MOST_ARRAYS,
        "GPUFMT_NUM_MIXED_STEPS": len(mixedcg.Step),
        "GPUFMT_NUM_MIXED_ARRAYS": len(mixedcg.Array),
        **{f"GPUFMT_MIXED_{step.name}": int(step) for step in mixedcg.Step},
        **{f"GPUFMT_MIXED_ARRAY_{a.name}": int(a) for a in mixedcg.Array},
        **{f"GPUFMT_KRYLOV_{method.name}": int(method) for method in Method},
        "GPUFMT_NUM_CG_STEPS": len(cg.Step),
        **{f"GPUFMT_CG_{step.name}": int(step) for step in cg.Step},
        "GPUFMT_NUM_BCGS_STEPS": len(bcgs.Step),
        **{f"GPUFMT_BCGS_{step.name}": int(step) for step in bcgs.Step},
        "GPUFMT_NUM_CHEBYSHEV_STEPS": len(chebyshev.Step),
        "GPUFMT_MOST_POINT_BLOCK": chebyshev.MOST_POINT_BLOCK,
        **{f"GPUFMT_CHEBYSHEV_{step.name}": int(step) for step in chebyshev.Step},
        "GPUFMT_NUM_GMRES_STEPS": len(gmres.Step),
        **{f"GPUFMT_GMRES_{step.name}": int(step) for step in gmres.Step},
    }

    assert dict(zip(expected, header_values(expected), strict=True)) == expected


def test_every_field_of_the_header_is_mirrored():
    text = re.sub(r"/\*.*?\*/", "", "".join(header.read_text() for header in HEADERS), flags=re.DOTALL)
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, re.DOTALL):
        declarations = [d for d in body.split(";") if d.strip()]
        pointers_to_functions = [re.search(r"\(\*(\w+)\)", d) for d in declarations]
        fields = []
        for declaration, function in zip(declarations, pointers_to_functions, strict=True):
            names = [function.group(1)] if function else re.findall(r"(\w+)(?:\[\w+\])?(?=,|$)", declaration.strip())
            fields += names
        mirrored = SHARED[name].names if name in SHARED else [field for field, _ in STRUCTURES[name]._fields_]
        assert list(mirrored) == fields


@pytest.mark.parametrize(
    ("argument", "word"),
    [
        (None, 0),
        (Slot.VALUES, 0),
        (np.zeros(0), 0),
        (2**40 + 3, 2**40 + 3),
        (-1, 0xFFFFFFFFFFFFFFFF),
        (np.int32(-1), 0xFFFFFFFF),
        (np.int64(-1), 0xFFFFFFFFFFFFFFFF),
        (np.int64(2**40 + 3), 2**40 + 3),
        (np.float32(1.0), 0x3F800000),
        (np.float64(-2.0), 0xC000000000000000),
    ],
    ids=repr,
)
def test_word_of_an_argument(argument, word):
    assert argument_word(argument) == word


def test_word_of_an_array_is_its_address():
    array = np.arange(5)

    assert argument_word(array[2:]) == address(array) + 16 == array.ctypes.data + 16


def test_a_plan_keeps_its_arrays_and_gives_the_library_their_addresses():
    values = np.arange(3.0)
    launches = [
        Launch(11, (1, 2, 3), (4, 5, 6), (np.int32(7), values, None, Slot.X), shared_bytes=8),
        Launch(12, (1, 1, 1), (1, 1, 1), (Struct(np.int32(5), Slot.Y), Slot.Z)),
    ]
    plan = abi.PlanStruct()
    kept = abi.export_plan(launches, plan)
    first, second = plan.launches[0], plan.launches[1]

    assert plan.nlaunches == 2 and (first.function, second.function) == (11, 12)
    assert (list(first.grid), list(first.block), first.shared_bytes) == ([1, 2, 3], [4, 5, 6], 8)
    assert (first.nparams, second.nparams) == (4, 2)
    assert first.nwords == 4 and first.words[:4] == [7, values.ctypes.data, 0, 0]
    assert first.slots[:4] == [-1, -1, -1, Slot.X]
    assert [first.params[i] for i in range(4)] == [ctypes.addressof(first.words.contents) + 8 * i for i in range(4)]
    assert second.nwords == 3 and second.words[:3] == [5, 0, 0] and second.slots[:3] == [-1, Slot.Y, Slot.Z]
    assert [second.params[i] for i in range(2)] == [ctypes.addressof(second.words.contents) + 8 * i for i in (0, 2)]
    assert any(item is launches[0] for item in kept)


def test_an_empty_plan():
    plan = abi.PlanStruct()
    abi.export_plan([], plan)

    assert plan.nlaunches == 0


@pytest.mark.parametrize(("least", "power"), [(0, 2), (2, 2), (2.1, 4), (31, 32), (32, 32), (1e9, 32)])
def test_power_of_two(least, power):
    assert power_of_two(least, 2, 32) == power
