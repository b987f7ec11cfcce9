"""Hostile values of options, and for every option of the package what reads it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from option_page import NOT_SHOWN, is_ours, shown_options
from petsc4py import PETSc

MARK = "gpufmt_hostile_file"
"""In the names of files that values ask for: nothing may make one."""

PLAIN = (
    *("", " ", "-1", "0", "1", "-0", "+8", "007", "2147483647", "2147483648", "-2147483649", "4294967296", "1e400"),
    *("9223372036854775807", "9223372036854775808", "18446744073709551616", "nan", "NaN", "inf", "-inf", "1e999"),
    *("1.5", "8k", "8K", "0x20", "1_000", "32 ", " 32", "32;", "8,16", "8:16", "[8]", "8\t", "32\n", "true", "yes"),
    *("%s%n%s%n", "%p" * 40, "%1000000d", "$(touch {mark})", "`touch {mark}`", "; touch {mark}", "| touch {mark}"),
    *("../../{mark}", "/tmp/{mark}", "{mark}", "~/{mark}", "file://{mark}", "ascii:{mark}", ":{mark}:ascii_info"),
    *("auto;index=short", "32;sigma_window=1", "auto\nindex", "\\0", "\\x00", "a\0b", "\x01\x1b[31m", "\r", "\x7f"),
    *("Größe", "\u0661\u0662", "\u202e", "\U0001f4a5", "\ufeff8", "AUTO", "Auto", "auto ", "none", "default", "python"),
    *("x" * 63, "x" * 64, "x" * 10000, "9" * 63, "9" * 10000, "0" * 10000, "é" * 40, "-" * 5000, " " * 10000),
    *("1> {{ int x; }} template<", "SCALAR=int", "-DX=1", "-I/tmp", "'", '"', "\\", "<", ">", "*", "?", "#include"),
)


def hostile(seed: int, option: str, number: int, words: tuple[str, ...]) -> str:
    """The value of that number: those of PLAIN first, then such as chance makes of them and of the option's words."""
    if number < len(PLAIN):
        return PLAIN[number].replace("{mark}", MARK)
    rng = random.Random(f"{seed} {option} {number}")
    pieces = [*PLAIN, *words, *(str(rng.randint(-(2**k), 2**k)) for k in (3, 8, 16, 31, 63, 70))]
    kind = rng.random()
    if kind < 0.3:
        return str(rng.randint(-(2 ** rng.choice((4, 8, 16, 33, 65))), 2 ** rng.choice((4, 8, 16, 33, 65))))
    if kind < 0.5:
        return "".join(chr(rng.choice((rng.randrange(1, 128), rng.randrange(160, 0x3000)))) for _ in range(9))
    return "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 4))).replace("{mark}", MARK)[:20000]


@dataclass(frozen=True)
class Subject:
    """An option and what reads it.

    Attributes
    ----------
    words : values that it takes, as its help says
    ours : whether this package parses it, and not PETSc, whose messages name no option
    use : a computation that reads it; AssertionError if what comes out is wrong
    """

    option: str
    words: tuple[str, ...]
    ours: bool
    use: Callable[[], None]


@cache
def matrix() -> PETSc.Mat:
    """A grid of 8 x 8 points, five points a row, positive definite."""
    n = 8
    A = PETSc.Mat().createAIJ((n * n, n * n), nnz=5, comm=PETSc.COMM_SELF)
    for i in range(n * n):
        A[i, i] = 4.5
        for j in (i - 1 if i % n else -1, i + 1 if (i + 1) % n else -1, i - n, i + n):
            if 0 <= j < n * n:
                A[i, j] = -1.0
    A.assemble()
    return A


def multiply(name: str) -> None:
    B, A = matrix().convert(name, PETSc.Mat()), matrix()
    x, y = B.createVecs()
    x.setArray(np.arange(x.size) - 20.0)
    B.mult(x, y)
    assert np.allclose(y.array, (A * x).array, rtol=1e-12), "the product is wrong"
    B.destroy()


def parallel() -> None:
    B = PETSc.Mat().createAIJ((64, 64), nnz=5, comm=PETSc.COMM_SELF)
    B.setType("mpiaijpjds")
    B.setFromOptions()  # reads the limit of modes that one rank does not take
    B.setPreallocationNNZ(5)
    rowptr, columns, values = matrix().getValuesCSR()
    B.setValuesCSR(rowptr, columns, values)
    B.assemble()
    x, y = B.createVecs()
    x.set(1.5)
    B.mult(x, y)
    assert np.allclose(y.array, (matrix() * x).array, rtol=1e-12), "the product is wrong"
    B.destroy()


def product(name: str) -> None:
    A = matrix()
    B = A.convert("aijpjds", PETSc.Mat())
    kinds = {"AB": "matMult", "AtB": "transposeMatMult", "ABt": "matTransposeMult", "PtAP": "ptap", "RARt": "rart"}
    ask = {"ABC": lambda M: M.matMatMult(M, M)}.get(name) or (lambda M: getattr(M, kinds[name])(M))
    C, expected = ask(B), ask(A)
    x, y = C.createVecs()
    x.setArray(np.arange(x.size) - 20.0)
    C.mult(x, y)
    assert np.allclose(y.array, (expected * x).array, rtol=1e-10, atol=1e-9), "the sparse product is wrong"
    for M in (B, C, expected):
        M.destroy()


def where(option: str, value: str, use: Callable[[], None]) -> None:
    """`use`, with another option that it takes for the attacked one to be read."""
    options = PETSc.Options()
    options[option] = value
    try:
        use()
    finally:
        options.delValue(option)


def solve(name: str, preconditioner: str = "jacobi") -> None:
    B = matrix().convert("aijpjds", PETSc.Mat())
    B.setOption(PETSc.Mat.Option.SPD, True)
    ksp = PETSc.KSP().create(PETSc.COMM_SELF)
    ksp.setOperators(B)
    ksp.setType(name)
    ksp.getPC().setType(preconditioner)
    ksp.setTolerances(rtol=1e-9, max_it=200)
    ksp.setFromOptions()
    x, b = B.createVecs()
    b.set(1.0)
    ksp.solve(b, x)
    reason = ksp.getConvergedReason()
    assert reason <= 0 or (matrix() * x - b).norm() < 1e-6 * b.norm(), "the solution is wrong"
    ksp.destroy()
    B.destroy()


def interpolate() -> None:
    da = PETSc.DMDA().create([5], dof=1, stencil_width=1, comm=PETSc.COMM_SELF)
    da.setMatType("aijpjds")
    fine = da.refine()
    P, _ = da.createInterpolation(fine)
    assert P.getSize() == (9, 5), "the interpolation is wrong"
    for thing in (P, fine, da):
        thing.destroy()


PRODUCTS = {
    "matmatmult": "AB",
    "mattransposematmult": "AtB",
    "matmattransmult": "ABt",
    "matptap": "PtAP",
    "matrart": "RARt",
    "matmatmatmult": "ABC",
}
PARSED_BY_PETSC = re.compile(r"_backend_cpu$|_via$|host_values$|halo_timeout$|^ksp_|^pc_|^gpufmt_")


def user_of(owner: str, option: str) -> Callable[[], None]:
    """What reads an option of a table of docs/options.md."""
    if option.startswith("mat_halo_"):
        return parallel
    if option.startswith("mat_rmerge_"):
        return lambda: where("mat_product_algorithm", "rmerge", lambda: product("AB"))  # on the host it is PETSc's
    if owner == "product":
        name = re.sub(r"_(via|backend_cpu)$", "", option)
        return lambda: product(PRODUCTS.get(name, "AB"))
    if option.startswith("ksp_"):
        return lambda: solve(owner)
    if option.startswith("pc_gamg_"):
        return lambda: solve("cg", "gamg")
    if option == "gpufmt_interpolation":
        return interpolate
    return lambda: multiply(f"aij{owner}")


def subjects() -> Iterator[Subject]:
    """Every option of the package, as the page of options has them."""
    seen = set()
    for owner, options in [*shown_options().items(), ("pjds", list(NOT_SHOWN))]:
        for option in options:
            own = option.name.startswith((f"mat_{owner}_", "mat_halo_", "pc_gamg_gpufmt_", "gpufmt_"))
            if option.name in seen or not (own or is_ours(option.name)):
                continue
            seen.add(option.name)
            words = tuple(option.values.split(", ")) if option.values else ()
            ours = not PARSED_BY_PETSC.search(option.name)
            yield Subject(option.name, words, ours, user_of(owner, option.name))
