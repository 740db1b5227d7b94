from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
from base64 import b64decode
from math import sqrt
from pathlib import Path

import pytest
from small import small_run

from bigbatch import demo, schedules
from bigbatch.artifacts.folder import Folder
from bigbatch.demo.measured import Measured, gap, shares_by_seed, verdict, won_back
from bigbatch.demo.stations import BASELINE, LEGW, LEGW_LARS, LINEAR, UNSCALED, stations
from bigbatch.demo.tuning import INITS, LRS, TRUST_COEFFICIENTS, WARMUP_EPOCHS, candidates, chosen
from bigbatch.recipes import legw_digits

TESTS = Path(__file__).parent
BY_NAME = {station.name: station for station in stations()}


def measured(**accuracies):
    """By hand; None is a training that diverged."""
    names = {"baseline": BASELINE, "unscaled": UNSCALED, "linear": LINEAR, "legw": LEGW, "lars": LEGW_LARS}
    return {
        names[name]: Measured(
            BY_NAME[names[name]],
            range(len(values)),
            [{"test_accuracy": v, "diverged_at_step": 3 if v is None else None, "steps": 60} for v in values],
        )
        for name, values in accuracies.items()
    }


def test_every_lr_follows_from_the_baseline():
    assert [(station.global_batch, station.run.epochs) for station in BY_NAME.values()] == [(16, 30)] + 4 * [(512, 30)]
    peaks = {name: station.peak_lr for name, station in BY_NAME.items()}
    assert peaks[BASELINE] == peaks[UNSCALED] == pytest.approx(0.05)
    assert peaks[LINEAR] == pytest.approx(32 * 0.05)
    assert peaks[LEGW] == pytest.approx(sqrt(32) * 0.05)


def test_the_unscaled_training_differs_in_the_batch_alone():
    small, large = (schedules.plan(BY_NAME[name].run, 30, 500) for name in (BASELINE, UNSCALED))
    assert [point.lr for point in small] == pytest.approx([point.lr for point in large])
    fields = [BY_NAME[name].run.model_dump(exclude={"global_batch", "schedule"}) for name in (BASELINE, UNSCALED)]
    assert fields[0] == fields[1]


def test_candidates_are_judged_at_the_small_batch_on_samples_held_out_of_the_training_set():
    tried = list(candidates())
    assert [candidate.value for candidate in tried] == [*INITS, *LRS, *WARMUP_EPOCHS, *TRUST_COEFFICIENTS]
    for candidate in tried:
        assert candidate.run.dataset.name == "held_out"
        assert candidate.run.global_batch.global_batch == legw_digits.BASELINE_BATCH
    assert legw_digits.INIT in INITS
    assert legw_digits.LR in LRS
    assert legw_digits.WARMUP_EPOCHS in WARMUP_EPOCHS
    assert legw_digits.TRUST_COEFFICIENT in TRUST_COEFFICIENTS


def test_the_highest_mean_is_chosen_and_of_equal_ones_the_larger_value():
    tried = list(candidates())
    means = [0.7, 0.6, 0.8, 0.9, 0.9, 0.7, 0.6, 0.5, 0.0, 0.1, 0.0]
    judged = [(candidate, [mean - 0.1, mean + 0.1]) for candidate, mean in zip(tried, means, strict=True)]
    assert chosen(judged) == {
        "initial weights": INITS[0],
        "learning rate": LRS[2],
        "warm-up epochs": WARMUP_EPOCHS[0],
        "trust coefficient of LARS": TRUST_COEFFICIENTS[1],
    }


def test_what_is_won_back_is_a_share_of_what_was_lost():
    found = measured(baseline=[0.9, 1.0], unscaled=[0.4, 0.6], legw=[0.90, 0.92], lars=[0.95, 0.95], linear=[0.1, 0.1])
    # .95 falls to .50: .45 lost; .91 is .41 above .50
    assert won_back(found) == pytest.approx(0.41 / 0.45)
    # seed 0: .5 of .5 lost won back; seed 1: .32 of .4
    assert shares_by_seed(found) == pytest.approx([1.0, 0.8])
    assert verdict(found, LEGW) == "LEGW wins back 91 % of the accuracy that was lost (by seed: 100, 80 %)."
    assert "wins back 100 %" in verdict(found, LEGW_LARS)
    assert "wins nothing back: it loses 89 % more" in verdict(found, LINEAR)


def test_a_diverged_training_is_counted_beside_the_mean():
    found = measured(baseline=[0.9, 0.9], unscaled=[0.5, None], legw=[None, None])
    assert found[UNSCALED].described() == "50.0 % (n=1, 1 diverged)"
    assert found[LEGW].described() == "none (n=0, 2 diverged)"
    assert won_back(found) is None
    assert "nothing to win back" in verdict(found, LEGW)
    assert "90.0 % ± 0.0 (n=2) becomes 50.0 % (n=1, 1 diverged)" in gap(found)


def test_workers_leave_when_their_owner_is_killed():
    code = (
        "import os, sys\nfrom bigbatch.demo.workers import workers\n"
        "if __name__ == '__main__':\n    with workers(1) as pool:\n"
        "        print(pool.do(os.getpid).result(), flush=True)\n        sys.stdin.read()\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert int(owner.stdout.readline()) != owner.pid
    owner.kill()
    assert owner.stdout.read() == ""  # comes to an end only when the worker, which shares it, is gone
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()


TRAINS_FOR_EVER = """
import sys
from bigbatch import demo
from bigbatch.cli import main
from bigbatch.demo.workers import workers
from bigbatch.run import Run

def show(runs_dir, out, quiet):
    first = Run.from_json(sys.argv[1])
    with workers(1) as pool:
        for future in pool.train([first, first.with_settings(["seed=1"])], runs_dir):
            future.result()

if __name__ == "__main__":
    demo.show = show
    main(["demo"])
"""


@pytest.mark.parametrize(
    ("stop", "code", "said"),
    [
        (lambda pid: os.killpg(pid, signal.SIGINT), 130, "bigbatch: interrupted"),  # as a terminal does on Ctrl-C
        (lambda pid: os.kill(pid, signal.SIGTERM), 143, "what is trained so far is kept"),
    ],
    ids=["ctrl-c", "sigterm"],
)
def test_a_stopped_demo_leaves_no_process_and_keeps_what_is_trained(tmp_path, monkeypatch, stop, code, said):
    """One training is under way, the next one already with its process; neither would ever end."""
    script, told = tmp_path / "script.py", tmp_path / "told"
    script.write_text(TRAINS_FOR_EVER)
    os.mkfifo(told)
    optimizer = {"name": "sweep_parts:ToldSGD", "lr": 0.1, "told": str(told)}
    run = small_run(optimizer=optimizer, epochs=1_000_000)
    owner = subprocess.Popen(
        [sys.executable, script, run.to_json()],
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert told.read_text()  # it trains
    stop(owner.pid)
    text, _ = owner.communicate()  # to the end, which comes only when all processes that share it are gone
    assert owner.returncode == code
    assert said in text
    assert "Traceback" not in text
    first, second = (Folder(tmp_path / "runs" / seeded.folder_name) for seeded in (run, run.with_settings(["seed=1"])))
    assert first.status == "stopped"
    assert any(first.checkpoints.glob("step-*"))
    assert second.status is None


def test_the_whole_demo_in_short(tmp_path, capsys):
    found = demo.show(tmp_path / "runs", tmp_path / "demo.html", True, seeds=(0,), epochs=7, advice_seconds=1.0)
    text = capsys.readouterr().out
    page = (tmp_path / "demo.html").read_text()
    assert text.rstrip().endswith((tmp_path / "demo.html").as_uri())
    assert len(list((tmp_path / "runs").iterdir())) == 5
    for name, station in found.items():
        run = station.station.with_seed(0)
        accuracy = Folder(tmp_path / "runs" / run.folder_name).summary()["test_accuracy"]
        assert re.search(rf"{re.escape(name)}\W.*{100 * accuracy:.1f} % \(n=1\)", text), name
        assert f"{100 * accuracy:.1f} % (n=1)" in page
    assert "advise: use a global batch of" in text
    assert 50 < int(re.search(r"finds no place for (\d+) of 1,437 digits", text).group(1)) <= 72  # 5 %, or a tie less
    assert page.count("<svg") == 3
    assert page.count("data:image/png") == 20
    data = re.search(r'download="test-accuracy.csv" href="data:text/csv;base64,([^"]+)"', page).group(1)
    last = {row["series"]: row for row in csv.DictReader(io.StringIO(b64decode(data).decode()))}
    assert {name: float(last[name]["Test accuracy (%)"]) for name in found} == {
        name: pytest.approx(100 * station.mean) for name, station in found.items()
    }
