"""Pages are self-contained HTML with all text escaped."""

from __future__ import annotations

import base64
import re

import pytest

from bigbatch.errors import Problem
from bigbatch.output.figures import Chart
from bigbatch.output.page import Page


def _accuracy_chart() -> Chart:
    chart = Chart("Accuracy against batch", "global batch", "accuracy", log_x=True)
    chart.line("legw", [128, 256], [0.98, 0.97])
    return chart


def test_text_is_escaped_and_nothing_is_loaded(tmp_path):
    page = Page("<b>runs</b>", "under & below")
    page.heading("<i>")
    page.text("<script>alert(1)</script>", kind="warning")
    page.key_numbers([("batch", "<8192>")])
    page.table(["run", "accuracy"], [["<a>", 0.98], ["b", None]], heat="accuracy")
    page.charts([(_accuracy_chart(), "a caption")])
    page.footer(["seed <1>"])
    html = page.write(tmp_path / "page.html").read_text()
    assert "<script" not in html
    assert "<b>runs" not in html
    assert not re.search(r'(src|href)="(?!data:|#)', html)
    assert not re.search(r"url\((?!#|&)", html)
    assert '<td class="number" style="background:rgba(213, 94, 0, 0.50)">0.98</td>' in html


def test_the_csv_of_a_chart_has_its_numbers():
    page = Page("t")
    chart = _accuracy_chart()
    page.charts([(chart, "")])
    (encoded,) = re.findall(r'download="accuracy-against-batch.csv" href="data:text/csv;base64,([^"]*)"', page.html())
    assert base64.b64decode(encoded).decode() == chart.csv()


def test_numbers_are_aligned_and_shaded_by_rank():
    page = Page("t")
    page.table(["class", "dropped"], [["a", 1], ["b", 1000], ["c", None]], heat="dropped")
    html = page.html()
    assert '<td class="number" style="background:rgba(213, 94, 0, 0.25)">1</td>' in html
    assert '<td class="number" style="background:rgba(213, 94, 0, 0.50)">1,000</td>' in html


def test_images_and_links():
    page = Page("t")
    page.svg_images([('<?xml version="1.0"?><svg id="trace"></svg>', "a <trace>")])
    page.png_images([(b"png", "a digit")])
    page.csv_download("runs.csv", "a,b\n")
    page.link("trace", "trace file.json")
    html = page.html()
    assert '<figure><svg id="trace"></svg><figcaption>a &lt;trace&gt;</figcaption></figure>' in html
    assert f'src="data:image/png;base64,{base64.b64encode(b"png").decode()}"' in html
    assert f'download="runs.csv" href="data:text/csv;base64,{base64.b64encode(b"a,b" + bytes([10])).decode()}"' in html
    assert 'href="trace%20file.json"' in html


def test_a_folder_that_is_not_writable_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Problem, match="could not be written"):
        Page("t").write(tmp_path / "file" / "page.html")
