"""Seconds of MatMult on many GPUs, by hand, and what the model says of where it breaks down."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy.sparse")

from petsc_gpufmt.backends import native_library  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.choice.model import BANDWIDTH, shortest_mult  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402
from petsc_gpufmt.cli.model import parse_ranks  # noqa: E402
from petsc_gpufmt.scaling import machine as machines  # noqa: E402
from petsc_gpufmt.scaling.code_balance import code_balance, split_balance  # noqa: E402
from petsc_gpufmt.scaling.machine import Link, ModelledDevice, find_gpu, find_machine, held_share  # noqa: E402
from petsc_gpufmt.scaling.partition import StencilRows  # noqa: E402
from petsc_gpufmt.scaling.prediction import LONG_LOCAL_PART, MODES, Exchange, Model, breakdown  # noqa: E402
from petsc_gpufmt.scaling.problem import MOST_POINTS, make_problem, scaled  # noqa: E402


@pytest.fixture(scope="module")
def device():
    return ModelledDevice(*native_library.petsc_types(), find_gpu("h200").resident_threads)


@pytest.fixture(scope="module")
def problem(device):
    return make_problem("7point:128", device)


def model(problem, device, machine=None, **how):
    return Model(problem, machine or find_machine(), device, **how)


def one(problem, device, mode, ranks, machine=None, **how):
    ((prediction,),) = model(problem, device, machine, **how).predict([ranks], [mode]).values()
    return prediction


def test_one_rank_is_what_the_choice_of_a_format_expects(problem, device):
    alone = one(problem, device, "peer", 1)
    assert alone.seconds == alone.local == model(problem, device).local_part(128**3, problem.rows.nnz).seconds
    assert alone.efficiency == 1 and alone.exchange == alone.nonlocal_ == 0
    assert alone.gflops == pytest.approx(2e-9 * problem.rows.nnz / alone.seconds)


def test_an_exchange_by_hand(problem, device):
    scalar = device.scalar.itemsize
    links = {"mpi": Link(1e-6, 2e-6, 1e9, 4e-6), "peer": Link(8e-6, 3e-6, 2e9, 1e-6), "network": Link(5e-6, 7e-6, 1e8)}
    machine = dataclasses.replace(find_machine(gpus_per_host=2), **links)
    parts = problem.rows.parts(4, 2)
    inner, face = 1, 128**2 * scalar  # a neighbour on its host, and one on the other
    mine = model(problem, device, machine)
    assert mine.exchange("vector", parts, 0, 4) == Exchange(3e-6, face / 1e9)
    assert mine.exchange("overlap", parts, 0, 4).shown_waits == pytest.approx(3e-6 + 4e-6)
    task = mine.exchange("task", parts, 0, 4)
    assert task.shown_waits == pytest.approx(3e-6 + machine.thread_handover) and task.shown_transfer == face / 1e9
    assert (task.hidden_waits, task.hidden_transfer) == (0, 0)
    both = mine.exchange("vector", parts, inner, 4)
    assert both.shown_waits == pytest.approx(5e-6 + 2e-6 + 7e-6)
    assert both.shown_transfer == pytest.approx(face / 1e9 + face / 1e8)
    assert mine.exchange("peer", parts, inner, 4) == mine.exchange("overlap", parts, inner, 4)
    halves = problem.rows.parts(2, 2)
    assert mine.exchange("peer", halves, 0, 2) == Exchange(1e-6, 0, 8e-6 + 3e-6, face / 2e9)
    few = dataclasses.replace(halves, local_entries=np.full(2, LONG_LOCAL_PART - 1))
    assert mine.exchange("peer", few, 0, 2) == Exchange(8e-6 + 3e-6, face / 2e9)


def test_exchanges_stand_beside_local_parts_of_as_many_entries_as_in_the_library():
    source = (Path(__file__).parents[2] / "petsc_gpufmt/native/halo/peer_setup.c").read_text()
    assert f"LONG_LOCAL_PART = {LONG_LOCAL_PART} }}" in source


def test_what_is_hidden_is_waited_for_where_it_takes_longer_than_the_local_part():
    exchange = Exchange(1.0, 2.0, 6.0, 4.0)
    assert exchange.seconds == 13
    assert exchange.waited(10.0) == exchange.waited(11.0) == (1, 2)
    assert exchange.waited(5.0) == (1 + 3, 2 + 2) and exchange.waited(0.0) == (7, 6)
    assert Exchange().waited(0.0) == (0, 0)


def test_the_nonlocal_part_by_hand(problem, device):
    scalar, index = device.scalar.itemsize, device.index.itemsize
    machine, face = find_machine(), 128**2
    nbytes = face * (scalar + index) + 2 * face * scalar + face * scalar
    known = shortest_mult("pjds") + nbytes / BANDWIDTH
    rounds = face / machine.gpu.resident_threads
    assert one(problem, device, "peer", 2).nonlocal_ == pytest.approx(known + rounds * machine.empty_round)
    rounds = 128**3 / 2 / machine.gpu.resident_threads
    of_all_rows = one(problem, device, "peer", 2, compressed=False).nonlocal_
    assert of_all_rows == pytest.approx(known + rounds * machine.empty_round)


def test_a_nonlocal_part_of_all_rows_moves_what_the_paper_says():
    """z once more: the 8 / N_nzr of a split product are the two words a row of the nonlocal part."""
    nnz_per_row = 20
    flops = 2 * nnz_per_row
    assert flops * (split_balance(nnz_per_row, 1.0) - code_balance(nnz_per_row, 1.0)) == pytest.approx(2 * 8)


def test_modes_differ_in_what_they_wait_for(problem, device):
    machine = find_machine()
    vector, overlap, task, peer = (one(problem, device, mode, 2) for mode in MODES)
    for p in (vector, overlap, task):
        assert p.waited == p.exchange and p.seconds == pytest.approx(p.local + p.exchange + p.nonlocal_)
    assert overlap.exchange == pytest.approx(vector.exchange + machine.mpi.beside)
    assert task.exchange == pytest.approx(vector.exchange + machine.thread_handover)
    assert peer.waited == pytest.approx(
        machine.peer.beside + max(0.0, peer.exchange - machine.peer.beside - peer.local)
    )
    assert peer.seconds < vector.seconds < task.seconds < overlap.seconds


def test_peers_of_several_hosts_exchange_as_in_overlap(problem, device):
    machine = find_machine(gpus_per_host=2)
    peer, overlap = (one(problem, device, mode, 4, machine) for mode in ("peer", "overlap"))
    assert peer.seconds == overlap.seconds
    assert one(problem, device, "peer", 2, machine).seconds < one(problem, device, "overlap", 2, machine).seconds


def test_the_slowest_rank_counts(device):
    """Inner ranks have two neighbours, the ends one."""
    problem = make_problem("27point:64", device)
    ends, inner = one(problem, device, "overlap", 2), one(problem, device, "overlap", 4)
    assert inner.neighbours == 2 * ends.neighbours == 2
    assert inner.exchange - ends.exchange >= find_machine().mpi.latency


def test_losses_and_the_ideal_are_all_of_the_time(problem, device):
    """But for the launch of one rank, and where no cache holds a part."""
    gpu = dataclasses.replace(find_gpu("h200"), cache_factor=1.0)
    for mode in MODES:
        p = one(problem, device, mode, 4, dataclasses.replace(find_machine(), gpu=gpu))
        ideal = p.seconds * p.efficiency
        launch_of_one = shortest_mult("pjds")
        assert ideal + sum(p.losses.values()) == pytest.approx(p.seconds + launch_of_one / 4, rel=0.01)


def test_weak_scaling_gives_each_rank_as_many_planes(problem, device):
    (found,) = model(problem, device).predict([1, 2, 3], ["peer"], weak=True).values()
    assert [p.rows for p in found] == [128**3] * 3
    assert found[2].seconds == pytest.approx(found[0].seconds / found[2].efficiency)
    assert found[2].gflops == pytest.approx(3 * found[2].efficiency * found[0].gflops, rel=0.01)


def test_a_file_does_not_grow(device):
    with pytest.raises(BenchError, match="--weak with --matrix powerlaw:100: only a stencil grows"):
        model(make_problem("powerlaw:100", device), device).predict([2], ["peer"], weak=True)


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        (Link(1e-2, 0.0, 1e15), "latency of the exchange"),
        (Link(0.0, 0.0, 1e6), "bandwidth of the link"),
        (Link(0.0, 0.0, 1e15), "launches of kernels"),
    ],
)
def test_a_breakdown_says_why(problem, device, link, reason):
    machine = dataclasses.replace(find_machine(gpus_per_host=4096), mpi=link)
    (found,) = model(problem, device, machine).predict([1, 2, 64, 128], ["vector"]).values()
    line = breakdown(found)
    assert line.startswith("vector: breaks down at ") and reason in line and "\n" not in line


def test_empty_rows_of_the_nonlocal_part_break_a_large_matrix_down(device):
    machine = dataclasses.replace(find_machine(), peer=Link(0.0, 0.0, 1e15), empty_round=1e-4)
    (found,) = (
        model(make_problem("7point:256", device), device, machine, compressed=False).predict([1, 2], ["peer"]).values()
    )
    assert "the nonlocal part" in breakdown(found)


def test_uneven_rows_break_a_matrix_down(device, tmp_path):
    import scipy.sparse

    dense = scipy.sparse.block_diag([np.ones((800, 800)), scipy.sparse.eye(2400)], format="csr")
    scipy.sparse.save_npz(tmp_path / "uneven.npz", dense)
    problem = make_problem(str(tmp_path / "uneven.npz"), device)
    (found,) = model(problem, device, find_machine("0.1")).predict([1, 2, 4], ["peer"]).values()
    assert "of the ideal: uneven rows" in breakdown(found) and found[-1].entries == 640_000


def test_no_breakdown_where_half_of_the_ideal_is_reached(problem, device):
    (found,) = model(problem, device).predict([1, 2], ["peer"]).values()
    assert breakdown(found) == f"peer: no breakdown, {found[1].efficiency:.0%} of the ideal on 2 ranks"


def test_ranks_beyond_the_fastest_are_named(problem, device):
    (found,) = model(problem, device).predict([4096, 2, 1], ["overlap"]).values()
    assert [p.ranks for p in found] == [4096, 2, 1]
    fastest = min(found, key=lambda p: p.seconds).ranks
    assert fastest == 1 and breakdown(found).endswith("; fastest on 1 rank")
    assert "fastest" not in breakdown(found, weak=True)


def test_a_matrix_without_entries_is_refused(device, tmp_path):
    import scipy.sparse

    scipy.sparse.save_npz(tmp_path / "empty.npz", scipy.sparse.csr_matrix((5, 5)))
    with pytest.raises(BenchError, match="there are no entries to multiply with"):
        make_problem(str(tmp_path / "empty.npz"), device)


def test_more_ranks_than_rows(device):
    found = one(make_problem("7point:2", device), device, "vector", 20)
    assert found.rows == 1 and found.seconds > 0


@pytest.mark.parametrize("spec", ["7point:60", "27point:40x2"])
def test_a_stencil_is_known_from_a_smaller_one(device, spec, monkeypatch):
    made = make_problem(spec, device)
    monkeypatch.setattr("petsc_gpufmt.scaling.problem.PROFILED_ENTRIES", 1e9)
    whole = make_problem(spec, device)
    first, second = (model(p, device).local_part(p.profile.nrows, p.profile.nnz) for p in (made, whole))
    assert first.name == second.name and first.seconds == pytest.approx(second.seconds, rel=0.02)
    assert (made.profile.nrows, made.profile.nnz) == (whole.profile.nrows, whole.profile.nnz)


def test_a_small_part_has_no_row_patterns(problem):
    assert problem.profile.npatterns == 27 and scaled(problem.profile, 1000, 1000, 7000).npatterns == 0


def test_alpha_comes_from_the_sample(problem, device):
    assert problem.alpha(device.scalar.itemsize) == pytest.approx(1 / problem.profile.mean)
    scattered = dataclasses.replace(problem, profile=dataclasses.replace(problem.profile, sectors=1.0))
    assert scattered.alpha(device.scalar.itemsize) == 1


def test_constants_name_their_source_and_agree_with_the_choice_of_a_format():
    known = machines.constants()
    assert known["gpus"]["h200"]["bandwidth"] == BANDWIDTH
    ways = [way for link in known["links"].values() for way in link.values()]
    for value in (*known["gpus"].values(), known["empty_round"], known["thread_handover"], *ways):
        assert value["source"]


def test_a_machine_takes_the_numbers_given():
    machine = find_machine("2.5", "pcie", 4, bandwidth=1, latency=2)
    assert machine.gpu.bandwidth == 2.5e12 and machine.gpus_per_host == 4
    for link in (machine.mpi, machine.peer):
        assert (link.bandwidth, link.latency) == (1e9, 2e-6)
    assert machine.network == find_machine().network and find_machine(link="host").peer is None


def test_a_cache_with_random_replacement_serves_what_survives_a_turn():
    rng, lines, asked = np.random.default_rng(7), 400, 600
    cache, hits, turns = np.full(lines, -1), 0, 60
    for turn in range(turns):
        held = set(cache.tolist())
        for line in range(asked):
            if line in held:
                hits += turn >= turns // 2
                continue
            place = rng.integers(lines)
            held.discard(cache[place])
            held.add(line)
            cache[place] = line
    assert held_share(asked / lines) == pytest.approx(hits / (asked * turns / 2), abs=0.02)
    assert [held_share(times) for times in (0, 0.5, 1)] == [1, 1, 1]
    assert held_share(1.001) == pytest.approx(1, abs=3e-3) and held_share(1e4) == 0


def test_a_part_in_the_second_level_cache_is_faster():
    gpu = dataclasses.replace(find_gpu("h200"), reading=1.0, row_bytes=0.0)
    held, beyond = gpu.cache_bytes, 2 * gpu.cache_bytes
    assert gpu.bandwidth_of(1, 1) == gpu.bandwidth_of(held, 1) == gpu.cache_factor * gpu.bandwidth
    assert gpu.bandwidth_of(100 * beyond, 1) == pytest.approx(gpu.bandwidth)
    assert gpu.bandwidth_of(beyond, 1) < gpu.bandwidth_of(1.5 * held, 1)
    assert gpu.bandwidth < gpu.bandwidth_of(1.5 * held, 1) < gpu.cache_factor * gpu.bandwidth


def test_a_row_takes_as_long_as_bytes_beside_those_that_are_moved():
    gpu = find_gpu("h200")
    nbytes, nrows = 1e9, 5e6
    assert nbytes / gpu.bandwidth_of(nbytes, nrows) == pytest.approx((nbytes / 1.125 + 8 * nrows) / gpu.bandwidth)


def test_a_part_is_slower_on_a_slower_device(problem, device):
    seconds = [one(problem, device, "peer", 1, find_machine(gpu)).seconds for gpu in ("h200", "h100", "1")]
    assert seconds == sorted(seconds) and seconds[2] > 3 * seconds[0]


def test_ranges_of_ranks():
    assert parse_ranks("1:4096") == [2**k for k in range(13)]
    assert parse_ranks("3:13") == [3, 6, 12] and parse_ranks("4,2,1,2") == [4, 2, 1]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["7point:8", "--ranks", "0:4"], "--ranks 0:4: give FIRST:LAST"),
        (["7point:8", "--ranks", "4:1"], "--ranks 4:1: give FIRST:LAST"),
        (["7point:8", "--ranks", "two"], "--ranks two: give FIRST:LAST"),
        (["7point:8", "--ranks", "1,0"], "--ranks 1,0: give FIRST:LAST"),
        (["7point:8", "--ranks", "99999999"], "at most 1048576"),
        (["7point:8", "--mode", "fast"], "--mode fast: choose vector, overlap, task, peer"),
        (["7point:8", "--mode", "peer", "--link", "host"], "--mode peer: this link lets no GPU reach another one"),
        (["7point:8", "--format", "jds"], "--format jds: the model has for this matrix gpufmt, pjds, evchyb"),
        (["7point:8", "--gpu", "h300"], "--gpu h300: choose h200, h100, or the bandwidth of its memory"),
        (["7point:8", "--gpu", "nan"], "--gpu nan: choose h200"),
        (["7point:8", "--link", "network"], "--link network: choose nvlink, pcie, host"),
        (["7point:8", "--bandwidth", "0"], "--bandwidth 0: give a number above 0"),
        (["7point:8", "--latency", "-1"], "--latency -1: give a number of microseconds"),
        (["7point:8", "--gpus-per-host", "0"], "--gpus-per-host 0: give a number above 0"),
        (["7point:8", "--json", "absent/file.json"], "--json absent/file.json: No such file or directory"),
        (["7point"], "--matrix 7point: give the grid points"),
        ([f"7point:{MOST_POINTS + 1}"], f"choose up to {MOST_POINTS} grid points"),
        (["absent.mtx"], "--matrix absent.mtx: there is no such file"),
        (["powerlaw:0"], "--matrix powerlaw:0: give the number of rows"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_one_line(capsys, words, error):
    assert main(["model", *words]) == 2
    printed = capsys.readouterr().err
    assert error in printed and printed.startswith("petsc_gpufmt: ") and printed.count("\n") == 1


def test_the_command_prints_tables_and_writes_them(capsys, tmp_path):
    path = tmp_path / "model.json"
    assert main(["model", "7point:100", "--ranks", "1:8", "--json", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("7point:100: 1000000 rows, 6940000 entries, pjds on NVIDIA H200, 370 GB/s")
    assert text.count("efficiency") == len(MODES) and all(f"\n{mode}: " in text for mode in MODES)
    written = json.loads(path.read_text())
    assert list(written["modes"]) == list(MODES) and written["format"] == "pjds"
    peer = written["modes"]["peer"]
    assert peer["breakdown"] in text and [p["ranks"] for p in peer["predictions"]] == [1, 2, 4, 8]
    assert f"{peer['predictions'][3]['gflops']:.0f}" in text


def test_the_command_without_peers_shows_the_other_modes(capsys):
    assert main(["model", "powerlaw:3000", "--ranks", "2", "--link", "host"]) == 0
    text = capsys.readouterr().out
    assert "task: " in text and "peer" not in text


def test_the_command_grows_a_stencil(capsys):
    assert main(["model", "27point:20", "--ranks", "2", "--weak", "--mode", "peer"]) == 0
    assert "8000 rows, 195112 entries on each rank" in capsys.readouterr().out


def test_planes_of_a_grown_stencil(problem):
    grown = problem.grown(3)
    assert isinstance(grown, StencilRows) and grown.nrows == 3 * 128**3
