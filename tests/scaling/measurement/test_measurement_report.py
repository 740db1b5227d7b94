"""The report of a measurement written by hand."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import hand_measurement
import pytest

from bigbatch.scaling.machine import find_machine
from bigbatch.scaling.measurement import report
from bigbatch.scaling.published import compare_published


@pytest.fixture
def measurement(recwarn):
    return hand_measurement.measurement()


def test_steps_on_a_busy_machine_judge_no_simulation(measurement):
    busy = [replace(one, others_cores=1.5) for one in measurement.rounds]
    found = replace(measurement, rounds=tuple(busy))
    assert measurement.refusals == []
    assert "within 25%" in report.validation_sentence(measurement)
    assert "not judged by these: the machine was too busy" in report.validation_sentence(found)
    assert all(row["error"] == row["within 25%"] == row["its error"] == "" for row in report.validation_rows(found))
    judged = report.validation_rows(measurement)
    assert all("%" in row["error"] and row["within 25%"] and "%" in row["its error"] for row in judged)
    assert not any("%" in row["simulated"] for row in report.time_rows(found))


def test_a_measurement_is_written_with_its_machine_and_its_page(measurement, tmp_path):
    (tmp_path / "trace_ddp.svg").write_text('<?xml version="1.0"?><svg id="a-trace"></svg>')
    paths = report.write_report(measurement, compare_published(), tmp_path, "bigbatch scale measure mlp --out o")
    assert paths[-1].name == "measure.html"
    assert find_machine(str(tmp_path / "machine.json")) == measurement.calibration.machine
    with (tmp_path / "measure.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(measurement.request.configurations)
    assert float(rows[0]["best_ms"]) == pytest.approx(10.0)
    found = json.loads((tmp_path / "measure.json").read_text())
    assert [entry["efficiency"] for entry in found["efficiencies"]] == pytest.approx([0.8, 0.4])
    page = (tmp_path / "measure.html").read_text()
    for text in ("80.0%", "Simulated against measured", "contention 1.288", "Yin et al. 2019", 'id="a-trace"',
                 "bigbatch scale measure mlp --out o", "bucket cap"):  # fmt: skip
        assert text in page, text
