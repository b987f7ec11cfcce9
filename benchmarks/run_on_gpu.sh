#!/bin/bash
# Builds, tests and measures on a machine with an NVIDIA GPU. All steps take some one and a half hours; each can be called alone.
#
#   benchmarks/run_on_gpu.sh [step ...]      default: all of them, in this order:
#     build test ranks      the package, its GPU tests, those of several ranks: 15 minutes alone
#     sanitize              compute-sanitizer
#     mult bsr real c       MatMult: stencils, block sizes, real matrices, from C
#     spgemm                sparse products: squares and Galerkin pyramids
#     bratu mpi             the Bratu problem, on one GPU and on two
#     gamg                  the Bratu problem with GAMG, on one GPU, on two and on four
#     scaling               MatMult on 1, 2, 4, ... ranks, as many as there are GPUs: stencils, a reservoir
#     ksp                   solvers: an iteration and a solve to the same residual, on 1, 2, ... ranks; on MATRICES
#     programs              whole programs by wall clock, with caches of kernels empty and filled
#     setup                 whole programs that show the set-up of GAMG, on one GPU, on two and on four
#     formats types         every format: MatMult, and the iterations of the Bratu problem
#
# Run it from the root of the source tree in an environment where python3 imports petsc4py (of a PETSc with CUDA), CuPy, SciPy and
# pytest, and mpicc and mpiexec belong to the MPI of that PETSc. Variables that are read:
#   OUT                   where run.log and results.json go (default: results)
#   MATRICES              folder with real matrices (.mtx, .mtx.gz, .npz); without it they are left out
#   EX14                  source of PETSc's SNES tutorial ex14 (default: looked for under PETSC_DIR)
#   PETSC_GPUFMT_COMMIT   commit to name in the results (default: what git says)
#   SANITIZERS            tools of compute-sanitizer (default: "memcheck racecheck"; there are initcheck and synccheck, too)
#   TEST_ARGS             more arguments for pytest in the step `test`, such as `-n 8` with pytest-xdist
#   BENCH_MULT_ARGS       more arguments for `python -m petsc_gpufmt bench mult`
#   BENCH_PROGRAMS_ARGS   more arguments for `python -m petsc_gpufmt bench programs`, such as `--program first --pairs 15`
#   PETSC_SRC             PETSc's source tree, for the tutorials of `programs` (default: looked for under PETSC_DIR)
set -uo pipefail

STEPS=(build test ranks sanitize mult bsr real c spgemm bratu mpi gamg scaling ksp programs setup formats types)
declare -A LIMIT=([build]=180 [test]=700 [ranks]=1500 [sanitize]=900 [mult]=180 [bsr]=180 [real]=300 [c]=150) # seconds
LIMIT+=([spgemm]=240 [bratu]=200 [mpi]=240 [gamg]=400 [scaling]=300 [ksp]=900 [programs]=800 [setup]=1000)
LIMIT+=([formats]=150 [types]=200)
FROM_C=(cage10 cosp2_h1024 bcsstk16 memplus pf_case13659pegase wiki-Vote) # small ones of MATRICES
POSITIVE=(bcsstk16 fem_bottom_p1 fem_top_heat motorbike_p shallow_water1) # symmetric positive definite ones

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 2
out=${OUT:-$root/results}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
site=$root/build/gpu-site
results=$out/results.json
export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
export PYTHONSAFEPATH=1 # the installed package is measured, not the source tree in the current folder
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
export MPICC=${MPICC:-$(command -v mpicc)} MPIEXEC=${MPIEXEC:-$(command -v mpiexec)}
cd "$root" || exit 2

bench() {
  python3 -m petsc_gpufmt bench "$@" --json "$results"
}

campaign() { # a program of benchmarks/; PYTHONSAFEPATH would hide the modules beside it, PYTHONPATH shows them last
  PYTHONPATH=$PYTHONPATH:$root/benchmarks python3 "$root/benchmarks/$1.py" "${@:2}"
}

find_ex14() {
  local path
  for path in "${EX14:-}" "${PETSC_DIR:-}"/src/snes/tutorials/ex14.c "${PETSC_DIR:-}"/tut/src/snes/tutorials/ex14.c; do
    if [ -f "$path" ]; then
      echo "$path"
      return
    fi
  done
  echo "ex14.c was not found under PETSC_DIR=${PETSC_DIR:-}: name it with EX14=<path>" >&2
  return 1
}

find_sanitizer() {
  local path
  for path in "$(command -v compute-sanitizer)" {"${CUDA_HOME:-/usr/local/cuda}",/usr/local/cuda}/{bin,compute-sanitizer}/compute-sanitizer; do
    if [ -x "$path" ]; then
      echo "$path"
      return
    fi
  done
  echo "compute-sanitizer was not found on PATH or in the CUDA toolkit: it comes with the toolkit, set CUDA_HOME" >&2
  return 1
}

step_build() {
  rm -rf "$site"
  python3 -m pip install --no-build-isolation --no-deps --no-index --target "$site" "$root" && python3 -m petsc_gpufmt info
}

step_test() {
  python3 -m pytest -q -m 'gpu and not mpi and not whole_device' -p no:cacheprovider ${TEST_ARGS:-} tests || return 1
  python3 -m pytest -q -m whole_device -p no:cacheprovider tests # after the others: TEST_ARGS may set workers
}

step_ranks() { # one after the other: where several share GPUs, each waits for all others, 8 s become 110 with six of them
  python3 -m pytest -q -m 'gpu and mpi and not whole_device' -p no:cacheprovider tests
}

step_sanitize() { # of CuPy's own kernels, one is known to racecheck, and initcheck has to see what they write
  local sanitizer tool program part ranks more excluded
  sanitizer=$(find_sanitizer) || return 1
  export PYTHONPATH=$PYTHONPATH:$root/tests/sanitizer:$root/tests/support # PYTHONSAFEPATH would hide what the programs share
  for program in small_coarsening small_halo small_products small_spgemm small_sums small_krylov:{steps,fused,solves,loops}; do
    ranks=() more=() part=()
    [ "$program" != small_halo ] || ranks=("$MPIEXEC" -n 2) more=(--report-api-errors no) # Open MPI tries what may fail
    [ "$program" = "${program%:*}" ] || part=(--part "${program#*:}")
    "${ranks[@]}" python3 "tests/sanitizer/${program%:*}.py" "${part[@]}" || return 1 # compiles the kernels, outside the sanitizer
    for tool in ${SANITIZERS:-memcheck racecheck}; do
      excluded=(--kernel-regex-exclude kernel_substring=cupy_)
      [ "$tool" != initcheck ] || excluded=()
      echo "== $program, $tool"
      "${ranks[@]}" "$sanitizer" --tool "$tool" "${more[@]}" "${excluded[@]}" --error-exitcode 86 python3 "tests/sanitizer/${program%:*}.py" "${part[@]}" || return 1
    done
  done
}

step_mult() {
  bench mult ${BENCH_MULT_ARGS:-}
}

step_bsr() {
  bench bsr
}

step_real() {
  if [ -z "${MATRICES:-}" ]; then
    echo "skipped: name a folder with real matrices by MATRICES"
    return
  fi
  bench mult --matrix-set real "$MATRICES" && bench mult --matrix-set real-replicated "$MATRICES"
}

files_of() { # the paths of MATRICES with these names, a line each
  local name path
  for name in "$@"; do
    for path in "${MATRICES:-/nonexistent}/$name".{mtx,mtx.gz,npz}; do
      [ ! -f "$path" ] || echo "$path"
    done
  done
}

step_c() {
  local matrices=(--matrix 7point:50 --matrix 27point:20) path
  while read -r path; do
    matrices+=(--matrix "$path")
  done < <(files_of "${FROM_C[@]}")
  campaign mult_from_c "${matrices[@]}" --json "$results"
}

step_spgemm() {
  bench spgemm ${MATRICES:+--matrices "$MATRICES"}
}

step_bratu() {
  local source
  source=$(find_ex14) && campaign bratu "$source" --json "$results" --grid 128 200
}

count_devices() {
  python3 -c 'import cupy; print(cupy.cuda.runtime.getDeviceCount())'
}

on_ranks() { # the command on so many ranks, one number after the other, as far as there are GPUs
  local counts=$1 devices ranks
  devices=$(count_devices) || return 1
  for ranks in $counts; do
    if [ "$devices" -lt "$ranks" ]; then
      echo "skipped: GPUs here: $devices, $ranks ranks need as many"
      return
    fi
    "${@:2}" --ranks "$ranks" || return 1
  done
}

step_mpi() {
  local source
  source=$(find_ex14) && on_ranks 2 campaign bratu "$source" --json "$results" --grid 128 200
}

step_gamg() {
  local source
  source=$(find_ex14) || return 1
  campaign bratu "$source" --json "$results" --pc gamg --grid 128 200 --types aijcusparse gpufmt || return 1
  on_ranks "2 4" campaign bratu "$source" --json "$results" --pc gamg --grid 200 --types aijcusparse gpufmt
}

step_scaling() {
  bench scaling --matrix 7point:128 --matrix 27point:128 || return 1
  bench scaling --matrix 7point:200 --weak --mode peer || return 1
  bench scaling --matrix reservoir:10 --type gpufmt --mode peer
}

step_ksp() {
  local devices grids=(--matrix 7point:50 --matrix 27point:128 --matrix 7point:256) files=() path
  devices=$(count_devices) || return 1
  bench ksp "${grids[@]}" --matrix elasticity:60 --method cg --method mixed --ranks "1:$devices" || return 1
  bench ksp --matrix 7point:128 --matrix elasticity:60 --method mixed --outer replacement --outer refinement --outer flexible --rtol 1e-12 --history || return 1
  bench ksp "${grids[@]:0:4}" --method bcgs --method gmres --method fgmres || return 1
  while read -r path; do
    files+=(--matrix "$path" --matrix "$path*")
  done < <(files_of "${POSITIVE[@]}")
  [ ${#files[@]} -eq 0 ] || bench ksp "${files[@]}" --method cg --method mixed
}

programs() { # tutorials that are not found are left out
  local folder=${PETSC_DIR:-}/tut
  [ ! -d "$folder/src" ] || export PETSC_SRC=${PETSC_SRC:-$folder}
  bench programs "$@"
}

step_programs() {
  programs ${BENCH_PROGRAMS_ARGS:-}
}

step_setup() {
  programs --program-set gamg --pairs 3 || return 1
  on_ranks "2 4" programs --program bratu3d:200 --type gpufmt --pairs 3
}

step_formats() {
  bench mult --all-formats
}

step_types() {
  local source
  source=$(find_ex14) && campaign bratu "$source" --json "$results" --grid 64 --all-formats
}

if [ "${1:-}" = --step ]; then # one step, in the process that the time limit ends
  "step_$2"
  exit
fi

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=("${STEPS[@]}")
for step in "${steps[@]}"; do
  if [ -z "${LIMIT[$step]:-}" ]; then
    echo "there is no step '$step': choose from ${STEPS[*]}" >&2
    exit 2
  fi
done

summary=()
failed=0
: >"$out/run.log"
for step in "${steps[@]}"; do
  start=$SECONDS
  {
    printf '\n===== %s\n' "$step"
    timeout --kill-after=10 "${LIMIT[$step]}" bash "${BASH_SOURCE[0]}" --step "$step" 2>&1
  } | tee -a "$out/run.log"
  status=${PIPESTATUS[0]}
  case $status in
    0) verdict=ok ;;
    124 | 137) verdict="not done after ${LIMIT[$step]} s" ;;
    *) verdict="failed with status $status" ;;
  esac
  [ $status -eq 0 ] || failed=1
  summary+=("$(printf '%-10s %4d s  %s' "$step" $((SECONDS - start)) "$verdict")")
done

if [ -f "$results" ]; then
  { echo; campaign report --targets "$results"; } 2>&1 | tee -a "$out/run.log"
fi
printf '\n===== summary\n' | tee -a "$out/run.log"
printf '%s\n' "${summary[@]}" | tee -a "$out/run.log"
exit $failed
