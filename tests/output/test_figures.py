"""Charts: what is drawn is what was given."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree

import pytest

from bigbatch.errors import Problem
from bigbatch.output.figures import COLOURS, Band, Chart, format_tick


def accuracy_chart() -> Chart:
    chart = Chart("Accuracy against batch", "global batch", "accuracy", scale="smoke, n = 3", log_x=True)
    chart.line("legw", [128, 256], [0.98, 0.97], band=Band([0.975, None], [0.985, None], n=[3, 1]))
    chart.horizontal_line(0.988, "paper 98.8 %")
    return chart


def test_a_chart_keeps_the_numbers_it_draws():
    rows = list(csv.DictReader(io.StringIO(accuracy_chart().csv())))
    assert rows[0] == {
        "series": "legw", "global batch": "128", "accuracy": "0.98", "low": "0.975", "high": "0.985", "n": "3",
    }  # fmt: skip
    assert rows[1]["low"] == ""
    assert (rows[2]["series"], rows[2]["accuracy"]) == ("paper 98.8 %", "0.988")


def test_the_band_covers_only_points_that_have_an_interval():
    chart = Chart("t", "x", "y")
    chart.line("a", [1, 2, 3], [1, 2, 3], band=Band([0.5, None, 2.5], [1.5, None, 3.5]))
    (band,) = chart.axes.collections
    assert {tuple(corner) for corner in band.get_paths()[0].vertices} >= {(1, 0.5), (1, 1.5), (3, 2.5), (3, 3.5)}
    assert not any(corner[0] == 2 for corner in band.get_paths()[0].vertices)


def test_svg_says_title_axes_scale_and_n_as_text():
    svg = accuracy_chart().svg()
    xml.etree.ElementTree.fromstring(svg)
    for text in ("Accuracy against batch", "global batch", "smoke, n = 3", "legw (n = 1-3)", "paper 98.8 %", "128"):
        assert text in svg


def test_the_same_chart_is_the_same_file():
    assert accuracy_chart().svg() == accuracy_chart().svg()


def test_save_writes_png_svg_and_csv(tmp_path):
    written = accuracy_chart().save(tmp_path / "deep" / "accuracy")
    assert [path.name for path in written] == ["accuracy.png", "accuracy.svg", "accuracy.csv"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == sorted(path.name for path in written)


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Problem, match="could not be written"):
        accuracy_chart().save(tmp_path / "file" / "accuracy")


def test_series_differ_in_colour_and_marker():
    chart = Chart("t", "x", "y")
    for number in range(len(COLOURS)):
        chart.line(str(number), [1], [number])
    assert len({(line.get_color(), line.get_marker()) for line in chart.axes.lines}) == len(COLOURS)


def test_names_of_markers_side_by_side_do_not_lie_on_each_other():
    chart = Chart("t", "x", "y", log_x=True)
    for x in (16, 64, 66, 83, 1024):
        chart.vertical_line(x, str(x))
    heights = [text.xyann[1] for text in chart.axes.texts]
    assert heights == [-3, -3, -19, -35, -3]  # 5 points for each of two digits, and 6 between names


def test_numbers_on_axes_are_plain():
    assert [format_tick(value) for value in (8192, 16, 0.25)] == ["8,192", "16", "0.25"]


def test_long_lines_have_no_markers():
    chart = Chart("t", "x", "y")
    chart.line("short", range(40), range(40))
    chart.line("long", range(41), range(41))
    assert [line.get_marker() for line in chart.axes.lines] == ["o", ""]


def test_a_second_panel_shares_the_x_axis(tmp_path):
    chart = Chart("run", "epoch", "lr")
    chart.line("learning rate", [0, 1], [0.1, 0.2])
    chart.add_panel("global batch").step([0, 1], [64, 128])
    text = chart.save_image(tmp_path / "plot.svg").read_text()
    assert "global batch" in text
    assert text.count(">epoch<") == 1
    with pytest.raises(Problem, match=r"plot\.txt is not an image file: name a file that ends in \.png"):
        chart.save_image(tmp_path / "plot.txt")


@pytest.mark.parametrize("values", [(0.0012, 0.0019), (3, 30), (2e-4, 900)])
def test_a_logarithmic_axis_is_named_in_plain_numbers(values, tmp_path):
    chart = Chart("t", "x", "y", log_y=True)
    chart.line("a", [1, 2], values)
    chart.save_image(tmp_path / "chart.png")
    low, high = chart.axes.get_ylim()
    inside = zip(chart.axes.get_yticks(), chart.axes.get_yticklabels(), strict=True)
    names = [label.get_text() for tick, label in inside if low <= tick <= high]
    assert 2 <= len(names) <= 8
    assert names == [format_tick(float(name.replace(",", ""))) for name in names]
    assert not any(label.get_text() for label in chart.axes.get_yticklabels(minor=True))


def test_the_names_of_close_vertical_lines_are_below_one_another():
    chart = Chart("t", "x", "y", log_x=True)
    chart.line("a", [1, 1000], [1, 2])
    chart.vertical_line(100, "a name that is long")
    chart.vertical_line(101, "short")
    long, short = chart.axes.texts
    assert short.xyann[1] <= long.xyann[1] - 5 * len("a name that is long")
