"""Accuracy beside the filter, from run folders as training leaves them."""

from __future__ import annotations

import json

import pytest
from viewer_pages import open_page

from bigbatch import filters
from bigbatch.artifacts.folder import Folder
from bigbatch.run import Run


def leave_run(runs_dir, accuracy, **fields):
    """A finished run's folder; its accuracy is made up, so that means can be taken by hand. None: diverged."""
    about = {"dataset": "digits", "model": "mlp", "epochs": 1, "optimizer": {"name": "momentum", "lr": 0.1}}
    run = Run(**(about | {"global_batch": 64} | fields))
    folder = Folder(runs_dir / run.folder_name)
    folder.create(run)
    folder.write(
        "summary.json", json.dumps({"test_accuracy": accuracy, "diverged_at_step": 3 if accuracy is None else None})
    )
    return folder


def test_the_filter_stands_beside_its_controls(kept, tmp_path):
    runs = tmp_path / "runs"
    for seed, accuracy in enumerate((0.90, 0.92, 0.94)):
        leave_run(runs, accuracy, filter=str(kept), seed=seed)
    leave_run(runs / "deeper", 0.8, filter=str(kept), global_batch=512)
    leave_run(runs, None, filter=str(kept), global_batch=512, seed=1)
    leave_run(runs, 0.95)
    leave_run(runs, 0.7, filter={"name": "random", "like": str(kept), "seed": 4})
    leave_run(runs, 0.6, filter={"name": "random", "like": str(kept), "seed": 5})
    # these have nothing to do with it: another learning rate, another filter, unfinished, unreadable
    leave_run(runs, 0.1, optimizer={"name": "momentum", "lr": 0.2})
    leave_run(runs, 0.1, filter={"name": "el2n"})
    (leave_run(runs, 0.1, seed=77).path / "summary.json").unlink()
    (leave_run(runs, 0.1, seed=78).path / "run.json").write_text("{")
    with open_page(kept, runs_dir=runs) as page:
        by_name = {curve["name"]: curve["points"] for curve in page.get("0/accuracy").json()["series"]}
    assert list(by_name) == ["this filter", "full", "random, like kept.npz"]
    small, large = by_name["this filter"]
    # t(.975, 2) = 4.302653, s = 0.02: 0.92 ± 4.302653 · 0.02 / √3
    assert (small["global_batch"], small["n"], small["diverged"]) == (64, 3, 0)
    assert [small[key] for key in ("mean", "low", "high")] == pytest.approx([0.92, 0.870317, 0.969683], abs=1e-6)
    assert (large["global_batch"], large["mean"], large["low"], large["n"], large["diverged"]) == (512, 0.8, None, 1, 1)
    assert [point["mean"] for point in by_name["full"]] == [0.95]
    assert by_name["random, like kept.npz"][0]["mean"] == pytest.approx(0.65)


def test_exports_are_curves_of_their_own_and_recipes_are_told_apart(kept, tmp_path):
    runs = tmp_path / "runs"
    with open_page(kept, runs_dir=runs) as page:
        assert page.get("0/accuracy").json() == {"series": []}
        page.post("0/overrides", {"action": "drop", "samples": [0]})
        export = page.exported("kept")[0]
        leave_run(runs, 0.9, filter=str(kept))
        leave_run(runs, 0.91, filter=str(export))
        leave_run(runs, 0.92, filter=str(export), optimizer={"name": "momentum", "lr": 0.2})
        names = [curve["name"] for curve in page.get("0/accuracy").json()["series"]]
        assert names == [
            "this filter (optimizer.lr=0.1)",
            "this filter, kept-1 (optimizer.lr=0.1)",
            "this filter, kept-1 (optimizer.lr=0.2)",
        ]


def test_a_batch_that_grows_is_no_constant_one(kept, tmp_path):
    stages = [{"from_epoch": 0, "global_batch": 16}, {"from_epoch": 1, "global_batch": 128}]
    leave_run(tmp_path, 0.9, filter=str(kept), global_batch=128)
    leave_run(tmp_path, 0.5, filter=str(kept), global_batch={"name": "steps", "stages": stages})
    with open_page(kept, runs_dir=tmp_path) as page:
        series = page.get("0/accuracy").json()["series"]
    found = sorted((point["global_batch"], point["mean"], point["n"]) for curve in series for point in curve["points"])
    assert found == [(128, 0.5, 1), (128, 0.9, 1)]
    assert len({curve["name"] for curve in series}) == 2


def test_a_random_control_in_a_file_is_found_by_its_manifest(kept, tmp_path):
    from bigbatch.curation import FilterRequest, filter_dataset

    control = tmp_path / "control.npz"
    filter_dataset(FilterRequest("digits", out=control, filter_name="random", settings=["drop=0.2"], quiet=True))
    leave_run(tmp_path / "runs", 0.9, filter=str(kept))
    leave_run(tmp_path / "runs", 0.8, filter=str(control))
    with open_page(kept, runs_dir=tmp_path / "runs") as page:
        names = [curve["name"] for curve in page.get("0/accuracy").json()["series"]]
    assert names == ["this filter", "random, 20 % dropped"]
    assert filters.load(control).manifest.filter["name"] == "random"
