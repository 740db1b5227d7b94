"""Reports in a real browser: no complaint, nothing fetched, figures of real size, CSV files that are the data."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from report_folders import make, step_row
from small import small_run

from bigbatch.advice import advise
from bigbatch.demo import DemoReport
from bigbatch.demo.page import build_page
from bigbatch.demo.run import DroppedDigits, build_variants, compare_variants
from bigbatch.filters.pipeline.results import ClassCounts, SampleCounts
from bigbatch.recipes import legw_digits
from bigbatch.report import compare_runs, report
from bigbatch.sweeps import Sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    sweep = Sweep.create(
        small_run(), tmp_path_factory.mktemp("sweep") / "s", grids={"global_batch": [64, 128, 256]}, seeds=2
    )
    for point in sweep.points:
        accuracy = 0.96 - 0.1 * (point.global_batch == 256) + 0.01 * point.seed
        folder = make(sweep.folder / "runs" / point.folder_name, point.run, [0.5, accuracy])
        with (folder / "metrics.jsonl").open("a") as file:
            for step in (9, 10):
                file.write(json.dumps(step_row(step, 0.1, probe={"value": 0.5 * step + point.seed})) + "\n")
    return sweep


def figures(page):
    return page.evaluate(
        """[...document.querySelectorAll('figure svg')].map(svg => {
            const box = svg.getBoundingClientRect();
            return [box.width, box.height, svg.querySelectorAll('path').length, svg.textContent.trim().length];
        })"""
    )


def open_and_check(page, path, count):
    page.goto(path.as_uri())
    found = figures(page)
    assert len(found) == count
    assert all(width > 300 and height > 150 and paths > 10 and text > 20 for width, height, paths, text in found)
    assert page.complaints.errors == []
    assert [url for url in page.complaints.requests if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280  # wide tables scroll by themselves


def downloaded(page, name):
    with page.expect_download() as started:
        page.click(f"a[download='{name}']")
    return list(csv.DictReader(Path(started.value.path()).read_text().splitlines()))


def test_the_report_of_a_sweep_shows_its_figures_and_gives_their_data(page, sweep, tmp_path):
    path = report([sweep.folder], tmp_path / "report.html")
    # answers: against the batch. Curves: three losses, two accuracies, learning rate, batch. Probes: one.
    open_and_check(page, path, count=9)
    rows = downloaded(page, "test-accuracy-against-the-batch.csv")
    groups = sweep.analyze().curves[0].groups
    assert [float(row["test accuracy (%)"]) for row in rows] == pytest.approx([100 * group.mean for group in groups])
    assert [float(row["low"]) for row in rows] == pytest.approx([100 * group.low for group in groups])
    rows = downloaded(page, "probe-value.csv")
    assert [float(row["probe/value"]) for row in rows] == pytest.approx([5.0, 5.5] * 3)  # means over seeds 0 and 1


def test_two_runs_side_by_side(page, sweep, tmp_path):
    folders = sorted((sweep.folder / "runs").iterdir())[:2]
    open_and_check(page, compare_runs(folders, tmp_path / "both.html"), count=8)
    assert page.locator("h1").text_content() == f"{folders[0].name} beside {folders[1].name}"


def test_the_demos_page(page, tmp_path):
    variants = build_variants()
    sweep = Sweep.create(legw_digits.run(), tmp_path / "demo", variants=variants, seeds=2)
    for point in sweep.points:
        accuracy = 0.9 - 0.1 * list(variants).index(point.variant) + 0.01 * point.seed
        make(sweep.folder / "runs" / point.folder_name, point.run, [0.5, accuracy])
    png = io.BytesIO()
    Image.new("L", (8, 8)).save(png, "PNG")
    counts = SampleCounts(95, 5, {"0": ClassCounts(48, 2), "1": ClassCounts(47, 3)})
    dropped = DroppedDigits(counts, 1, [(png.getvalue(), "1, predicted as 7")], "tsne")
    samples = torch.randn(256, 4), torch.randint(0, 2, (256,))
    advice = advise(torch.nn.Linear(4, 2), torch.nn.functional.cross_entropy, samples, lr=0.1, seconds=1.0)
    comparison = compare_variants(sweep.points, sweep.run_results())
    path = build_page(DemoReport(comparison, advice, dropped, sweep.folder, 60.0)).write(tmp_path / "demo.html")
    open_and_check(page, path, count=3)
    assert page.evaluate("[...document.images].every(image => image.naturalWidth === 8 && image.width === 64)")
