"""Which of PETSc's own tests run with our matrix types.

The sources, arguments and expected outputs are those of the `TEST` blocks at the foot of each PETSc program
(release 3.26), with the matrix type replaced by ours. A case with several ranks is run with each number of them.
`{{a b}}` in the arguments means, as in PETSc, one run for each of the words, all with the same expected output.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

RELEASE = (3, 26)

MATRICES = "$PETSC_SRC/share/petsc/datafiles/matrices"
EMPTY = "empty.out"

_LOOP = re.compile(r"\{\{([^}]*)\}\}")


@dataclass(frozen=True)
class Case:
    """One row of the table.

    source: program below `src/` of the PETSc sources, without `.c`.
    ranks: numbers of MPI ranks to run it with.
    arguments: the command line.
    expected: file in `output/` beside the source.
    filters: keys of FILTERS (filters.py), applied in this order to both outputs.
    multiplies: whether the program multiplies a matrix of ours by a vector, in one of the runs at least.
    """

    source: str
    ranks: tuple[int, ...]
    arguments: str
    expected: str
    filters: tuple[str, ...] = ()
    multiplies: bool = True

    @staticmethod
    def parent(argument: str) -> str:
        """The argument with our matrix types replaced by aij, and our algorithm of products by one of PETSc's."""
        if argument == "backend":
            return "scalable"
        return re.sub(r"\b((?:seq|mpi)?)(?:aij)?pjds\b", r"\1aij", argument)

    def command_lines(self) -> list[list[str]]:
        """The argument lists of the runs, one for each combination of the words in `{{...}}`."""
        pieces = _LOOP.split(self.arguments)
        choices = [piece.split() if i % 2 else [piece] for i, piece in enumerate(pieces)]
        return ["".join(choice).split() for choice in itertools.product(*choices)]


MAT = "mat/tests/"
KSP = "ksp/ksp/tutorials/"
KSP_TESTS = "ksp/ksp/tests/"
SNES = "snes/tutorials/"
SNES_TESTS = "snes/tests/"
TS = "ts/tutorials/"

# The aggregates of agg, and with them its results, on several ranks too; aij does not know the option.
_ORDER_OF_AGG = "-pc_gamg_gpufmt_order petsc -options_left no"
# Our own parallel products, without a device too. PETSc knows the word, for products of aij that a program also makes.
_OUR_PRODUCTS = "-matmatmult_via backend -matptap_via backend"

MATRIX_CASES = (
    # Norms, transposes, AXPY, MatView.
    Case(MAT + "ex2", (1,), "-mat_type mpiaijpjds", "ex2_21.out", ("type", "ranks")),
    Case(MAT + "ex2", (3,), "-mat_type mpiaijpjds", "ex2_23.out", ("type", "ranks")),
    Case(MAT + "ex2", (1,), "-mat_type seqaijpjds -rectA", "ex2_11_A.out", ("parent", "object")),
    Case(MAT + "ex2", (1,), "-mat_type seqaijpjds -rectB", "ex2_11_B.out", ("parent", "object")),
    Case(MAT + "ex2", (2,), "-mat_type mpiaijpjds -rectA", "ex2_3.out", ("parent",)),
    # The four products, diagonal scaling.
    Case(MAT + "ex5", (1,), "-mat_type seqaijpjds -rectA", "ex5_11_A.out", ("type",)),
    Case(MAT + "ex5", (1,), "-mat_type seqaijpjds -rectB", "ex5_11_B.out", ("type",)),
    Case(MAT + "ex5", (1,), "-mat_type mpiaijpjds", "ex5_21.out", ("type",)),
    Case(MAT + "ex5", (3,), "-mat_type mpiaijpjds", "ex5_23.out", ("type",)),
    Case(MAT + "ex5", (1,), "-mat_type mpiaijpjds -test_diagonalscale", "ex5_31.out", ("type",)),
    Case(MAT + "ex5", (3,), "-mat_type mpiaijpjds -test_diagonalscale", "ex5_33.out", ("type",)),
    # Submatrices.
    Case(
        MAT + "ex4",
        (3,),
        "-mat_type aij -test_reuse -test_empty_rank {{0 1}} -reuse_mat_type mpiaijpjds",
        "ex4_singleis_reuse.out",
        ("reuse",),
    ),
    Case(MAT + "ex59", (1,), "-mat_type aijpjds", "ex59_1.out", ("parent",), multiplies=False),
    Case(MAT + "ex59", (3,), "-mat_type aijpjds", "ex59_2.out", ("parent",), multiplies=False),
    Case(MAT + "ex59", (3,), "-mat_type aijpjds -test_matmatmult", "ex59_kok.out", ("type",), multiplies=False),
    # MatZeroRowsColumns and MatConvert.
    *(
        Case(
            MAT + "ex18",
            (1,),
            f"-diag {diagonal} -convname {to}cusparse -zerorhs 0 -mat_type {of}cusparse".replace("cusparse", "pjds"),
            f"ex18_cusparse_1_diag-{diagonal}_convname-{to}cusparse_mat_type-{of}cusparse.out",
            ("parent", "vectors"),
        )
        for diagonal, to, of in itertools.product(("0.12", "-0.13"), ("seqaij", "mpiaij"), ("seqaij", "mpiaij"))
    ),
    *(
        Case(
            MAT + "ex18",
            (3,),
            f"-diag {diagonal} -convname mpiaijpjds -zerorhs 0 -mat_type mpiaijpjds",
            f"ex18_cusparse_3_diag-{diagonal}.out",
            ("parent", "vectors"),
        )
        for diagonal in ("0.12", "-0.13")
    ),
    # As the local matrix of MATIS.
    Case(
        MAT + "ex23",
        (3,),
        "-m 12 -n 17 -test_trans -nr 2 -nc 3 -diffmap -permmap -mat_is_localmat_type aijpjds",
        "ex23_13.out",
        ("type", "inodes", "storage", "aij alone"),
    ),
    # Matrix products.
    Case(
        MAT + "ex62",
        (1, 3),
        f"-A_mat_type {{{{aijpjds aij}}}} -B_mat_type aijpjds -mat_form_explicit_transpose "
        f"-fA {MATRICES}/tiny_system -fB {MATRICES}/tiny_system",
        EMPTY,
    ),
    Case(
        MAT + "ex62", (1,), f"-mat_seqaij_type seqaijpjds -fA {MATRICES}/tiny_system -fB {MATRICES}/tiny_system", EMPTY
    ),
    Case(MAT + "ex70", (1,), "-local {{0 1}} -A_mat_type seqaijpjds -testshellops {{0 1}}", EMPTY),
    Case(
        MAT + "ex70",
        (2,),
        "-local {{0 1}} -A_mat_type mpiaijpjds -testnest 0 -testmatmatt 0 -matproduct_batch_size 3",
        EMPTY,
    ),
    Case(MAT + "ex93", (1, 2), "-mat_type aijpjds", EMPTY),
    Case(MAT + "ex93", (2,), "-mat_type aijpjds -matptap_via scalable", EMPTY),
    Case(MAT + "ex96", (1, 3), "-Mx 10 -My 5 -Mz 10 -dm_mat_type aijpjds", EMPTY),
    Case(
        MAT + "ex96",
        (3,),
        "-Mx 10 -My 5 -Mz 10 -dm_mat_type aijpjds -matmatmult_via scalable -matptap_via {{scalable allatonce}}",
        EMPTY,
    ),
    Case(MAT + "ex102", (1, 2), "-A_mat_type aijpjds -low_rank {{0 1}} -use_c {{0 1}}", EMPTY, multiplies=False),
    Case(MAT + "ex111", (1,), "-dm_mat_type aijpjds", "ex111_1.out", ("parent",)),
    Case(MAT + "ex111", (2,), "-dm_mat_type aijpjds -matmatmatmult_via scalable", "ex111_2.out", ("parent",)),
    Case(
        MAT + "ex237",
        (1,),
        f"-f {MATRICES}/spd-real-int32-float64 -bs 1,2,3 -N 1,2,18 -check -ABt -convert_aij {{{{false true}}}} "
        "-type aijpjds",
        EMPTY,
        ("benchmark",),
    ),
    Case(MAT + "ex250", (1, 3, 4), "-mat_type aijpjds", "ex250_1.out", ("type", "object"), multiplies=False),
    Case(MAT + "ex251", (1, 2), "-mat_type aijpjds", "ex251_1.out", ("type", "object"), multiplies=False),
    Case(MAT + "ex93", (2,), f"-mat_type aijpjds {_OUR_PRODUCTS}", EMPTY),
    Case(MAT + "ex96", (2, 3), f"-Mx 10 -My 5 -Mz 10 -dm_mat_type aijpjds {_OUR_PRODUCTS}", EMPTY),
    Case(
        MAT + "ex250",
        (2, 3, 4),
        f"-mat_type aijpjds {_OUR_PRODUCTS} -mattransposematmult_via backend",
        "ex250_1.out",
        ("type", "object"),
        multiplies=False,
    ),
    Case(MAT + "ex261", (1, 2), "-mat_type aijpjds", EMPTY, multiplies=False),
    Case(MAT + "ex272", (1, 2), "-a_mat_type diagonal -p_mat_type aijpjds", EMPTY),
    Case(MAT + "ex272", (1, 2), "-a_mat_type aijpjds -p_mat_type {{diagonal constantdiagonal}} -n 10 -m 10", EMPTY),
    Case(MAT + "ex274", (2,), "-mat_type aijpjds", EMPTY, multiplies=False),
    Case(MAT + "ex309", (1, 2), "-mat_type aijpjds", EMPTY),
    Case(MAT + "ex319", (1,), "-A_mat_type aijpjds -block_diagonal {{0 1}}", EMPTY, multiplies=False),
    Case(
        MAT + "ex319",
        (3,),
        "-A_mat_type aijpjds -matproduct_batch_size {{0 3}} -tridiagonal {{0 1}}",
        EMPTY,
        multiplies=False,
    ),
    # Assembly from coordinates.
    Case(
        MAT + "ex123",
        (1,),
        "-mat_type {{seqaijpjds mpiaijpjds}} -localapi {{0 1}} -neg {{0 1}}",
        "ex123_1.out",
        ("type", "object"),
    ),
    Case(
        MAT + "ex123", (3,), "-mat_type aijpjds -loc -localapi {{0 1}} -neg {{0 1}}", "ex123_3.out", ("type", "object")
    ),
    Case(
        MAT + "ex123",
        (4,),
        "-mat_type aijpjds -loc -locdiag 0 -localapi {{0 1}} -neg {{0 1}}",
        "ex123_4.out",
        ("type", "object"),
    ),
    Case(MAT + "ex254", (1, 2, 3), "-mat_type aijpjds -ignore_remote {{0 1}} -missing_diagonal {{0 1}}", EMPTY),
    Case(MAT + "ex254", (1,), "-mat_type aijpjds -ncoos 3", EMPTY),
    # DMDA matrices, SOR, factorisations.
    Case(MAT + "ex129", (1,), "-dm_mat_type aijpjds -dof 1", EMPTY),
    Case(MAT + "ex129", (1,), "-dm_mat_type aijpjds -dof 1 -inplacelu", EMPTY),
    # MatAXPY with all structures, MatDuplicate, MatCreateMPIAIJWith*, MatLoad, changed values and patterns.
    Case(MAT + "ex132", (1,), "-view -mat_type aijpjds", "ex132_1.out", ("type", "object")),
    Case(MAT + "ex132", (1,), "-view -mat_type aijpjds -mat_nonsym", "ex132_2.out", ("type", "object")),
    Case(MAT + "ex132", (2,), "-view -mat_type aijpjds", "ex132_1_par.out", ("type", "object")),
    Case(MAT + "ex132", (2,), "-view -mat_type aijpjds -mat_nonsym", "ex132_2_par.out", ("type", "object")),
    Case(
        MAT + "ex171",
        (4,),
        f"-f {MATRICES}/ns-real-int32-float64 -malloc_dump -mat_type aijpjds",
        "ex171_1.out",
        multiplies=False,
    ),
    Case(MAT + "ex176", (1, 3), "-mat_type aijpjds", EMPTY, multiplies=False),
    Case(MAT + "ex236", (2,), "-mat_type aijpjds", "ex236_1.out", ("type",)),
    Case(MAT + "ex301", (1, 2), "-mat_type aijpjds", EMPTY),
    Case(MAT + "ex303", (2,), "-mat_type aijpjds", EMPTY),
)

_REFINE_ALWAYS = "-ksp_orthogonalization_cgs_refinement_type refine_always"

LINEAR_SOLVER_CASES = (
    Case(
        KSP_TESTS + "ex50",
        (1,),
        "-mat_type aijpjds -bs {{1 2 3 4 5 6 7 8 11 15}} -pc_type {{pbjacobi ilu}}",
        EMPTY,
    ),
    Case(KSP_TESTS + "ex60", (1,), "-ksp_view -mat_type aijpjds", "ex60_0.out", ("parent", "storage")),
    Case(KSP_TESTS + "ex60", (4,), "-ksp_view -mat_type aijpjds", "ex60_1.out", ("parent", "storage")),
    Case(KSP_TESTS + "ex60", (4,), "-user_subdomains -ksp_view -mat_type aijpjds", "ex60_2.out", ("parent", "storage")),
    Case(
        KSP_TESTS + "ex87",
        (1, 4),
        "-ksp_type preonly -pc_type fieldsplit -fieldsplit_ksp_type preonly -fieldsplit_pc_type redundant "
        "-fieldsplit_redundant_ksp_type preonly -fieldsplit_redundant_pc_type lu -pc_fieldsplit_type schur "
        "-pc_fieldsplit_schur_fact_type full -pc_fieldsplit_schur_precondition full -mat_type aijpjds -M {{1 2}}",
        "ex87.out",
    ),
    Case(KSP + "ex1", (1,), f"-ksp_monitor {_REFINE_ALWAYS} -mat_type aijpjds", "ex1_1.out"),
    Case(
        KSP + "ex1",
        (1,),
        f"-pc_type sor -pc_sor_symmetric -ksp_monitor {_REFINE_ALWAYS} -mat_type aijpjds",
        "ex1_2.out",
    ),
    Case(KSP + "ex1", (1,), f"-pc_type eisenstat -ksp_monitor {_REFINE_ALWAYS} -mat_type aijpjds", "ex1_3.out"),
    Case(KSP + "ex2", (1,), f"-ksp_monitor -m 5 -n 5 {_REFINE_ALWAYS} -mat_type pjds", "ex2_1.out"),
    Case(KSP + "ex2", (2,), f"-ksp_monitor -m 5 -n 5 {_REFINE_ALWAYS} -mat_type pjds", "ex2_2.out"),
    Case(
        KSP + "ex2", (1,), f"-pc_type sor -pc_sor_symmetric -ksp_monitor {_REFINE_ALWAYS} -mat_type pjds", "ex2_3.out"
    ),
    Case(KSP + "ex2", (1,), f"-pc_type eisenstat -ksp_monitor {_REFINE_ALWAYS} -mat_type pjds", "ex2_4.out"),
    Case(
        KSP + "ex2",
        (4,),
        "-pc_type bjacobi -pc_bjacobi_blocks 1 -ksp_monitor -sub_pc_type jacobi -sub_ksp_type gmres -mat_type pjds",
        "ex2_bjacobi.out",
    ),
    Case(KSP + "ex2", (3,), "-ksp_type fbcgsr -pc_type bjacobi -mat_type pjds", "ex2_fbcgs_2.out"),
    Case(
        KSP + "ex2",
        (4,),
        "-m 100 -n 100 -ksp_converged_reason -pc_type telescope -pc_telescope_reduction_factor 4 "
        "-telescope_pc_type bjacobi -mat_type pjds",
        "ex2_telescope.out",
    ),
    *(
        Case(
            KSP + "ex7",
            (ranks,),
            "-ksp_monitor -pc_type gamg -ksp_view -pc_gamg_esteig_ksp_type cg -pc_gamg_esteig_ksp_max_it 10 "
            f"-mat_type aijpjds -pc_gamg_threshold -1 {_ORDER_OF_AGG}",
            f"ex7_gamg_cuda_nsize-{ranks}.out",
            ("parent", "storage", "levels", "smoothers", "inodes", "package", "product"),
        )
        for ranks in (1, 2)
    ),
    Case(KSP + "ex46", (1,), "-dm_mat_type aijpjds -random_exact_sol", "ex46_aijcusparse.out"),
    Case(
        KSP + "ex54",
        (4,),
        "-ne 19 -alpha 1.e-3 -ksp_type cg -pc_type gamg -mg_levels_ksp_max_it 2 -ksp_monitor -ksp_converged_reason "
        "-pc_gamg_esteig_ksp_max_it 5 -pc_gamg_esteig_ksp_type cg -mg_levels_ksp_chebyshev_esteig 0,0.25,0,1.1 "
        f"-pc_gamg_aggressive_coarsening 0 -pc_gamg_prolongator_filter 0.1 -mat_type aijpjds {_ORDER_OF_AGG}",
        "ex54_1.out",
    ),
    Case(
        KSP + "ex54",
        (4,),
        "-ne 39 -ksp_type cg -pc_type gamg -pc_gamg_type agg -ksp_rtol 1e-4 -ksp_norm_type unpreconditioned "
        "-pc_gamg_mat_coarsen_type hem -ksp_converged_reason -ksp_norm_type unpreconditioned -mat_type aijpjds",
        "ex54_hem.out",
        ("8 is 7",),
    ),
    Case(
        KSP + "ex54",
        (4,),
        "-ne 39 -ksp_type cg -pc_type gamg -pc_gamg_type agg -ksp_rtol 1e-4 -ksp_norm_type unpreconditioned "
        "-pc_gamg_mat_coarsen_type hem -ksp_converged_reason -ksp_norm_type unpreconditioned "
        f"-mat_type aijpjds {_OUR_PRODUCTS}",
        "ex54_hem.out",
        ("8 is 7",),
    ),
    Case(
        KSP + "ex55",
        (4,),
        "-ne 29 -alpha 1.e-3 -ksp_type cg -pc_type gamg -pc_gamg_type agg -pc_gamg_agg_nsmooths 1 -use_coordinates "
        "-ksp_converged_reason -pc_gamg_esteig_ksp_max_it 5 -ksp_rtol 1.e-3 -ksp_monitor "
        "-mg_levels_ksp_chebyshev_esteig 0,0.05,0,1.2 -pc_gamg_aggressive_coarsening 0 -mat_type aijpjds",
        "ex55_sa.out",
    ),
    Case(
        KSP + "ex56",
        (1,),
        "-ne 11 -alpha 1.e-3 -ksp_type cg -pc_type gamg -pc_gamg_agg_nsmooths 1 -two_solves -ksp_converged_reason "
        "-use_mat_nearnullspace -mg_levels_ksp_max_it 1 -mg_levels_ksp_type chebyshev "
        "-mg_levels_ksp_chebyshev_esteig 0,0.2,0,1.05 -mg_levels_sub_pc_type lu -pc_gamg_asm_use_agg "
        "-mg_levels_pc_asm_overlap 0 -pc_gamg_parallel_coarse_grid_solver -mg_coarse_pc_type jacobi "
        "-mg_coarse_ksp_type cg -pc_gamg_mat_coarsen_type hem -pc_gamg_mat_coarsen_max_it 5 -ksp_rtol 1e-4 "
        "-ksp_norm_type unpreconditioned -pc_gamg_threshold .001 -pc_gamg_mat_coarsen_strength_index 1,2 "
        "-mat_type aijpjds",
        "ex56_1.out",
        ("15 is 14",),
    ),
    Case(
        KSP + "ex56",
        (1,),
        "-ne 9 -alpha 1.e-3 -ksp_converged_reason -ksp_type cg -ksp_max_it 50 -pc_type gamg "
        "-pc_gamg_esteig_ksp_type cg -pc_gamg_esteig_ksp_max_it 10 -pc_gamg_type agg -pc_gamg_agg_nsmooths 1 "
        "-pc_gamg_coarse_eq_limit 1000 -mg_levels_ksp_type chebyshev -mg_levels_pc_type sor "
        "-pc_gamg_reuse_interpolation true -two_solves -use_mat_nearnullspace -pc_gamg_use_sa_esteig 0 "
        "-mg_levels_esteig_ksp_max_it 10 -mat_type aijpjds",
        "ex56_nns.out",
    ),
    Case(
        KSP + "ex56",
        (2,),
        "-use_mat_nearnullspace -pc_type telescope -pc_telescope_reduction_factor 2 -telescope_pc_type gamg "
        "-telescope_pc_gamg_esteig_ksp_type cg -telescope_pc_gamg_esteig_ksp_max_it 10 -mat_type aijpjds",
        EMPTY,
    ),
    Case(
        KSP + "ex56",
        (1,),
        "-ne 7 -pc_type gamg -rap_mg_levels_pc_type pbjacobi -rap_mg_coarse_ksp_type cg "
        "-rap_mg_coarse_pc_type pbjacobi -use_mat_nearnullspace -test_rap_bs -rap_ksp_view "
        "-rap_mat_view ::ascii_info -rap_ksp_converged_reason -rap_ksp_monitor -mat_type aijpjds",
        "ex56_nsize-1_rap_bs.out",
        ("parent", "storage", "hermitian"),
    ),
    Case(
        KSP + "ex71",
        (2,),
        "-pde_type Poisson -dim 1 -cells 6 -pc_type none -ksp_converged_reason -dm_mat_type aijpjds "
        "-dm_preallocate_only {{0 1}} -dirichlet {{0 1}}",
        "ex71_aij_dmda_preall.out",
        ("7 is 6",),
    ),
    Case(
        KSP + "bench_kspsolve",
        (1, 3),
        "-print_timing false -matmult -its 10 -n 8 -mat_type aijpjds",
        "bench_kspsolve_matmult.out",
    ),
    Case(KSP + "bench_kspsolve", (3,), "-print_timing false -its 10 -n 8 -mat_type aijpjds", "bench_kspsolve_ksp.out"),
)

_EX5ADJ = TS + "advection-diffusion-reaction/ex5adj"
_EX5ADJ_STEPS = "-forwardonly -ts_max_steps 10 -ts_monitor -snes_monitor -dm_mat_type aijpjds"

NONLINEAR_SOLVER_CASES = (
    # ex14 sets the type of its DM itself and reads -mat_type.
    Case(SNES + "ex14", (4,), f"-snes_monitor {_REFINE_ALWAYS} -mat_type pjds", "ex14_1.out"),
    Case(SNES + "ex14", (4,), f"-fdcoloring -snes_monitor {_REFINE_ALWAYS} -mat_type pjds", "ex14_3.out"),
    Case(
        SNES + "ex14",
        (4,),
        f"-fdcoloring -fdcoloring_ds -snes_monitor {_REFINE_ALWAYS} -mat_type pjds",
        "ex14_3_ds.out",
    ),
    Case(SNES + "ex14", (4,), "-fdcoloring_local -fdcoloring -ksp_monitor -da_refine 1 -mat_type pjds", "ex14_4.out"),
    Case(
        SNES + "ex14",
        (4,),
        "-fdcoloring_local -fdcoloring -ksp_monitor -da_refine 1 -snes_type newtontrdc -mat_type pjds",
        "ex14_5.out",
    ),
    Case(
        SNES + "ex14",
        (4,),
        "-fdcoloring_local -fdcoloring -da_refine 1 -snes_type newtontr -snes_tr_fallback_type dogleg -mat_type pjds",
        "ex14_6.out",
    ),
    Case(
        SNES + "ex5",
        (1,),
        "-snes_rtol 1.e-5 -pc_type mg -ksp_monitor -snes_view -pc_mg_levels 3 -pc_mg_galerkin pmat -da_grid_x 17 "
        "-da_grid_y 17 -mg_levels_ksp_monitor -mg_levels_ksp_norm_type unpreconditioned -snes_monitor "
        "-mg_levels_ksp_chebyshev_esteig 0.5,1.1 -mg_levels_pc_type sor -pc_mg_type full -dm_mat_type aijpjds",
        "ex5_1.out",
        ("parent", "storage"),
    ),
    Case(
        SNES + "ex5",
        (1,),
        "-pc_type mg -ksp_converged_reason -snes_view -pc_mg_galerkin pmat -snes_grid_sequence 3 "
        "-mg_levels_ksp_norm_type unpreconditioned -snes_monitor -mg_levels_ksp_chebyshev_esteig 0.5,1.1 "
        "-mg_levels_pc_type sor -pc_mg_type full -ksp_atol 0 -dm_mat_type aijpjds",
        "ex5_2.out",
        ("parent", "storage"),
    ),
    Case(
        SNES + "ex5",
        (4,),
        "-snes_converged_reason -ksp_converged_reason -da_grid_x 129 -da_grid_y 129 -pc_type mg -pc_mg_levels 8 "
        "-mg_levels_ksp_type chebyshev -mg_levels_ksp_chebyshev_esteig 0,0.5,0,1.1 -mg_levels_ksp_max_it 2 "
        "-dm_mat_type aijpjds",
        "ex5_6.out",
    ),
    Case(
        SNES + "ex5",
        (1,),
        "-pc_type gamg -ksp_view_pre -dm_mat_type aijpjds",
        "ex5_7_ksp_view_pre.out",
        ("parent", "storage", "levels", "smoothers"),
    ),
    *(
        Case(
            SNES + "ex5",
            (1,),
            f"-pc_type gamg -ksp_view ::ascii_info_detail -pc_gamg_mat_coarsen_type {coarsening} -dm_mat_type aijpjds",
            f"ex5_{coarsening}_view_detailed.out",
            ("parent", "storage", "levels", "smoothers"),
        )
        for coarsening in ("hem", "mis")
    ),
    Case(
        SNES + "ex16",
        (1, 2),
        "-dm_mat_type aijpjds -da_refine 1 -rad 10.0 -young 10. -ploading -1. -loading -1. -rescale -pc_type mg "
        "-mg_levels_ksp_max_it 2 -snes_monitor -snes_type newtonal -snes_newtonal_step_size 10 "
        "-snes_newtonal_correction_type exact -ksp_rtol 1e-4",
        "ex16_8.out",
    ),
    Case(
        SNES + "ex19",
        (1,),
        "-snes_monitor -dm_mat_type seqaijpjds -pc_type gamg -ksp_monitor -mg_levels_ksp_max_it 1",
        "ex19_cuda_1.out",
    ),
    Case(
        SNES + "ex19",
        (3,),
        f"-snes_monitor -dm_mat_type mpiaijpjds -pc_type gamg -ksp_monitor -mg_levels_ksp_max_it 1 {_ORDER_OF_AGG}",
        "ex19_cuda_2.out",
    ),
    Case(
        SNES + "ex28",
        (3,),
        "-u_da_grid_x 20 -snes_converged_reason -snes_monitor -ksp_monitor -problem_type 2 -snes_mf_operator "
        "-pc_type fieldsplit -pc_fieldsplit_dm_splits -pc_fieldsplit_type additive -fieldsplit_u_ksp_type gmres "
        "-fieldsplit_k_pc_type jacobi -pack_dm_mat_type aijpjds",
        "ex28_3.out",
    ),
    Case(
        SNES + "ex42",
        (1, 2),
        "-snes_max_it 4 -snes_type {{newtontr newtonls}} -nghost {{0 1 2}} -test_ghost -mat_type aijpjds",
        "ex42_ghosts.out",
    ),
    Case(
        SNES + "ex56",
        (4,),
        "-dm_plex_dim 3 -dm_plex_simplex 0 -dm_plex_box_lower 0,0,0 -dm_plex_box_upper 1,1,1 -run_type 1 "
        "-dm_plex_box_faces 2,2,1 -petscpartitioner_simple_process_grid 2,2,1 -max_conv_its 2 -petscspace_degree 2 "
        "-snes_max_it 2 -ksp_max_it 100 -ksp_type cg -ksp_rtol 1.e-10 -ksp_norm_type unpreconditioned "
        "-snes_rtol 1.e-10 -pc_type gamg -pc_gamg_esteig_ksp_max_it 10 -pc_gamg_type agg -pc_gamg_agg_nsmooths 1 "
        "-pc_gamg_coarse_eq_limit 10 -pc_gamg_reuse_interpolation true -pc_gamg_aggressive_coarsening 0 "
        "-pc_gamg_threshold 0.05 -pc_gamg_threshold_scale .0 -use_mat_nearnullspace true -mg_levels_ksp_max_it 2 "
        "-mg_levels_ksp_type chebyshev -mg_levels_ksp_chebyshev_esteig 0,0.05,0,1.05 -mg_levels_pc_type jacobi "
        "-ksp_monitor -ksp_converged_reason -snes_monitor -dm_view -petscpartitioner_type simple "
        "-pc_gamg_process_eq_limit 20 -pc_gamg_coarse_eq_limit 40 -dm_mat_type aijpjds",
        "ex56_cuda.out",
    ),
    Case(
        SNES_TESTS + "ex5",
        (1,),
        "-snes_monitor -snes_view -ksp_monitor -mat_type aijpjds",
        "ex5_1.out",
        ("seqaij", "storage"),
    ),
    Case(
        SNES_TESTS + "ex13",
        (4,),
        "-dm_plex_dim 3 -benchmark_it 2 -dm_plex_simplex 0 -dm_plex_box_faces 2,2,1 -dm_refine 2 "
        "-petscpartitioner_simple_node_grid 1,1,1 -petscpartitioner_simple_process_grid 2,2,1 "
        "-potential_petscspace_degree 2 -petscpartitioner_type simple -snes_type ksponly -dm_view -ksp_type cg "
        "-ksp_rtol 1e-12 -snes_lag_jacobian -2 -dm_plex_box_upper 2,2,1 -dm_plex_box_lower 0,0,0 -pc_type gamg "
        "-pc_gamg_process_eq_limit 200 -pc_gamg_coarse_eq_limit 1000 -pc_gamg_esteig_ksp_type cg "
        "-mg_levels_ksp_chebyshev_esteig 0,0.2,0,1.05 -pc_gamg_reuse_interpolation true "
        "-pc_gamg_aggressive_square_graph true -pc_gamg_threshold 0.04 -pc_gamg_threshold_scale .25 "
        "-pc_gamg_aggressive_coarsening 2 -pc_gamg_mis_k_minimum_degree_ordering true -ksp_monitor "
        "-ksp_norm_type unpreconditioned -dm_mat_type aijpjds",
        "ex13_comparison.out",
    ),
    Case(_EX5ADJ, (4,), f"{_EX5ADJ_STEPS} -pc_type none", "ex5adj_sell_1.out"),
    Case(
        _EX5ADJ,
        (4,),
        f"{_EX5ADJ_STEPS} -pc_type mg -pc_mg_levels 2 -mg_coarse_pc_type sor",
        "ex5adj_sell_2.out",
    ),
    Case(_EX5ADJ, (4,), _EX5ADJ_STEPS, "ex5adj_sell_5.out"),
)

CASES = MATRIX_CASES + LINEAR_SOLVER_CASES + NONLINEAR_SOLVER_CASES
