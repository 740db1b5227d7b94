"""`bigbatch scale measure` with real ranks."""

from __future__ import annotations

import json
import subprocess
import sys


def test_ctrl_c_keeps_the_rounds_that_are_complete(tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir()
    model = ["traced_models:InterruptingLater", "--set", f"model.pids={pids}", "--set", "model.after=6"]
    # a round: two ranks that calibrate, one process with the batch of one rank and one with that of both, two ranks
    done = subprocess.run(
        [sys.executable, "-m", "bigbatch", "scale", "measure", *model, "--engines", "ddp", "--sample", "1,8,8",
         "--rounds", "3", "--steps", "1", "--out", str(tmp_path / "out")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "round 1 of 3: local 1x8: " in done.stderr
    assert "what follows is of the 1 complete of 3 rounds" in done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads((tmp_path / "out" / "measure.json").read_text())
    assert {one["round"] for one in found["rounds"]} == {0}
    assert len(found["cases"]) == 3
    counts = {one["case"]: [len(rank["without_communication_s"]) for rank in one["ranks"]] for one in found["rounds"]}
    assert counts == {"local 1x8": [0], "local 1x16": [0], "ddp 2x8": [12, 12]}
    assert (tmp_path / "out" / "machine.json").exists()
