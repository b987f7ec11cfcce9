"""What tests on a machine without a GPU cannot execute: (files, lines behind the names of their functions, why).

Both are regular expressions; the first has to match the whole path, the second to be found.
"""

GPU = "needs a GPU and PETSc with CUDA"
IMPOSSIBLE = "checks of what cannot be without a defect of this package or of PETSc"
LARGE = "needs more than 2^31 entries"
OTHER_PETSC = "needs a PETSc whose parts are not as this package knows them"
THREADS = "needs a system that gives no thread"
BEFORE = "PETSc looks at it before"
FIRST = "comes after another check of the same, which fails first"
EARLIER = "comes after another check of the same plans, between which Python would have to end"
UNASKED = "methods that no measurement calls, as has_numeric and has_first say"
DEEPER = "needs a Python whose JSON reads deeper than it recurses itself"

DEVICE_CALLS = (
    r"Gpufmt(Device|NoDevice|Pinned|Beside|CopyTo|VecTypeOn|Managed(Of|Prefetch)|Shared(Make|Open|Close|Free))"
    r"|BACKEND_CUDA|AndMemType|PetscLogGpu|PetscLogCpuToGpu|PetscMemTypeDevice|\bscratch\[|on_device|->staged"
)

DEVICE_FUNCTIONS = {
    "gamg/(from_blocks|graph|prolongator)": "GpufmtGamgBlockWritten|Values|GpufmtGamgComputeValues",
    "gamg/parallel_prolongator": "SendFromDevice",
    "gamg/smooth": "SendValues|GpufmtGamgFactorsGet",
    "halo/arena": r"Fill|Check|Without|Export|Import|ChunkFree|IdentityFind|DevicesCompare|GpufmtArena\w+",
    "halo/peer": r"Place|StreamFollow|SendAndWait|BeginEither|EndBack|GpufmtPeerArray\w+",
    "halo/(pieces|sums)": "FlagsClear|ByMessages",
    "halo/task": "DeviceMake|Spoil|Begin|End|PartEnds|Download|LateCheck",
    "ksp/(ahead|queue)": "GpufmtKspHalfway|IterationsAhead|GraphGet",
    "ksp/(gmres_steps|vectors)": r"ReadBytes|GpufmtGmresBeginCycle|Array\w+",
    "ksp/(mixedcg_inner|plans)": "Ahead|SumByMessages",
    "ksp/point_blocks": "IsCurrent|CopyGet|GpufmtKspInversesGet",
    "matrix/(arrays|assembly)": r"Write\w+|FindArray|AwaitArrays|NamePlace",
    "matrix/(coo|coo_pattern|mpi_coo)": "GpufmtCoo(ToHost|ToCounts|Place|Stage|Run)|Pack",
    "matrix/(diagonal|mult|norm|zero_rows)": r"MatGetDiagonal\w+|Operand\w+|MultRun|Run|RunWith|Bring",
    "matrix/(interpolation|mpiaij|seqaij)": r"Convert|BlocksVecType|InodesOff|MatBindToCPU\w+|MatConvert_SeqAIJ\w+",
    "matrix/scale_and_add": r"Gpufmt(ScaleAndAdd|Add)Run\w*",
    "matrix/store": r"ValuesOnDevice|GpufmtCsrValues\w+",
    "memory/device_values": r"\w+",
    "memory/memory": "GpufmtBoundToCPU",
    "memory/managed": "GpufmtManagedContains",
    "product/(numeric|symbolic)": "ProductSendValues|CheckResult",
    r"runtime/(beside|device|shared_memory|staging)": r"\w+",
    "runtime/(kept|kernels|planner)": r"GpufmtKept(Add|Limit)|GpufmtKernels\w+|GpufmtPlannerNameKernels",
    "runtime/start": "LoadKernels|PrepareFirst|GpufmtStartEarly",
}

REASONS = (
    (r".*\.[ch]", rf"{DEVICE_CALLS}|^\w*OnDevice:", GPU),
    *((rf"petsc_gpufmt/native/{file}\.[ch]", rf"^({names}):", GPU) for file, names in DEVICE_FUNCTIONS.items()),
    (r".*\.[ch]", "PETSC_INT_MAX", LARGE),
    (r".*/ksp/chebyshev\.c", "LayoutIsKnown", OTHER_PETSC),
    (r".*/gamg/type\.c", "^GpufmtGamgTake:", OTHER_PETSC),
    (r".*/halo/thread\.c", "gives no thread", THREADS),
    (r".*\.c", r"PETSC_ERR_PLIB|PETSC_ERR_LIB|^GpufmtPatternGet: PetscCheck\(done", IMPOSSIBLE),
    (r".*/ksp/gmres\.c", r"^Weights: PetscCheck", FIRST),
    (r".*/parallel/product\.c", r"^MatProductNumeric\w+: PetscCheck\(product", BEFORE),
    (r".*/(gamg/(elsewhere|parallel_aggregates)|matrix/coo_pattern)\.c", "GpufmtLeaseHolds", EARLIER),
    (r".*/bench/spgemm_contenders?\.py", "^(renew|numeric): raise [A-Z]", UNASKED),
    (r".*/bench/results\.py", "^read_runs: (except RecursionError|raise)", DEEPER),
    (r".*/bench/timing\.py", "^(__init__|times|_between_events|finished|single|calls):", GPU),
    (r".*/bench/places\.py", "^(petsc_stream|device_place|available_places|synchronised):", GPU),
    (r".*/cli/(bench_parts|tune)\.py", "^(run_parts|run_tune):", GPU),
    (r".*/bench/cusparse\w*\.py", "", GPU),
    (r".*/bench/(spgemm_)?contenders?\.py", "cupy|^(prepare|run):", GPU),
    (r".*\.py", r"\bcupy\b", GPU),
)
