"""The page of what was attacked, and how often: `python benchmarks/reliability_report.py > docs/reliability.md`.

Reads what `python tests/reliability --json benchmarks/results/reliability` has written, failures included; runs on a
GPU are in `gpu/` there, and follow those on the host.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results" / "reliability"

MOST_FAILURES = 40
"""More of one attack are told in one line a test."""

INTRODUCTION = """\
# What can be relied on

Made by `python benchmarks/reliability_report.py > docs/reliability.md` from `benchmarks/results/reliability/`; do not
edit this page.

The package is attacked from outside: hostile input, failures on purpose, long runs, random sequences of operations
beside a twin. An attack counts what it has tried, and keeps a line for whatever ended badly, from which it can be
tried again. Each has defects put in on purpose that its test has to find.
"""

PROMISES = """\
## What is promised

1. A product with a vector is right to within `(nnz_row + 2) * eps * (|A| |x|)_row`, or it is an error. Nothing
   becomes zero or old values without a word. Where a solver leaves a solve to PETSc's own method, `-info` and
   `-ksp_view` say why.
2. A failure is an error of PETSc with its code. A plan that fails says what was asked, where, what was found and what
   to change, in one line ([messages](errors.md)). What fails in this package on one rank is an error on all of them.
3. After a failed operation the matrix is as it was, or as it was to become, and can be used. So it is after Ctrl-C,
   which reaches the program.
4. The same program gives the same bits in every run on the same machine with the same number of ranks: products,
   transposed and sparse ones, multigrid and solvers. The type `gpufmt` does with `-mat_gpufmt_timed_after 0`.
5. What goes is given back: matrices, plans and solvers that come and go leave no memory behind.
6. An option that goes is accepted for one release more, with PETSc's warning.
7. No data are run as code: neither files nor options, and no shell is started with what they say. Compiled kernels
   are loaded from folders that are the user's alone, each with the digest that it was written with.
8. A matrix is used by one thread at a time. Several threads of Python may have matrices of their own.
"""

KNOWN = """\
## What is known to be wrong

- Of the attacks, those that are named with a GPU below have run on one, or on four, most of them in part. Of `limits`
  padded matrices are in full there, 26 GB of them; rows of 10^8 entries did not end in 220 s, as most formats give a
  row to one thread, or to a few.
- On the host sparse products are PETSc's own unless asked for by `rmerge`, and so is what goes wrong in them: under
  MAT_REUSE_MATRIX, after entries have come to a factor, they are wrong without a word. Products of ours are an error.
- Of `twins`, 160 sequences on one rank and 30 on three with one GPU found nothing. On two ranks with one GPU, with a
  CUDA-aware Open MPI 4.1, MatCreateSubMatrix() is PETSC_ERR_MPI of a parallel matrix that is bound to the host and
  was duplicated: `aijcusparse` does the same (MPI_ERR_BUFFER in sfbasic.c:49 of PETSc 3.26.1, below mpiaij.c:3205).
- Of the 10200 sequences of `twins` on the host one ended badly, by a defect of the attack. Of as many others, at
  commit 2c6d32e and with seed 0, six did. Two were one defect of the package, a crash in products on several ranks
  under MAT_REUSE_MATRIX, which is mended since. One is PETSc's own, two were the attack's, and one ended well each time
  it was tried again, alone. All seven end well by now.
- Products of type aij on several ranks are wrong under MAT_REUSE_MATRIX, or crash, where the matrix has the same
  entries and its off-diagonal block has other columns than before, as after MatZeroRows() and MatLoad()
  (`mpimatmatmult.c:1728` in PETSc 3.26.1). Products of ours are an error there: make them anew.
- Of the million mutated files for each reader, half was read at earlier commits (445000 at a6adbc6, 70000 at ba675c7).
  Three had ended badly there: a MemoryError, an AttributeError and an error of Python's CSV reader. All are mended, and
  the files read again.
- Of 560 interrupts one was not told of: SIGINT came in the microseconds between the library's call of the planner and
  the first line where Python catches it, so the error said that no plan was made and not why, and no KeyboardInterrupt
  followed. It is held until then by now; a test sends it at that very place, and the attack was run again. Another one
  was lost the same way where Python is traced or profiled, if it came while a plan was given back; that is mended too.
- After an application of PCMG or PCGAMG that fails, PETSc keeps the right-hand side, which is not its own, and destroys
  it later: a program that ended by Ctrl-C within a solve crashed at its end, in 11 of 12 tries. These types hold it
  then by now where this package is loaded. In a program without it the same failure of another part still crashes.
- Memory of the host grows at first where GPUs are several or shared, and not after that: by 26 MB in the first 300
  matrices that come and go on four ranks with one GPU, by 2 MB in the second hundred thousand products on four GPUs.
  What is below says so of each block of these runs, since the first was too short, or too early.
- `-root_device_context_stream_type nonblocking`, with which PETSc has a stream of its own on the device, makes solves
  wrong, with PETSc's own types too: in PETSc 3.26 some operations of vectors stay on the default stream (those of its
  *null context*, `dcontext.cxx:917`, such as VecAXPY() and VecReciprocal()), others go to the new one, as products
  and solvers of `aijcusparse` and of ours do, and nothing orders the two. On an H200, in a program without this
  package, 189 of 400 checks of VecCopy(), VecNorm() and VecAXPY() failed, and all of 40 solves by `cg` with
  `aijcusparse`.
- compute-sanitizer's memcheck, initcheck, racecheck and synccheck find nothing in solves of Krylov methods, but in
  loops of CUDA graphs synccheck stops products in single precision, at a barrier that all threads of a block come to;
  outside of loops the same kernel passes. Where other processes use the GPU too, memcheck reports an illegal address in
  the first loop, of no kernel, and racecheck crashes there, each time; alone both find nothing, and 27 runs without the
  tool, twelve at a time on that GPU, were right. Others saw it in loops that read what was allocated shortly before
  (NVIDIA/warp, issue 1406). `run_on_gpu.sh sanitize` runs one program after the other.
- PETSc ends by a wait for other ranks, in PetscFinalize(), if on one rank alone a monitor of petsc4py still has a
  vector of all ranks when it is collected, with `aij` too: call `monitorCancel()` or `destroy()`.
- PETSc's MatMult() leaves its operand locked when the product fails: take another vector ([messages](errors.md)).
  Solvers of PETSc are then to be made anew, since KSPReset() and KSPDestroy() fail on their vectors.
- If memory runs out on one rank within a function of PETSc that goes on with other ranks, these wait, with any type:
  MatCreateSubMatrix(), which GAMG calls where it takes coarse levels to fewer ranks, is one.
- PETSc loses matrices that it is making where memory runs out: in MatConvert(), MatTranspose(), MatAXPY(),
  MatCreateSubMatrix(), MatCreateMPIAIJWithSeqAIJ(), MatSetPreallocationCOO() and PCSetUp_GAMG().
- The set-up of PETSc's KSPCHEBYSHEV crashes in a second solve if the matrix got a NaN within the first, with `aij`
  too.
- Threads of C that are in PETSc at the same time have not been tried.
- Sanitizers of the compiler watch the library on the host and C programs of the tests, not Python, PETSc and MPI.
  They do not look for leaks, which other attacks do.
- The twelve builds of `other_builds` were run at cd010f6 and later commits, as each row says. In two of them a test
  failed at first: one gave PETSc a direction that is not of length 1, which its checks refuse, one took double
  precision for granted. Both are mended, and their builds run again.
- In a PETSc with complex scalars, single precision or 64-bit indices no attack has been run but `other_builds`:
  tests, programs of two and three ranks and, with real scalars, twins. Products with a dense matrix crash in PETSc
  3.25 where a rank has none of its rows (`mpimatmatmult.c:501`); twins leave them out there. Tests of Krylov solvers
  with complex scalars on several ranks, and of times and bytes with other types, are not made. Of PETSc's main branch
  only a state of before 3.26 was at hand.
- Of PETSc's own tests all have been run with `pjds`, `gpufmt`, `bsr` and `csradaptive`, the last two at later commits;
  with other types, which share their code but for products with a vector, those of `mat`.
- The host of these runs has 23 GB of memory: for matrices whose padding passes 2^31 entries `limits` asks for 60.
- In its debugging configuration PETSc has ranks wait for each other where else they do not. MatSetFromOptions() does
  not end, with `aij` too, if `-mat_bind_below` is above the rows of some ranks alone. A failure on one rank in front
  of PCApply() of PCJACOBI lets others wait in it, and a late rank is waited for. Tests leave these three out there.
- PETSc 3.24 converts a parallel `aij` to a `sell` with wrong products, and its MatDiagonalSet() of more rows than
  columns writes beyond the entries of `aij`.
- Before PETSc 3.26 KSPCGUseSingleReduction() after a set-up crashes, and so does `-pc_gamg_asm_hem_aggs`, with `aij`
  too.
- PETSc with CUDA and complex scalars, and with single precision and 64-bit indices, has had the tests for a GPU that
  start no other ranks (commit fab18d6), and `products`, `galerkin`, `coordinates` and `hierarchies` of `tests/mpi` on
  two ranks, which end well in both. With complex scalars 2552 passed and none failed. In single precision 2575 passed
  and ten failed, one test in ten formats: it gives an array of doubles. It was mended, and has not run there since.
- Of the 170 tests for a GPU that start ranks, 99 have run on one GPU (cfc5faf), and 68 others, with 22 of the 99, on
  two (dad0021, fef5886). All pass. Six at a time on two GPUs, two of them took longer than the 120 s they have; alone
  they take 8, and six like these, side by side without a limit, 110: what shares GPUs waits for each other.
"""

CLASSES = """\
## What is tested, and where

Beside attacks, named with their sections below, tests of `make test`, which run on a GPU by `pytest -m gpu`.

| what | by |
| --- | --- |
| 27 shapes of matrices in all formats and settings: products, sums, smoothing, diagonals, new values | \
`tests/formats/test_formats.py`, on the host, in emulation, on a GPU |
| rows within the promised bound; repeated, unsorted and stored zero entries; NaN and infinities; ranks without rows | \
[Products](#products) |
| histories and solutions as on one rank of the host | [Histories](#histories) |
| sums, sparse products in both phases, reuse with other values and other patterns, beside `aij` | [Twins](#twins), \
`tests/spgemm/`, `tests/native/matrix/test_matmult.py` |
| sizes beyond 2^31 | `limits`, `tests/reliability/test_limits.py`, and where plans narrow a number, beside them |
| other scalars, indices, releases, interpreters, MPIs | [Other builds](#other-builds) |
| memory that runs out, on the host and on a GPU | [Allocations](#allocations) |
| failures within a plan, a product, a solve; Ctrl-C | [Planner errors](#planner-errors), \
[Failing solves](#failing-solves), [Interrupts](#interrupts) |
| a rank that is killed | [Killed ranks](#killed-ranks) |
| several threads | [Threads](#threads) |
| accesses, races, undefined behaviour | [Sanitizers](#sanitizers); compute-sanitizer in `benchmarks/run_on_gpu.sh` |
| the same bits | [Same bits](#same-bits) |
| PETSc's stream alone, no copies and no memory taken in steady solves | `tests/backends/test_cuda_backend.py`, \
`tests/native/test_device.py` |
| nothing is lost in long runs | [Long runs](#long-runs) |
| files of others | [Files](#files) |
| no pickle, eval, exec or shell | `tests/reliability/test_code_rules.py` |
| options of others | [Option values](#option-values) |
| caches: many processes, damage, folders of others | [Cold start](#cold-start), `tests/test_user_cache.py` |
| one GPU for each rank, several ranks on one, the second one alone | `tests/mpi/test_mpi.py` |
| what PETSc itself tests | [Petsc tests](#petsc-tests) |
| what went wrong in other libraries | [Upstream](#upstream) |
| lines that nothing executes | [Covered lines](#covered-lines) |
"""

AGAIN = """\
## What was tried

`make test` runs a small part of each attack; all of them, or those that `ATTACKS` names:

    make test-long ATTACKS="twins files"

*Asked for* is the number that the run was to try; which share of a full run that is stands in its section.

| attack | on | tried | asked for | ended badly |
| --- | --- | --: | --: | --: |
"""


def page(results: Sequence[dict[str, Any]]) -> str:
    """The page of the results of attacks, in the order of their names, and for each the host before GPUs."""
    attacks: dict[str, list[dict[str, Any]]] = {}
    for result in sorted(results, key=lambda result: (result["attack"], result["environment"].get("gpu") or "")):
        attacks.setdefault(result["attack"], []).append(result)
    summary = AGAIN + "".join(_total(result) for runs in attacks.values() for result in runs)
    parts = [INTRODUCTION, PROMISES, KNOWN, CLASSES, summary, *map(_section, attacks.values())]
    return "\n".join(parts).rstrip() + "\n"


def _total(result: dict[str, Any]) -> str:
    tried, asked = (sum(row[name] for row in result["rows"]) for name in ("tried", "asked"))
    badly = sum(len(row["failures"]) for row in result["rows"])
    name = _name(result)
    return f"| [{name}](#{name.lower().replace(' ', '-')}) | {_place(result)} | {tried} | {asked} | {badly} |\n"


def _name(result: dict[str, Any]) -> str:
    return result["attack"].replace("_", " ").capitalize()


def _place(result: dict[str, Any]) -> str:
    environment = result["environment"]
    if not environment.get("gpu"):
        return "host"
    return f"{environment['gpu_count']} x {environment['gpu']}" if environment["gpu_count"] > 1 else environment["gpu"]


def _section(runs: Sequence[dict[str, Any]]) -> str:
    lines = [f"## {_name(runs[0])}", "", runs[0]["about"], ""]
    for result in runs:
        environment, rows, place = result["environment"], result["rows"], _place(result)
        lines += [
            f"On {'the host' if place == 'host' else place}, PETSc {environment['petsc']}, commit "
            f"{environment['commit']}, {environment['date']}: {_minutes(result['seconds'])}, share "
            f"{result['share']:g}, seed {result['seed']}.",
            "",
            *(_kinds(rows) if "counts" in rows[0] else _tries(rows)),
            "",
        ]
        failures = [failure for row in rows for failure in row["failures"]]
        if failures:
            lines += ["Ended badly:", "", *(f"    {failure}" for failure in _shown(failures)), ""]
    return "\n".join(lines)


def _shown(failures: Sequence[str]) -> Sequence[str]:
    """All of them, or where they are many the first one of each test, whose parameters begin with a bracket."""
    if len(failures) <= MOST_FAILURES:
        return failures
    firsts: dict[str, list[str]] = {}
    for failure in failures:
        firsts.setdefault(re.split(r"\[|: (?=\S+Error|assert|failed on)", failure)[0], []).append(failure)
    return [same[0] + (f" (and {len(same) - 1} more)" if same[1:] else "") for same in firsts.values()]


def _tries(rows: Sequence[dict[str, Any]]) -> list[str]:
    header = ["| what | tried | asked for | ended badly | remark |", "| --- | --: | --: | --: | --- |"]
    return [*header, *(_line(row) for row in rows)]


def _kinds(rows: Sequence[dict[str, Any]]) -> list[str]:
    """How many of each kind, and what explains those that differ."""
    rows, without = [row for row in rows if row["tried"]], sum(not row["tried"] for row in rows)
    kinds = [kind for kind in rows[0]["counts"] if any(row["counts"][kind] for row in rows)]
    lines = [f"| what | asked for | {' | '.join(kinds)} |", f"| --- |{' --: |' * (1 + len(kinds))}"]
    for row in rows:
        what = row["what"].replace("|", "\\|")
        lines.append(f"| {what} | {row['asked']} | {' | '.join(str(row['counts'][kind]) for kind in kinds)} |")
    if without:
        lines += ["", f"{without} more rows have nothing to compare, or were not run."]
    whys: dict[str, list[str]] = {}
    for row in rows:
        for why, runs in row["explained"].items():
            whys.setdefault(why, []).extend(runs)
    if whys:
        lines += ["", "| explained by | runs | in |", "| --- | --: | --- |"]
    for why, runs in sorted(whys.items(), key=lambda known: -len(known[1])):
        programs = sorted({run.split(": ", 1)[1].split()[0] for run in runs})
        lines.append(f"| {why} | {len(runs)} | {', '.join(programs)} |")
    return lines


def _line(row: dict[str, Any]) -> str:
    what, remark = (row[name].replace("|", "\\|") for name in ("what", "remark"))
    return f"| {what} | {row['tried']} | {row['asked']} | {len(row['failures'])} | {remark} |"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path, help="JSON files (default: those of benchmarks/results)")
    files = parser.parse_args().results or sorted(RESULTS.rglob("*.json"))
    print(page([json.loads(file.read_text()) for file in files]), end="")


if __name__ == "__main__":
    main()
