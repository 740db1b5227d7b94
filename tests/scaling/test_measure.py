"""`bigbatch scale measure` with real ranks, on this machine and over two network namespaces."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import namespaces
import pytest

from bigbatch.cli import app
from bigbatch.engines import horovod
from bigbatch.errors import Notice, Problem
from bigbatch.scaling.measured import asked, hosts, rounds, starts
from bigbatch.scaling.measured.cases import Case, Subject
from bigbatch.scaling.measured.timings import Round, timings

TINY = Subject("mlp", {"hidden": (16, 16)}, (1, 8, 8), 10)
PAIR = Case("ddp", 2, 4)
FEW = rounds.Plan(rounds=1, warmup_steps=2, timed_steps=4, noted_steps=2)


def scale(*arguments: object) -> int:
    return app(["scale", *map(str, arguments)], result_action="return_value")


def least_exposed_s(found: Round) -> float:
    return min(step.exposed_s for record in found.records for step in record.noted)


@pytest.fixture(scope="module")
def here():
    """One process and two ranks of this machine: their timings, and what was said meanwhile."""
    said: list[str] = []
    return timings(
        [one for found in rounds.measure(TINY, [Case("local", 1, 4), PAIR], FEW, said=said.append) for one in found]
    ), said


def test_two_real_ranks_and_one_process_are_measured(here):
    found, said = here
    alone, pair = found[Case("local", 1, 4)], found[PAIR]
    assert [len(timing.best.records) for timing in (alone, pair)] == [1, 2]
    assert [len(record.wall_s) for record in pair.best.records] == [4, 4]
    # 64·16+16, 16·16+16, 16·10+10: what travels is every gradient, once
    assert sum(pair.phases.sent_bytes) == sum(pair.best.records[0].bucket_bytes) == 4 * (1040 + 272 + 170)
    assert alone.phases.sent_bytes == ()
    assert all(step.exposed_s > 0 for record in pair.best.records for step in record.noted)
    assert said[0].startswith("round 1 of 1: local 1x4: ")


@namespaces.needs(namespaces.NARROW)
def test_a_narrow_link_between_two_hosts_shows_as_exposed_communication(here):
    with namespaces.joined(namespaces.NARROW) as names:
        apart = rounds.once(TINY, PAIR, 0, FEW, hosts.parsed(names))
    # 6 kB at 400 kbit/s: some 100 ms
    assert least_exposed_s(apart) > 5 * least_exposed_s(here[0][PAIR].best)


@namespaces.needs(namespaces.FAR)
def test_a_long_way_between_two_hosts_shows_as_exposed_communication(here):
    with namespaces.joined(namespaces.FAR) as names:
        apart = rounds.once(TINY, PAIR, 0, FEW, hosts.parsed(names))
    assert least_exposed_s(apart) > 5 * least_exposed_s(here[0][PAIR].best)


@pytest.mark.horovod
def test_horovods_timeline_tells_what_was_sent_and_how_long_it_was_agreed_on():
    found = rounds.once(TINY, Case("horovod", 2, 4), 0, FEW, traced=True)
    for step in found.records[0].noted:
        assert sum(one.bytes for one in step.sent) == 4 * (1040 + 272 + 170)
        assert step.negotiation_s > 0
        assert all(0 < one.start_s < one.end_s for one in step.sent)
        assert step.overlapped_s is not None
    phases = timings([found])[Case("horovod", 2, 4)].phases
    assert phases.exposed_s > 0


def test_a_signal_leaves_no_ranks_behind(tmp_path):
    """The ranks' program never ends by itself; its process group is gone after the signal."""
    os.mkfifo(tmp_path / "started")
    code = (
        "import sys\nfrom pathlib import Path\nfrom bigbatch.scaling.measured.starts import run_all\n"
        "child = 'import os, sys, time; open(sys.argv[1], \"w\").write(str(os.getpid())); time.sleep(600)'\n"
        "run_all([[sys.executable, '-c', child, sys.argv[1] + '/started']], 1, Path(sys.argv[1]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.DEVNULL) as process:
        rank = int((tmp_path / "started").read_text())  # waits for it
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(rank, 0)


@namespaces.needs(namespaces.WIDE)
def test_where_a_port_is_in_use_another_one_is_taken(monkeypatch):
    ports = iter([23_456, 23_457])
    monkeypatch.setattr(hosts.random, "randint", lambda *_: next(ports))
    with namespaces.joined(namespaces.WIDE) as names, namespaces.taken(names.partition(",")[0], 23_456):
        found = rounds.once(TINY, PAIR, 0, FEW, hosts.parsed(names))
    assert [record.rank for record in found.records] == [0, 1]
    assert list(ports) == []


def test_ctrl_c_keeps_the_rounds_that_are_complete(tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir()
    model = ["scaling.traced_models:InterruptingLater", "--set", f"model.pids={pids}", "--set", "model.after=6"]
    # a round: two ranks that calibrate, one process with the batch of one rank and one with that of both, two ranks
    done = subprocess.run(
        [sys.executable, "-m", "bigbatch", "scale", "measure", *model, "--engines", "ddp", "--sample", "1,8,8",
         "--rounds", "3", "--steps", "1", "--out", str(tmp_path / "out")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "what follows is of the 1 complete of 3 rounds" in done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads((tmp_path / "out" / "measure.json").read_text())
    assert {one["round"] for one in found["rounds"]} == {0}
    assert len(found["cases"]) == 3
    silent = {one["case"]: [len(rank["silent_s"]) for rank in one["ranks"]] for one in found["rounds"]}
    assert silent == {"local 1x8": [0], "local 1x16": [0], "ddp 2x8": [12, 12]}
    assert (tmp_path / "out" / "machine.json").exists()


def test_one_that_fails_ends_those_that_wait_for_it(tmp_path):
    lines = [[sys.executable, "-c", f"import time; {code}"] for code in ("time.sleep(600)", "exit('no port')")]
    assert starts.run_all(lines, 1, tmp_path) == ["", "no port\n"]


def test_hosts_are_reached_by_ssh_or_within_a_job_by_srun(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    first, second = hosts.lines(["me@a", "b"], 4, "some.module", ["it's one argument"])
    assert first[:6] == ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "me@a"]
    words = shlex.split(first[6])  # as the other side's shell does
    assert words[:3] == ["env", "OMP_NUM_THREADS=1", sys.executable]
    assert {"--nnodes=2", "--nproc-per-node=2", "--master-addr=a", "--node-rank=0"} < set(words)
    assert words[-3:] == ["-m", "some.module", "it's one argument"]
    assert "--node-rank=1" in shlex.split(second[6])
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    (alone,) = hosts.lines(["a", "b"], 1, "some.module", [])
    assert alone[:2] == ["srun", "--nodes=1"]
    assert "--nodelist=a" in alone
    assert alone[-3:] == [sys.executable, "-m", "some.module"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--ranks", "0"], "--ranks 0 makes no sense"),
        (["--ranks", "two"], "--ranks two is no list of numbers"),
        (["--batch", "0"], "--batch 0 makes no sense"),
        (["--rounds", "0"], "--rounds 0 makes no sense"),
        (["--steps", "-1"], "--steps -1 makes no sense"),
        (["--engines", "dpd"], "no engine called 'dpd'; did you mean 'ddp'?"),
        (["--engines", ","], "no engine was named"),
        (["--sample", "large"], "--sample large is no shape"),
        (["--set", "ddp.bukket_mb=1"], "has no option 'bukket_mb'; did you mean 'bucket_mb'?"),
        (["--set", "machine.nodes=3"], "machine.nodes is for a simulation"),
        (["--set", "dpd.bucket_mb=1"], "is for 'dpd'; did you mean 'ddp'?"),
        (["--hosts", "a,-oProxyCommand=x"], "'-oProxyCommand=x', which is no name of a host"),
        (["--hosts", "a,a"], "names a host twice"),
        (["--hosts", "a,b", "--ranks", "3"], "3 ranks do not divide over 2 hosts"),
        (["--hosts", "netns:no-such-namespace"], "host 'netns:no-such-namespace' cannot be used"),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    engines = [] if "--engines" in arguments else ["--engines", "ddp"]
    sample = [] if "--sample" in arguments else ["--sample", "1,8,8"]
    with pytest.raises(Problem) as caught:
        scale("measure", "mlp", *engines, *sample, *arguments, "--out", "o")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path("o").exists()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("mpl", "no model called 'mpl'; did you mean 'mlp'?"),
        ("vgg16", "'vgg16' is a table of layers and cannot be run"),
        ("mine.csv", "'mine.csv' is a table of layers and cannot be run"),
    ],
)
def test_what_is_no_model_is_one_sentence(model, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problem, match=sentence.replace("?", r"\?")):
        scale("measure", model, "--engines", "ddp", "--out", "o")
    assert not Path("o").exists()


@pytest.mark.parametrize("out", ["o", "o/in/it"])
def test_an_out_that_cannot_be_made_is_refused_before_anything_is_measured(tmp_path, out):
    (tmp_path / "o").write_text("mine")
    with pytest.raises(Problem, match="o is a file, name a folder"):
        scale("measure", "mlp", "--engines", "ddp", "--out", tmp_path / out)
    assert (tmp_path / "o").read_text() == "mine"


def question(engines: str | None, ranks: str = "1,2", hosts: str = "") -> asked.Asked:
    return asked.asked(
        "mlp", engines=engines, ranks=ranks, rank_batch=8, sample_shape=(1, 8, 8), classes=10, rounds=1, steps=1,
        hosts=hosts, sweep=False, settings=[], out=None,
    )  # fmt: skip


def test_more_ranks_than_cores_are_said_in_plain_words():
    with pytest.warns(Notice, match=r"64 ranks share \d+ cores here: they take turns"):
        question("ddp", "64")


def test_other_hosts_are_measured_without_horovod(monkeypatch):
    monkeypatch.setattr(hosts, "check", lambda _: None)  # that they can be reached
    assert {case.engine for case in question(None, hosts="a,b").cases} == {"local", "ddp"}
    with pytest.raises(Problem, match="leave horovod out of --engines"):
        monkeypatch.setattr(horovod, "check_installed", lambda: None)
        question("ddp,horovod", hosts="a,b")


def test_without_horovod_the_others_are_measured_unless_it_was_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod", None)  # as if it were not installed
    with pytest.warns(Notice, match="horovod is left out.*make horovod"):
        assert {case.engine for case in question(None).cases} == {"local", "ddp"}
    with pytest.raises(Problem, match="make horovod"):
        question("ddp,horovod")
