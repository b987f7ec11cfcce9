"""-citations prints the papers of what a program has used, each once."""

import sys

import launch
import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, petsc4py
petsc4py.init(sys.argv)
from petsc4py import PETSc
import petsc_gpufmt
for name in sys.argv[1].split(","):
    A = PETSc.Mat().createAIJ((4, 4), nnz=1)
    A.setType(name)
    A.setUp()
    A.assemble()
    A.shift(1.0)
    A.mult(*A.createVecs())
A.matMult(A)
"""
OF_PAPER = {
    "Kreutzer2012": ["pjds", "ellpack", "ellpackr"],
    "Guo2016": ["evchyb", "csrscalar", "csrvector", "csradaptive"],
    "Abdelfattah2016": ["bsr"],
    "Cevahir2009": ["jds"],
}


def keys_printed(formats, *options):
    finished = launch.run([sys.executable, "-c", PROGRAM, ",".join(formats), "-citations", *options])
    assert finished.status == 0, finished
    return sorted(line.partition("{")[2].rstrip(",") for line in finished.output.splitlines() if line.startswith("@"))


def test_formats_and_products():
    formats = [name for names in OF_PAPER.values() for name in names]
    printed = keys_printed(formats, "-matmatmult_via", "rmerge")
    assert set(printed) >= {*OF_PAPER, "Gremse2015"} and len(printed) == len(set(printed)), printed


def test_what_is_chosen_is_cited_and_nothing_else():
    printed = keys_printed(["gpufmt"], "-mat_gpufmt_format", "jds")
    assert "Cevahir2009" in printed and not {*printed} & {"Gremse2015", "Kreutzer2012", "Guo2016"}, printed
