"""Horovod on two real ranks: the same training as one process and as DDP, killed and stopped and resumed."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from gradients import EXACT, ON_TWO_RANKS, UNUSED, assert_close, autograd_oracle, gradient
from small import bigbatch, final_weights, same_bits, small_run, write_run
from torch import Tensor, nn

from bigbatch import engines, parts
from bigbatch.artifacts.folder import Folder
from bigbatch.launch import processes
from bigbatch.launch.signals import StopRequest
from bigbatch.run import Run
from bigbatch.training.batches import Split
from bigbatch.training.loop import Training, TrainOptions, train

NET = {"name": "outside:Net", "dropout": 0.0}  # BatchNorm: 5 groups of 64 in a batch of 300, 3 for one rank and 2
CASES = [(model, optimizer) for model in ("mlp", "cnn", "lstm") for optimizer in ("momentum", "lars", "lamb")]


def case_run(model: str, optimizer: str, dtype: str) -> Run:
    """Uneven to the end: 300 over micro-batches of 64 and two ranks, and 237 in the last batch of an epoch."""
    about = {"model": model, "optimizer": {"name": optimizer, "lr": 0.05}, "dtype": dtype}
    return small_run(**about, global_batch=300, epochs=2)


class Branch(nn.Module):
    """Uses one of two tensors; the gradient of the other is there on other ranks only."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.tensor([1.0]))
        self.right = nn.Parameter(torch.tensor([1.0]))
        # channels last, as a convolution may have it: Horovod takes contiguous tensors only
        self.both = nn.Parameter(torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last))

    def forward(self, left: bool) -> Tensor:
        return 3 * (self.left if left else self.right) + (self.both * torch.arange(8.0).view(1, 2, 2, 2)).sum()


def branches(engine: engines.Engine) -> dict[str, object]:
    """Gradients of a backward pass of all ranks, of one alone, and after two of which the first was under no_sync."""
    model = Branch()
    wrapped = engine.wrap(model)
    found = {}
    for name in ("together", "alone", "accumulated"):
        if name == "alone":
            model(engine.rank == 0).backward()
        else:
            if name == "accumulated":
                with engine.no_sync(wrapped):
                    wrapped(engine.rank == 0).backward()
            wrapped(engine.rank == 0).backward()
        found[name] = [None if p.grad is None else p.grad.flatten().tolist() for p in model.parameters()]
        model.zero_grad()
    return found


def main(engine_name: str, folder: Path) -> None:
    """What each rank runs, all cases in a row: starting ranks takes longer than a case."""
    engine = engines.start(parts.configure("engines", engine_name))
    found = {
        name: gradient(run, engine, Split(2, micro, whole_groups), count)
        for name, (run, micro, whole_groups, count) in ON_TWO_RANKS.items()
    }
    (folder / f"rank-{engine.rank}.json").write_text(json.dumps(found))
    if engine_name == "horovod":
        (folder / f"branches-{engine.rank}.json").write_text(json.dumps(branches(engine)))
    for dtype in ("float32", "float64"):
        for model, optimizer in CASES:
            run = case_run(model, optimizer, dtype)
            run_folder = Folder(folder / f"{model}-{optimizer}-{dtype}")
            if engine.rank == 0:
                run_folder.create(run)
            engine.broadcast(None)  # nobody reads the folder before it is there
            training = Training(run, run_folder, engine, TrainOptions())
            training.run_to_end(StopRequest(), checkpoint_minutes=60)
            training.close()
    engine.stop()
    os._exit(0)  # as bigbatch's own ranks do, see cli.main


def all_cases(engine_name: str, folder: Path) -> Path:
    environment = processes.rank_environment(2) | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]]),
    }
    line = processes.rank_command(engine_name, 2, "test_horovod", [engine_name, str(folder)])
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def horovod(tmp_path_factory):
    return all_cases("horovod", tmp_path_factory.mktemp("horovod"))


@pytest.fixture(scope="module")
def ddp(tmp_path_factory):
    return all_cases("ddp", tmp_path_factory.mktemp("ddp"))


def furthest(a, b):
    assert a.keys() == b.keys()
    return max((a[name].double() - b[name].double()).abs().max().item() for name in a)


@pytest.mark.horovod
@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize(("model", "optimizer"), CASES)
def test_horovod_trains_the_same_network_as_one_process_and_as_ddp(
    tmp_path, horovod, ddp, model, optimizer, dtype, most
):
    run = case_run(model, optimizer, dtype)
    train(run, runs_dir=tmp_path)
    case = f"{model}-{optimizer}-{dtype}"
    weights = final_weights(horovod / case)
    assert furthest(weights, final_weights(tmp_path / run.folder_name)) < most
    assert furthest(weights, final_weights(ddp / case)) < most


@pytest.mark.horovod
@pytest.mark.parametrize("case", ON_TWO_RANKS)
def test_horovod_gives_the_gradient_that_ddp_gives(horovod, ddp, case):
    """Even, uneven, without samples on a rank, accumulated, with BatchNorm, with selectors."""
    ranks = [json.loads((horovod / f"rank-{rank}.json").read_text())[case] for rank in range(2)]
    assert ranks[0] == ranks[1]
    assert_close(ranks[0], json.loads((ddp / "rank-0.json").read_text())[case])


@pytest.mark.horovod
def test_a_parameter_without_use_and_a_rank_without_samples_hold_nobody_up(horovod):
    found = json.loads((horovod / "rank-0.json").read_text())
    assert found["a parameter without use"].keys() == {"used.weight", "used.bias"}
    assert_close(found["a parameter without use"], gradient(UNUSED, engines.start(UNUSED.engine), Split(1, 64), 500))
    case = "one rank without samples"
    assert_close(found[case], autograd_oracle(EXACT, ON_TWO_RANKS[case][3]))


@pytest.mark.horovod
def test_a_tensor_used_on_one_rank_is_summed_and_a_backward_of_the_model_itself_is_not(horovod):
    ranks = [json.loads((horovod / f"branches-{rank}.json").read_text()) for rank in range(2)]
    twice = [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]  # each rank adds 0 to 7
    assert ranks[0]["together"] == ranks[1]["together"] == [[3.0], [3.0], twice]
    once = [number / 2 for number in twice]
    assert ranks[0]["alone"] == [[3.0], None, once]
    assert ranks[1]["alone"] == [None, [3.0], once]
    assert ranks[0]["accumulated"] == ranks[1]["accumulated"] == [[6.0], [6.0], [2 * number for number in twice]]


def on_two_ranks(run, tmp_path, *arguments, expect=0, engine=None):
    run = Run(**(run.model_dump(mode="json") | {"engine": engine or "horovod"}))
    path = write_run(run, tmp_path)
    done = bigbatch("train", path, "--ranks", 2, "--runs-dir", tmp_path / "ranks", *arguments, expect=expect)
    return done, Folder(tmp_path / "ranks" / run.folder_name)


@pytest.mark.horovod
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_restarted_and_changes_nothing_in_the_end(tmp_path, rank):
    optimizer = {"name": "outside:DyingSGD", "lr": 0.05, "marker": str(tmp_path / "died"), "at_step": 10, "rank": rank}
    run = small_run(model=NET, optimizer=optimizer)
    done, folder = on_two_ranks(run, tmp_path)
    assert (tmp_path / "died").exists()
    assert done.stderr.count("all continue from the last checkpoint") == 1
    assert folder.status == "done"
    folder.path.rename(tmp_path / "killed")
    _, whole = on_two_ranks(run, tmp_path)  # the marker is there: this one does not die
    assert same_bits(final_weights(tmp_path / "killed"), final_weights(whole))


@pytest.mark.horovod
def test_ctrl_c_stops_all_ranks_and_one_process_goes_on_with_the_same_samples(tmp_path):
    optimizer = {"name": "outside:DyingSGD", "lr": 0.05, "marker": str(tmp_path / "died"), "at_step": 8}
    run = small_run(dtype="float64", optimizer=optimizer | {"signal_number": int(signal.SIGINT)})
    done, folder = on_two_ranks(run, tmp_path, expect=75)
    assert folder.status == "stopped"
    assert done.stderr.count("continues it") == 1
    assert "Traceback" not in done.stderr
    bigbatch("resume", folder.path)
    assert folder.status == "done"
    train(run, runs_dir=tmp_path)
    assert furthest(final_weights(folder), final_weights(tmp_path / run.folder_name)) < 1e-12


@pytest.mark.horovod
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_launcher_passes_a_signal_on(tmp_path, number):
    run = small_run(epochs=10_000, engine="horovod")
    command = [sys.executable, "-m", "bigbatch", "train", str(write_run(run, tmp_path)), "--ranks", "2"]
    with subprocess.Popen([*command, "--runs-dir", str(tmp_path)], stderr=subprocess.PIPE, text=True) as launcher:
        lines = []
        for line in launcher.stderr:
            lines.append(line)
            if "test accuracy" in line:  # it trains
                break
        os.kill(launcher.pid, number)
        rest = launcher.stderr.read()
        assert launcher.wait(timeout=60) == 75, rest
    assert "Traceback" not in rest
    assert "<std" not in "".join(lines) + rest  # horovodrun's mark before every line
    assert Folder(tmp_path / run.folder_name).status == "stopped"


@pytest.mark.horovod
def test_bad_input_on_two_ranks_is_said_once_without_a_traceback(tmp_path):
    done, folder = on_two_ranks(small_run(global_batch=255), tmp_path, expect=2)
    assert done.stderr.count("global_batch 255 does not divide over 2 ranks") == 1
    assert "Traceback" not in done.stderr
    assert folder.status == "failed"


@pytest.mark.horovod
def test_a_timeline_without_a_folder_leaves_nothing_behind(tmp_path):
    engine = {"name": "horovod", "timeline": str(tmp_path / "none" / "timeline.json")}
    done, folder = on_two_ranks(small_run(), tmp_path, engine=engine, expect=2)
    assert "is in a folder that does not exist: create it first" in done.stderr
    assert not folder.path.exists()


@pytest.mark.horovod
def test_horovodrun_started_by_hand_works_the_same(tmp_path):
    run = small_run(epochs=1)
    command = [
        *(str(Path(sys.executable).with_name("horovodrun")), "--gloo", "-np", "2", "--network-interface", "lo"),
        *(sys.executable, "-m", "bigbatch", "train", str(write_run(run, tmp_path)), "--runs-dir", str(tmp_path)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1
    assert Folder(tmp_path / run.with_settings(["engine=horovod"]).folder_name).summary()["ranks"] == 2


def timeline_of(tmp_path: Path, **settings: float) -> list[dict]:
    """What Horovod wrote in an epoch of a training."""
    path = tmp_path / "timeline.json"
    engine = {"name": "horovod", "timeline": str(path), **settings}
    on_two_ranks(small_run(epochs=1), tmp_path, engine=engine)
    return json.loads(path.read_text())  # whole, although ranks leave at once when they are done


@pytest.mark.horovod
def test_settings_reach_horovod(tmp_path):
    names = {}
    for case, settings in {"own": {"fusion_mb": 0, "cycle_ms": 20, "cache_capacity": 0}, "default": {}}.items():
        events = timeline_of(tmp_path, **settings)
        names[case] = Counter(event.get("name") for event in events)
        if case == "own":
            starts = [event["ts"] for event in events if event.get("name") == "CYCLE_START"]
            assert statistics.median(after - before for before, after in pairwise(starts)) > 19_000  # µs
    assert names["own"]["MEMCPY_IN_FUSION_BUFFER"] == 0 < names["default"]["MEMCPY_IN_FUSION_BUFFER"]
    # one mark for each rank that tells rank 0 a name, which happens once with the cache and at every step without it
    assert names["own"]["1"] == names["own"]["NEGOTIATE_ALLREDUCE"] + names["own"]["NEGOTIATE_BROADCAST"]
    assert names["default"]["1"] < names["default"]["NEGOTIATE_ALLREDUCE"]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
