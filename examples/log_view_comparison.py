"""Run bratu3d.py with several matrix types and compare iterations, solutions and PETSc's -log_view.

    python log_view_comparison.py --ranks 2 --grid 48 --types aij pjds -ksp_type cg -pc_type jacobi

Options that this script does not know go to bratu3d.py, so to PETSc. The exit status is 1 when a run fails or when
the iteration counts or the solutions differ from those of the first type. On a GPU the runs use -log_view_gpu_time:
the times are those of the kernels, and the synchronisation that they need makes the whole run a little slower.
"""

import argparse
import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

import petsc4py

EVENTS = ("SNESSolve", "KSPSolve", "MatMult", "MatMultAdd", "GpufmtPlan", "GpufmtRefresh")
GPU_EVENTS = ("MatMult", "MatMultAdd", "KSPSolve")
SOLUTION_TOLERANCE = 1e-9  # equal iterates differ by rounding only, which the Krylov method amplifies
TIMEOUT_SECONDS = 600


@dataclass
class Event:
    """One line of -log_view: calls of one rank, longest time over the ranks, flops of all ranks."""

    count: int = 0
    seconds: float = 0.0
    flops: float = 0.0


@dataclass
class Run:
    matrix_type: str
    newton: int
    linear: int
    solution: Path
    events: dict = field(default_factory=dict)
    gpu: dict = field(default_factory=dict)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="MPI ranks (default 2)")
    parser.add_argument("--grid", type=int, default=48, help="grid points in each direction (default 48)")
    parser.add_argument("--types", nargs="+", default=["aij", "pjds"], help="matrix types; the first is the reference")
    parser.add_argument("--mpiexec", default=find_mpiexec(), help="starts MPI programs (default %(default)s)")
    arguments, petsc_options = parser.parse_known_args()
    if arguments.ranks < 1 or arguments.grid < 2:
        parser.error(f"--ranks {arguments.ranks} --grid {arguments.grid}: ranks must be at least 1, grid at least 2")
    if arguments.mpiexec is None:
        parser.error("PETSc knows of no mpiexec and there is none on PATH: name it with --mpiexec")
    return arguments, petsc_options


def find_mpiexec():
    """The mpiexec that PETSc was configured with, else the one on PATH; None without either."""
    config = petsc4py.get_config()
    variables = Path(config["PETSC_DIR"], config["PETSC_ARCH"], "lib/petsc/conf/petscvariables").read_text()
    line = re.search(r"^MPIEXEC *= *(.+)$", variables, re.MULTILINE)
    return shutil.which(Template(line[1]).safe_substitute(config) if line else "mpiexec") or shutil.which("mpiexec")


def run_bratu(arguments, petsc_options, matrix_type, folder):
    solution, table, text = (folder / f"{matrix_type}.{suffix}" for suffix in ("solution", "csv", "txt"))
    program = Path(__file__).with_name("bratu3d.py")
    command = [arguments.mpiexec, "-n", str(arguments.ranks), sys.executable, str(program)]
    for axis in "xyz":
        command += [f"-da_grid_{axis}", str(arguments.grid)]
    command += ["-dm_mat_type", matrix_type, "-snes_view_solution", f"binary:{solution}"]
    command += ["-log_view", f":{table}:ascii_csv,:{text}", "-log_view_gpu_time", *petsc_options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        sys.exit(f"{matrix_type}: no result after {TIMEOUT_SECONDS} s: {' '.join(command)}")
    iterations = re.search(r"Newton iterations (\d+), linear iterations (\d+)", output)
    if process.returncode != 0 or iterations is None:
        sys.exit(f"{output}\n{matrix_type}: the run failed with status {process.returncode}: {' '.join(command)}")
    run = Run(matrix_type, int(iterations[1]), int(iterations[2]), solution)
    run.events, run.gpu = read_log_csv(table), read_log_gpu_columns(text)
    return run


def read_log_csv(path):
    """The events of -log_view :file:ascii_csv that happened, summed over the stages; one line a rank there."""
    times, counts, events = defaultdict(float), defaultdict(int), defaultdict(Event)
    with path.open(newline="") as lines:
        for line in csv.DictReader(lines):
            name = line["Event Name"]
            if name not in EVENTS:
                continue
            key = name, line["Rank"]
            times[key] += float(line["Time"])
            counts[key] += int(line["Count"])
            events[name].flops += float(line["FLOP"])
    for name, rank in times:
        events[name].seconds = max(events[name].seconds, times[name, rank])
        events[name].count = max(events[name].count, counts[name, rank])
    return {name: event for name, event in events.items() if event.count > 0}


def read_log_gpu_columns(path):
    """The six GPU columns of the text form of -log_view (the CSV form has none); empty without a GPU."""
    lines = path.read_text().splitlines()
    if not any("CpuToGpu" in line for line in lines):
        return {}
    columns = {}
    for line in lines:
        words = line.split()
        if words and words[0] in GPU_EVENTS and words[0] not in columns:
            columns[words[0]] = words[-6:]
    return columns


def relative_difference(first, second):
    """Difference of two solutions in the 2-norm, relative to the first; the files hold them in natural order."""
    from petsc4py import PETSc  # not before the runs: the child processes start their own MPI

    def load(path):
        return PETSc.Vec().load(PETSc.Viewer().createBinary(str(path), "r", comm=PETSc.COMM_SELF))

    reference, other = load(first), load(second)
    scale = reference.norm()
    other.axpy(-1.0, reference)
    return other.norm() / scale


def print_table(runs):
    width = 32
    print(f"{'':14}" + "".join(f"{run.matrix_type:>{width}}" for run in runs))
    print(f"{'event':14}" + f"{'count':>10}{'time (s)':>11}{'Mflop/s':>11}" * len(runs))
    for name in EVENTS:
        events = [run.events.get(name) for run in runs]
        if any(events):
            print(f"{name:14}" + "".join(event_cells(event) for event in events))


def event_cells(event):
    if event is None:
        return f"{'-':>10}{'-':>11}{'-':>11}"
    return f"{event.count:>10}{event.seconds:>11.4f}{event.flops / event.seconds / 1e6:>11.0f}"


def print_gpu_table(run):
    print(f"\nGPU, {run.matrix_type}")
    print(f"{'event':14}{'Mflop/s':>10}{'to GPU':>10}{'MB':>10}{'from GPU':>10}{'MB':>10}{'flop on GPU %':>15}")
    for name, (rate, up, up_size, down, down_size, share) in run.gpu.items():
        print(f"{name:14}{rate:>10}{up:>10}{up_size:>10}{down:>10}{down_size:>10}{share:>15}")


def main():
    arguments, petsc_options = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        runs = [run_bratu(arguments, petsc_options, name, Path(folder)) for name in arguments.types]
        reference, *others = runs
        differences = [relative_difference(reference.solution, run.solution) for run in others]

    print(f"3-D Bratu problem, {arguments.grid}^3 points, {arguments.ranks} MPI ranks\n")
    for run in runs:
        print(f"{run.matrix_type:10} Newton iterations {run.newton}, Krylov iterations {run.linear}")
    failed = False
    for run, difference in zip(others, differences, strict=True):
        same = (run.newton, run.linear) == (reference.newton, reference.linear)
        agrees = difference <= SOLUTION_TOLERANCE
        failed |= not (same and agrees)
        verdict = "agrees" if same and agrees else "DIFFERS"
        print(
            f"{run.matrix_type} {verdict} with {reference.matrix_type}: iterations {'equal' if same else 'not equal'}, "
            f"relative difference of the solutions {difference:.1e} (limit {SOLUTION_TOLERANCE:.0e})"
        )
    print("\n-log_view: calls, longest time of a rank, rate of all ranks")
    print_table(runs)
    for run in runs:
        if run.gpu:
            print_gpu_table(run)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
