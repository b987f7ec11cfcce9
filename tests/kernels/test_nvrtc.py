"""Every kernel instance that formats and sparse products ask for compiles for every architecture, in its registers."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from builders import CsrMatrix, blocked, from_row_lengths, shape, stencil, uniform
from emulation.backend import source_texts
from graphs import path, star
from multigrid import in_blocks, one_sided
from option_sets import ALL_OPTION_SETS
from recording_backend import RecordingBackend
from several_ranks import a_rank_alone
from sparse_products import sorted_rows

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import default_modules, instance_name, wanted_with
from petsc_gpufmt.backends.kernel_sources import device_flags, kernel_directory
from petsc_gpufmt.backends.loop import loop_condition
from petsc_gpufmt.backends.plan import Fused, Operation, Product
from petsc_gpufmt.choice.registry import FORMATS, find_format
from petsc_gpufmt.coarsening.aggregates import aggregate
from petsc_gpufmt.coarsening.prolongator import tentative
from petsc_gpufmt.coarsening.shuffle import shuffled
from petsc_gpufmt.coarsening.smoothed import smoothed
from petsc_gpufmt.coarsening.start_vector import start_vector
from petsc_gpufmt.coarsening.strength import strength_graph
from petsc_gpufmt.formats.evchyb import layout as evchyb_layout
from petsc_gpufmt.formats.evchyb.evchyb import EvcHyb
from petsc_gpufmt.formats.jds import Jds
from petsc_gpufmt.halo.peer import exchange_launches
from petsc_gpufmt.krylov.bcgs import stabilized_biconjugate_gradients
from petsc_gpufmt.krylov.cg import conjugate_gradients
from petsc_gpufmt.krylov.chebyshev import MOST_POINT_BLOCK, chebyshev_iteration
from petsc_gpufmt.krylov.gmres import generalized_minimal_residuals
from petsc_gpufmt.krylov.jacobi import jacobi
from petsc_gpufmt.krylov.mixedcg import mixed_conjugate_gradients
from petsc_gpufmt.patterns import coo, narrow, norms, scale_and_add, zero_rows
from petsc_gpufmt.patterns.csr import CsrPattern, gather_indices
from petsc_gpufmt.patterns.entry_sum import plan_entry_sum
from petsc_gpufmt.patterns.lengths import lengths
from petsc_gpufmt.patterns.segments import PIECE
from petsc_gpufmt.patterns.symmetry import is_symmetric
from petsc_gpufmt.patterns.transpose import transposed
from petsc_gpufmt.patterns.union import Shifted, Summand, merge
from petsc_gpufmt.planning import start  # noqa: F401  all that declares kernels
from petsc_gpufmt.spgemm.chain import plan_product
from petsc_gpufmt.spgemm.splitting import WIDTHS

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="no NVRTC: pip install cuda-bindings nvidia-cuda-nvrtc")
pathfinder = pytest.importorskip("cuda.pathfinder", reason="no cuda-pathfinder, which comes with cuda-bindings")

try:
    nvrtc.nvrtcVersion()
except RuntimeError as e:
    pytest.skip(f"no NVRTC ({e}): pip install nvidia-cuda-nvrtc", allow_module_level=True)

LIBRARY = Path(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "nvrtc"
# What decides which instances are asked for
SOURCES = ("petsc_gpufmt/**/*.py", "kernels/*/*.cu*", "tests/emulation/*.*", "tests/support/*.py", "tests/kernels/*.py")
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
OTHER_TYPES = [(np.float32, np.int64)]  # other values and other indices at once
# 2048 threads of a multiprocessor share 65536 registers: with 32 each all of them run at once, with 40 three quarters.
REGISTERS = 40
# Kernel files whose loads in flight are worth more than their threads, or that run once a pattern
REGISTERS_OF_FILES: dict[str, int] = {
    "coarsening/aggregates": 48,
    "coarsening/parallel_aggregates": 48,
    "coarsening/parallel_prolongator": 48,
    "coarsening/prolongator": 64,
    "coarsening/smoothed": 64,
    "coarsening/strength": 48,
    "formats/bsr": 64,
    "formats/bsr_layout": 48,
    "formats/bsr_interleaved": 64,
    "formats/bsr_values": 64,
    "formats/columns": 48,
    "formats/csradaptive": 56,  # with a step of smoothing within the product, on sm_100; products take 40
    "formats/evchyb": 64,
    "formats/evchyb_layout": 64,
    "formats/pjds": 64,
    "formats/sliced_rows": 48,
    "krylov/bcgs": 48,  # the update has seven arrays, two rows of each at once
    "krylov/chebyshev": 64,  # a row of a block of 16, all on the way at once; rows of up to 8 take 40
    "krylov/gmres": 64,  # eight addresses and eight sums
    "spgemm/rmerge_network": 48,
    "spgemm/census": 64,
    "spgemm/hash": 48,
    "spgemm/hash_symbolic": 80,  # on sm_80, where shared memory is for six blocks of tables of all sizes
    "spgemm/hash_values": 64,
    "patterns/coo": 48,
    "patterns/csr": 48,
    "patterns/transpose": 56,
    "patterns/union": 80,
}


# Fused products in single precision, for a few sizes of blocks: ptxas spills by itself to stay at 32 registers.
SPILL_BYTES_OF_FILES: dict[str, int] = {"formats/bsr": 8}

FEW_THREADS, MANY_THREADS = 1 << 6, 1 << 20  # of a device: rows of several sizes are not, or are, taken for one size
MANY_ROWS = 50_000  # of a transpose, most of them empty: slow in emulation
LARGEST_PRODUCT = 70_000  # terms: the emulation takes long for more
PRODUCT_OPTIONS: list[dict[str, int | str]] = [
    {},
    {"accumulator": "hash"},
    *({"accumulator": "merge", "merge_width": width} for width in (0, *WIDTHS)),
]


@cache
def all_matrices() -> list[CsrMatrix]:
    """What makes formats choose different instances: row lengths, spans of columns, patterns, blocks."""
    rows = [uniform(1, int(length), int(length), seed=60) for length in 2 ** np.arange(11)]
    shapes = [shape(name) for name in ("stencil", "some_rows_wide", "wide_columns", "rows_to_split", "power_law")]
    block_sizes = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 45, 64)
    return rows + shapes + [blocked(size, 4, declared=True) for size in block_sizes]


@cache
def rows_of_two_sizes() -> CsrMatrix:
    """Whose transpose times itself has many rows of each, with columns far apart."""
    return from_row_lengths(np.repeat([11, 40], [64, 36]), 40_000, seed=63)


def large_matrices() -> list[CsrMatrix]:
    """What makes formats look for ways to store columns in fewer bytes, which a small matrix is not worth."""
    return [stencil(28, 28, 28), uniform(14_000, 300, 10, seed=61), uniform(70, 70_000, 2000, seed=62)]


def instances(scalar: Any, index: Any, folder: Path, matrices: Any, option_sets: Any) -> dict[str, list[str]]:
    """Names of each file's kernel instances that all formats ask for, given `option_sets(format, rows)`."""
    backend = RecordingBackend(scalar, index, folder, MANY_THREADS)
    for matrix in matrices:
        csr = matrix.pattern(np, backend.index)
        for pattern in (csr, transposed(csr, backend)):
            for format_name in FORMATS:
                cls = find_format(format_name)
                for options in option_sets(format_name, pattern.nrows):
                    stored = cls.build(pattern, backend, {**cls.default_options, **options})
                    for operation in Operation:
                        stored.plan(operation)
                    for fused in Fused:
                        stored.fused(fused)
                    if isinstance(stored, Jds):
                        stored.mult_by_diagonals()
    return names_of_instances(backend)


def instances_of_evchyb_in_memory(scalar: Any, index: Any, folder: Path) -> dict[str, list[str]]:
    """Those that a matrix asks for that is too large for the cache, and has short rows of several lengths."""
    backend = RecordingBackend(scalar, index, folder, resident_threads=64)
    lengths = np.resize([1, 50], 2400)
    lengths[::600] = 300
    with mock.patch.object(evchyb_layout, "SMALL_BYTES", 0):
        pattern = from_row_lengths(lengths, 400, seed=67).pattern(np, index)
        stored = EvcHyb.build(pattern, backend, EvcHyb.default_options)
    for operands in (("x",), ("A",), ("x", "A")):
        stored.mult_with_constant(*operands)
    return names_of_instances(backend)


def product_instances(scalar: Any, index: Any, folder: Path) -> dict[str, list[str]]:
    """Those that products ask for, on a small device and on a large one, the sums of parallel ones, and coarsening."""
    backend = RecordingBackend(scalar, index, folder, MANY_THREADS)
    few_columns = [matrix for matrix in all_matrices() if matrix.ncols < MANY_ROWS]
    two_sizes = sorted_rows(rows_of_two_sizes())
    for backend.resident_threads, matrices in ((FEW_THREADS, all_matrices()), (MANY_THREADS, few_columns)):
        for matrix in matrices:
            multiply_with_transpose(matrix, backend)
        multiply(sorted_rows(two_sizes.transposed()), two_sizes, backend, PRODUCT_OPTIONS[:1])
        multiply(uniform(3, 2, 2, seed=64), sorted_rows(uniform(2, 3000, 600, seed=65)), backend)  # rows in parts
    index_of_both = np.arange(2, dtype=index)
    for begins in (None, np.array([0, 2], dtype=index)):
        plan_entry_sum(begins, index_of_both, (1, 1, 0), backend)
    csr = uniform(1, 2 * PIECE, 2 * PIECE, seed=66).transposed().pattern(np, backend.index)
    csr.validated(backend)
    gather_indices(backend, csr.colidx, np.zeros(1, dtype=np.int64))  # samples are of matrices larger than those here
    transposed(csr, backend)
    is_symmetric(csr, backend)
    shuffled(csr.nrows, backend)
    lengths(backend)
    start_vector(csr.nrows, 0, backend)
    jacobi(backend)
    conjugate_gradients(1, backend)
    for point_block in (0, *range(2, MOST_POINT_BLOCK + 1)):
        chebyshev_iteration(0, backend, point_block)
    generalized_minimal_residuals(1, backend, 1)
    mixed_conjugate_gradients(1, backend)
    stabilized_biconjugate_gradients(1, backend)
    exchange_launches(backend)
    loop_condition(backend)
    places, targets = (np.arange(n, dtype=index) for n in (csr.ncols, csr.nrows))
    shifted = Summand(csr, places[:0], None, Shifted(0, csr.ncols))
    merge((csr.nrows, csr.ncols), (0, 0), [Summand(csr, places, targets), shifted], backend)
    plan_scaling_and_adding(rows_of_two_sizes(), backend)
    one_row_of_repeats = (np.zeros(2 * PIECE, dtype=index),) * 2
    coo.assemble((1, 1), *one_row_of_repeats, backend)
    coo.outside(coo.Block(0, 0, 0, 0), *one_row_of_repeats, backend)
    coarsen(backend)
    return names_of_instances(backend)


def names_of_instances(backend: RecordingBackend) -> dict[str, list[str]]:
    """What was asked of a backend, by file."""
    names: dict[str, list[str]] = {}
    for stem, kernel, template_arguments in sorted(set(backend.instances)):
        names.setdefault(stem, []).append(instance_name(kernel, template_arguments))
    return names


def multiply_with_transpose(matrix: CsrMatrix, backend: Backend) -> None:
    """Plan the products of a matrix with its transpose in both orders, unless they are large."""
    for A in (sorted_rows(matrix), sorted_rows(matrix.transposed())):
        right = sorted_rows(A.transposed())
        if np.diff(right.rowptr)[A.colidx].sum() <= LARGEST_PRODUCT:
            multiply(A, right, backend)


def multiply(A: CsrMatrix, B: CsrMatrix, backend: Backend, option_sets: Any = PRODUCT_OPTIONS) -> None:
    """Plan A B in each of these ways."""
    patterns = [matrix.pattern(np, backend.index) for matrix in (A, B)]
    for options in option_sets:
        plan_product(Product.AB, patterns, backend, options)


def coarsen(backend: Backend) -> None:
    """Graphs with values, aggregates of short and of long rows, and their prolongators of all kinds."""
    for share in (1.0, 0.7):
        matrix = in_blocks(one_sided(40), 2, share)
        csr = matrix.pattern(np, backend.index).validated(backend)
        values = matrix.values.astype(backend.scalar)
        assert strength_graph(csr, values, backend, block=2, symmetrize=True, threshold=0.1).pattern
    for graph in (path(40), star(400)):
        n = graph.nrows
        rowptr, colidx, order = (a.astype(backend.index) for a in (*graph, np.arange(n)))
        found = aggregate(CsrPattern(n, n, rowptr, colidx).validated(backend), order, 2, backend)
        for block, nvectors in ((1, 1), (2, 3)):
            near_null = np.ones(nvectors * block * n, dtype=backend.scalar)
            tentative(found.numbers, found.count, block, near_null, nvectors, backend, found.turns)
        tentative(found.numbers, found.count, 1, None, 1, backend)
        a_rank_alone(graph, 2, backend)
        for nvectors in (1, 6):
            assert smoothed(CsrPattern(n, n, rowptr, colidx), found.numbers, found.count, 1, nvectors, backend)
    some_rows = uniform(40, 40, 20, seed=68).pattern(np, backend.index)
    assert smoothed(some_rows, np.arange(40, dtype=backend.index), 40, 1, 1, backend)


def plan_scaling_and_adding(matrix: CsrMatrix, backend: Backend) -> None:
    """Plan every change of the values of a matrix."""
    csr = sorted_rows(matrix).pattern(np, backend.index)
    scale_and_add.plan_scale(csr.colidx.size, backend)
    scale_and_add.plan_scale_rows(csr.colidx.size, csr.rowptr, backend)
    scale_and_add.plan_scale_columns(csr.colidx, backend)
    scale_and_add.plan_add(csr.colidx.size, backend)
    one_row, first_column = np.array([0, 1], dtype=backend.index), np.zeros(1, dtype=backend.index)
    assert scale_and_add.plan_set_diagonal(one_row, first_column, backend)
    places, _ = zero_rows.find_diagonal(one_row, first_column, backend)
    assert zero_rows.plan_zero_rows(one_row, 1, places, backend)
    assert narrow.plan_narrow(1, backend)
    assert norms.plan_sum_of_squares(1, backend) and norms.plan_absolute_sums(one_row, None, backend)
    assert scale_and_add.plan_add_subset((csr.rowptr, csr.colidx), (csr.rowptr, csr.colidx), None, backend)


def default_options(format_name: str, nrows: int) -> list[dict[str, int | str]]:
    return [{}]


def all_options(format_name: str, nrows: int) -> list[dict[str, int | str]]:
    """The default ones where many rows let no option choose what fewer do not, as they do for blocks."""
    return ALL_OPTION_SETS[format_name] if nrows < MANY_ROWS or format_name == "bsr" else [{}]


def instances_for_every_choice(scalar: Any, index: Any, folder: Path) -> dict[str, list[str]]:
    """Those of products, and of formats of all matrices, large ones with default options only.

    Other options than the default are tried with the usual types only: with all types they would take very long.
    """
    usual = (scalar, index) == (np.float64, np.int32)
    tables = (
        instances(scalar, index, folder, all_matrices(), all_options if usual else default_options),
        instances(scalar, index, folder, large_matrices(), default_options),
        instances_of_evchyb_in_memory(scalar, index, folder),
        product_instances(scalar, index, folder),
    )
    stems = sorted(set().union(*tables))
    return {stem: sorted({name for table in tables for name in table.get(stem, [])}) for stem in stems}


@cache
def asked_for(scalar: Any, index: Any, folder: Path) -> dict[str, list[str]]:
    """Instances for every choice, found by one worker for all, and anew only after a change of what decides on them."""
    texts = [file.read_bytes() for pattern in SOURCES for file in sorted(ROOT.glob(pattern))]
    key = hashlib.sha256(repr((np.__version__, scalar, index, texts)).encode()).hexdigest()[:24]
    kept = LOGS / f"instances-{key}.json"
    LOGS.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            unfinished = kept.with_suffix(f".{os.getpid()}")
            unfinished.write_text(json.dumps(instances_for_every_choice(scalar, index, folder)))
            unfinished.replace(kept)
    return json.loads(kept.read_text())


def compile_log(stem: str, names: list[str], scalar: Any, index: Any, architecture: str) -> str:
    """What the assembler says about instances of ``kernels/<stem>.cu``, compiled as nvrtc.py of the package does.

    It is kept in build/nvrtc, and asked again only after a change of the file, what that includes, or the compiler.
    """
    flags = [*device_flags(np.dtype(scalar), np.dtype(index)), f"-arch={architecture}", "--ptxas-options=-v"]
    texts = list(source_texts(kernel_directory() / f"{stem}.cu").values())
    compiler = (nvrtc.nvrtcVersion(), LIBRARY.stat().st_size, LIBRARY.stat().st_mtime_ns)
    key = hashlib.sha256(repr((compiler, flags, names, texts)).encode()).hexdigest()[:24]
    kept = LOGS / f"{stem}-{key}.log"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}")
        unfinished.write_text(compiled_log(stem, texts[0], names, [*flags, f"-I{kernel_directory()}"]))
        unfinished.replace(kept)
    return kept.read_text()


def compiled_log(stem: str, source: str, names: list[str], flags: list[str]) -> str:
    """What the assembler says; AssertionError with what the compiler says if it refuses."""
    program = checked(nvrtc.nvrtcCreateProgram(source.encode(), f"{stem}.cu".encode(), 0, [], []))
    for name in names:
        checked(nvrtc.nvrtcAddNameExpression(program, name.encode()))
    (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
    log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
    checked(nvrtc.nvrtcGetProgramLog(program, log))
    checked(nvrtc.nvrtcDestroyProgram(program))
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    return log.decode()


def checked(result: tuple) -> Any:
    status, *values = result
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    return values[0] if values else None


def asked_for_or_compiled_ahead(folder: Path) -> dict[str, list[str]]:
    """All that default options use on one architecture: the others have the same instances, in as many registers."""
    names = {stem: set(asked) for stem, asked in asked_for(np.float64, np.int32, folder).items()}
    for module in default_modules():
        names.setdefault(module.stem, set()).update(module.names)
    return {stem: sorted(names[stem]) for stem in sorted(names)}


def check_instances(names: dict[str, list[str]], scalar: Any, index: Any, architecture: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        logs = pool.map(lambda item: compile_log(*item, scalar, index, architecture), names.items())
        for stem, log in zip(names, logs, strict=True):
            kernels = re.findall(
                r"entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers", log, re.DOTALL
            )
            limit, spilled = REGISTERS_OF_FILES.get(stem, REGISTERS), SPILL_BYTES_OF_FILES.get(stem, 0)

            assert len(kernels) >= len(names[stem])  # all that are no templates are compiled anyway
            assert not [k for k in kernels if int(k[1]) > spilled], f"{stem}.cu: these spill more than {spilled} bytes"
            assert not [k for k in kernels if int(k[2]) > limit], f"{stem}.cu: these take more than {limit} registers"
            assert "warning" not in log, log


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_within_their_registers(emulation_folder, architecture):
    names = asked_for_or_compiled_ahead if architecture == "sm_90" else partial(asked_for, np.float64, np.int32)
    check_instances(names(emulation_folder), np.float64, np.int32, architecture)


@pytest.mark.slow
def test_every_kernel_of_every_file_is_asked_for_under_some_options(emulation_folder):
    names = asked_for(np.float64, np.int32, emulation_folder)
    for file in kernel_directory().glob("*/*.cu"):
        stem = f"{file.parent.name}/{file.stem}"
        declaration = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\(.*?\)\s+)?(\w+)\(", re.DOTALL)
        declared = set(declaration.findall(file.read_text()))

        assert declared == {name.partition("<")[0] for name in names.get(stem, [])}, file.name


@pytest.mark.slow
@pytest.mark.parametrize(("scalar", "index"), OTHER_TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_kernels_of_other_types_compile_within_their_registers(emulation_folder, scalar, index):
    check_instances(asked_for(scalar, index, emulation_folder), scalar, index, "sm_90")


@pytest.mark.slow
def test_kernels_of_complex_numbers_compile():
    """Of each file the first module that default options use. Registers are those of launch bounds, and some spill."""
    first = {module.stem: module for module in reversed(wanted_with(np.dtype(np.complex128), default_modules()))}
    with ThreadPoolExecutor(2) as pool:
        compiled = partial(compile_log, scalar=np.complex128, index=np.int32, architecture="sm_90")
        logs = pool.map(lambda module: compiled(module.stem, [*module.names]), first.values())
        for module, log in zip(first.values(), logs, strict=True):
            assert log.count("entry function") >= len(module.names), module.stem
