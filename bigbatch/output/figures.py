"""One style for every plot: a mean line, its interval as a band, the number of runs, and the scale of the experiment.

A `Chart` keeps the numbers that it draws, so that pages can offer them as CSV. It does not use pyplot: no window, no
global state. Text in SVG stays text, which can be searched and read aloud.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from bigbatch.artifacts import atomic
from bigbatch.errors import Problem
from bigbatch.output.formatting import format_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, the dark ones first: distinct for all common kinds of colour vision and, with the line
# styles, in grey print
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C6D31")
LINE_STYLES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX*"
FADED = "#767676"
_MAX_LABELS_INSIDE = 4  # a longer legend would hide the data
_MAX_MARKERS = 40  # of one line; more would hide it
_FILE_TYPES = (".png", ".svg", ".pdf")

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": "white",
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "bigbatch",  # equal figures are equal files
    "font.family": "sans-serif",
}


def _apply_style() -> AbstractContextManager[None]:
    """Return a context in which matplotlib draws in our style."""
    try:
        import matplotlib
    except ImportError as error:
        raise Problem("drawing needs matplotlib: pip install 'bigbatch[plot]'") from error
    return matplotlib.rc_context(_STYLE)


@dataclass(frozen=True)
class Band:
    """The interval around a line, point by point, and the number of runs behind it."""

    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    n: int | Sequence[int] | None = None


@dataclass
class Chart:
    """One plot. `scale` says what was run, like 'laptop, n = 3', and is printed below it."""

    title: str
    x: str
    y: str
    scale: str = ""
    log_x: bool = False
    log_y: bool = False
    size_inches: tuple[float, float] = (6.4, 3.8)
    legend_place: Literal["best", "lower left", "beside"] = "best"  # a long legend is beside the axes in any case
    rows: list[dict[str, object]] = field(default_factory=list)
    figure: Figure = field(init=False)
    axes: Axes = field(init=False)
    _series_count: int = 0
    _vertical_lines: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        with _apply_style():
            from matplotlib.figure import Figure

            self.figure = Figure(figsize=self.size_inches, layout="constrained")
            self.axes = self.figure.add_subplot()
            self.axes.set(title=_escape_dollars(self.title), xlabel=_escape_dollars(self.x))
            self.axes.set_ylabel(_escape_dollars(self.y))
            if self.log_x:
                self.axes.set_xscale("log", base=2)
                self.axes.xaxis.set_major_formatter(lambda value, _: format_tick(value))
            if self.log_y:
                self.axes.set_yscale("log")
            if self.scale:
                self.figure.supxlabel(_escape_dollars(self.scale), fontsize=7, color=FADED, x=0.99, ha="right")

    def line(
        self,
        label: str,
        x: Iterable[float],
        mean: Iterable[float],
        *,
        band: Band | None = None,
        markers: bool = True,
        dashed: bool = False,
    ) -> None:
        """Draw a mean line with its interval as a band. Lines of many points have no markers."""
        xs, means = list(x), list(mean)
        band = band or Band()
        lows, highs = (list(values) if values is not None else [None] * len(xs) for values in (band.low, band.high))
        counts = list(band.n) if isinstance(band.n, Sequence) else [band.n] * len(xs)
        colour, marker, style = self._next_series_style()
        with _apply_style():
            self.axes.plot(
                xs,
                means,
                label=_escape_dollars(label if band.n is None else f"{label} (n = {_format_counts(counts)})"),
                color=colour,
                linestyle="--" if dashed else style,
                marker=marker if markers and len(xs) <= _MAX_MARKERS else "",
            )
            known = [(a, b, c) for a, b, c in zip(xs, lows, highs, strict=True) if _is_finite(b) and _is_finite(c)]
            if len(known) == 1:  # a band would have no width
                self.axes.vlines(*np.array(known, dtype=float).T, color=colour, linewidth=1)
            elif known:
                self.axes.fill_between(*np.array(known, dtype=float).T, color=colour, alpha=0.18, linewidth=0)
        for i in range(len(xs)):
            row = {"series": label, self.x: xs[i], self.y: means[i], "low": lows[i], "high": highs[i], "n": counts[i]}
            self.rows.append(row)

    def points(self, label: str, x: Iterable[float], y: Iterable[float]) -> None:
        """Draw single values without a line."""
        xs, ys = list(x), list(y)
        colour, marker, _ = self._next_series_style()
        with _apply_style():
            self.axes.plot(xs, ys, linestyle="", marker=marker, color=colour, label=_escape_dollars(label))
        self.rows += [{"series": label, self.x: a, self.y: b} for a, b in zip(xs, ys, strict=True)]

    def _next_series_style(self) -> tuple[str, str, str]:
        """Return colour, marker and line style of the next series."""
        index = self._series_count
        self._series_count += 1
        return (
            COLOURS[index % len(COLOURS)],
            MARKERS[index % len(MARKERS)],
            LINE_STYLES[index // len(COLOURS) % len(LINE_STYLES)],
        )

    def vertical_line(self, x: float, label: str) -> None:
        """Mark a value of x, named at the top of the line."""
        # below the names of its neighbours
        offset_points = sum(5 * len(name) + 6 for other, name in self._vertical_lines if self._overlap(x, other))
        self._vertical_lines.append((x, label))
        with _apply_style():
            self.axes.axvline(x, color=FADED, linestyle=":", linewidth=1.2)
            self.axes.annotate(
                _escape_dollars(label),
                (x, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -3 - offset_points),
                textcoords="offset points",
                va="top",
                rotation=90,
                fontsize=7.5,
                color="#444444",
            )
        self.rows.append({"series": label, self.x: x})

    def _overlap(self, x: float, other: float) -> bool:
        """Whether the names of two vertical lines would overlap."""
        if self.log_x:
            return abs(math.log2(x / other)) < 0.5
        return abs(x - other) < 0.05 * max(abs(x), abs(other))

    def horizontal_line(self, y: float, label: str) -> None:
        """Mark a value of y, such as the number of a paper, named at the right end of the line."""
        with _apply_style():
            self.axes.axhline(y, color=FADED, linestyle=":", linewidth=1.2)
            self.axes.annotate(
                _escape_dollars(label),
                (1, y),
                xycoords=("axes fraction", "data"),
                xytext=(-3, 3),
                textcoords="offset points",
                ha="right",
                fontsize=7.5,
                color="#444444",
            )
        self.rows.append({"series": label, self.y: y})

    def add_panel(self, y: str) -> Axes:
        """Add axes below the others that share their x axis."""
        with _apply_style():
            grid = self.figure.add_gridspec(2)
            self.axes.set_subplotspec(grid[0])
            self.axes.set_xlabel("")
            panel = self.figure.add_subplot(grid[1], sharex=self.axes)
            panel.set(xlabel=_escape_dollars(self.x), ylabel=_escape_dollars(y))
        return panel

    @contextmanager
    def drawing_on(self, panel: Axes, y: str) -> Iterator[None]:
        """Draw on a panel, in the styles of the first axes from the first on."""
        before = self.axes, self.y, self._series_count
        self.axes, self.y, self._series_count = panel, y, 0
        yield
        self.axes, self.y, self._series_count = before

    def mark_missing(self, label: str, x: Iterable[float]) -> None:
        """Mark values of x where the series drawn last has no point, by crosses at the top."""
        xs = list(x)
        colour, at_top = COLOURS[(self._series_count - 1) % len(COLOURS)], self.axes.get_xaxis_transform()
        with _apply_style():
            self.axes.plot(xs, [0.97] * len(xs), linestyle="", marker="x", color=colour, transform=at_top)
        self.rows += [{"series": label, self.x: value} for value in xs]

    def svg(self) -> str:
        """Return the <svg> element for a page."""
        buffer = io.StringIO()
        self._render(buffer, "svg")
        text = buffer.getvalue()
        return text[text.index("<svg") :]

    def save(self, path: Path | str) -> list[Path]:
        """Write PNG, SVG and CSV: `path` with each of the three endings."""
        stem = Path(path)
        images = [self.save_image(stem.with_name(stem.name + ending)) for ending in (".png", ".svg")]
        return [*images, atomic.write_text(stem.with_name(stem.name + ".csv"), self.csv())]

    def save_image(self, path: Path) -> Path:
        """Write one PNG, SVG or PDF file, by the ending of its name."""
        if path.suffix not in _FILE_TYPES:
            raise Problem(f"{path} is not an image file: name a file that ends in .png, .svg or .pdf")
        with atomic.replace_file(path) as temporary:
            self._render(temporary, path.suffix[1:])
        return path

    def csv(self) -> str:
        """Return the numbers that the chart shows."""
        return format_csv(self.rows)

    def _render(self, target: IO[str] | Path, file_type: str) -> None:
        with _apply_style():
            for axes in self.figure.axes:
                _name_ticks(axes)
            lines, labels = self.axes.get_legend_handles_labels()
            for earlier in list(self.figure.legends):
                earlier.remove()
            many = len(lines) > _MAX_LABELS_INSIDE and self.legend_place == "best"
            if many or self.legend_place == "beside":
                self.figure.legend(lines, labels, loc="outside right upper")
            elif lines:
                self.axes.legend(loc=self.legend_place)
            self.figure.savefig(target, format=file_type, metadata={"Date": None} if file_type == "svg" else None)


def format_tick(value: float) -> str:
    """Format a number on an axis: 1,024 rather than 2¹⁰, 0.0003 rather than 3 · 10⁻⁴."""
    return f"{value:,.10f}".rstrip("0").rstrip(".") if value else "0"


def _name_ticks(axes: Axes) -> None:
    """Plain numbers on a logarithmic y axis, as many as there is room for."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if axes.get_yscale() not in ("log", "symlog"):
        return
    axes.yaxis.set_major_formatter(lambda value, _: format_tick(value))
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log" and 0 < low < high:
        decades = math.log10(high / low)
        between = (
            (1.0,) if decades > 3.5 else (1.0, 2.0, 5.0) if decades > 0.8 else (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
        )
        axes.yaxis.set_major_locator(LogLocator(subs=between))


def _escape_dollars(text: str) -> str:
    """Return text that matplotlib does not read as mathematics between two dollars."""
    return text.replace("$", r"\$")


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _format_counts(counts: Sequence[int | None]) -> str:
    known = [count for count in counts if count is not None]
    if not known:
        return "?"
    return str(known[0]) if min(known) == max(known) else f"{min(known)}-{max(known)}"
