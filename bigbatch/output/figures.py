"""One style for every plot: a mean line, its interval as a band, the number of runs, and the scale it was run at.

A `Chart` keeps the numbers that it draws, so that whoever shows it can offer them as CSV. Drawn without pyplot: no
window, no global state. Text in SVG stays text, to be searched and read aloud.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bigbatch.artifacts import atomic
from bigbatch.errors import Problem
from bigbatch.output.formatting import format_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, the dark ones first: told apart by all common kinds of colour vision and, with the line
# styles, in grey print
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C6D31")
LINES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX*"
FADED = "#767676"
_MOST_LABELS_INSIDE = 4  # a longer legend would hide what it explains

_STYLE: dict[str, Any] = {
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
    "svg.hashsalt": "bigbatch",  # the same figure is the same file
    "font.family": "sans-serif",
}


def _matplotlib() -> Any:
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError as error:
        raise Problem("drawing needs matplotlib: pip install 'bigbatch[plot]'") from error
    return matplotlib


@dataclass
class Chart:
    """One plot. `scale` says what was run, like 'laptop, n = 3': it is printed below, so that nobody can mistake it."""

    title: str
    x: str
    y: str
    scale: str = ""
    log_x: bool = False
    log_y: bool = False
    size_inches: tuple[float, float] = (6.4, 3.8)
    # best: where there is room, beside the axes if there are many
    legend_place: Literal["best", "lower left", "beside"] = "best"
    rows: list[dict[str, Any]] = field(default_factory=list)
    figure: Figure = field(init=False)
    axes: Axes = field(init=False)
    _series: int = 0
    _marked: list[float] = field(default_factory=list)  # where verticals are

    def __post_init__(self) -> None:
        matplotlib = _matplotlib()
        with matplotlib.rc_context(_STYLE):
            self.figure = matplotlib.figure.Figure(figsize=self.size_inches, layout="constrained")
            self.axes = self.figure.add_subplot()
            self.axes.set(title=_literal(self.title), xlabel=_literal(self.x), ylabel=_literal(self.y))
            if self.log_x:
                self.axes.set_xscale("log", base=2)
                self.axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: plain(value)))
            if self.log_y:
                self.axes.set_yscale("log")
            if self.scale:
                self.figure.supxlabel(_literal(self.scale), fontsize=7, color=FADED, x=0.99, ha="right")

    def line(
        self,
        label: str,
        x: Iterable[float],
        mean: Iterable[float],
        *,
        low: Iterable[float | None] | None = None,
        high: Iterable[float | None] | None = None,
        n: int | Sequence[int] | None = None,
        markers: bool = True,
        dashed: bool = False,
    ) -> None:
        """A mean line; with `low` and `high`, its interval as a band; with `n`, how many runs are behind it."""
        xs, means = list(x), list(mean)
        lows = list(low) if low is not None else [None] * len(xs)
        highs = list(high) if high is not None else [None] * len(xs)
        counts = list(n) if isinstance(n, Sequence) else [n] * len(xs)
        named = label if n is None else f"{label} (n = {_span(counts)})"
        index = self._series
        self._series += 1
        matplotlib = _matplotlib()
        with matplotlib.rc_context(_STYLE):
            self.axes.plot(
                xs,
                means,
                label=_literal(named),
                color=COLOURS[index % len(COLOURS)],
                linestyle="--" if dashed else LINES[index // len(COLOURS) % len(LINES)],
                marker=MARKERS[index % len(MARKERS)] if markers else "",
            )
            band = [(a, b, c) for a, b, c in zip(xs, lows, highs, strict=True) if _finite(b) and _finite(c)]
            if len(band) == 1:  # a band has no width there
                self.axes.vlines(*np.array(band, dtype=float).T, color=COLOURS[index % len(COLOURS)], linewidth=1)
            elif band:
                self.axes.fill_between(
                    *np.array(band, dtype=float).T,
                    color=COLOURS[index % len(COLOURS)],
                    alpha=0.18,
                    linewidth=0,
                )
        for i in range(len(xs)):
            row = {"series": label, self.x: xs[i], self.y: means[i], "low": lows[i], "high": highs[i], "n": counts[i]}
            self.rows.append(row)

    def points(self, label: str, x: Iterable[float], y: Iterable[float]) -> None:
        """Single values without a line."""
        xs, ys = list(x), list(y)
        index = self._series
        self._series += 1
        with _matplotlib().rc_context(_STYLE):
            self.axes.plot(
                xs,
                ys,
                linestyle="",
                marker=MARKERS[index % len(MARKERS)],
                color=COLOURS[index % len(COLOURS)],
                label=_literal(label),
            )
        self.rows += [{"series": label, self.x: a, self.y: b} for a, b in zip(xs, ys, strict=True)]

    def vertical(self, x: float, label: str) -> None:
        """A marker across the plot, named at its top."""
        below_points = 42 * sum(self._near(x, other) for other in self._marked)  # names that would lie on each other
        self._marked.append(x)
        with _matplotlib().rc_context(_STYLE):
            self.axes.axvline(x, color=FADED, linestyle=":", linewidth=1.2)
            self.axes.annotate(
                _literal(label),
                (x, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -3 - below_points),
                textcoords="offset points",
                va="top",
                rotation=90,
                fontsize=7.5,
                color="#444444",
            )
        self.rows.append({"series": label, self.x: x})

    def _near(self, x: float, other: float) -> bool:
        if self.log_x:
            return abs(math.log2(x / other)) < 0.5
        return abs(x - other) < 0.05 * max(abs(x), abs(other))

    def horizontal(self, y: float, label: str) -> None:
        """A level, like the number of a paper, named at its right end."""
        with _matplotlib().rc_context(_STYLE):
            self.axes.axhline(y, color=FADED, linestyle=":", linewidth=1.2)
            self.axes.annotate(
                _literal(label),
                (1, y),
                xycoords=("axes fraction", "data"),
                xytext=(-3, 3),
                textcoords="offset points",
                ha="right",
                fontsize=7.5,
                color="#444444",
            )
        self.rows.append({"series": label, self.y: y})

    def svg(self) -> str:
        """For a page: the <svg> element alone."""
        buffer = io.StringIO()
        self._write(buffer, "svg")
        text = buffer.getvalue()
        return text[text.index("<svg") :]

    def save(self, path: Path | str) -> list[Path]:
        """PNG for eyes, SVG for print, CSV for whoever checks: `path` with each of the three endings."""
        stem = Path(path)
        targets = [stem.with_name(stem.name + ending) for ending in (".png", ".svg", ".csv")]
        for target in targets[:2]:
            with atomic.replace_file(target) as temporary:
                self._write(temporary, target.suffix[1:])
        atomic.write_text(targets[2], self.csv())
        return targets

    def csv(self) -> str:
        """The numbers that were drawn."""
        return format_csv(self.rows)

    def _write(self, target: Any, kind: str) -> None:
        with _matplotlib().rc_context(_STYLE):
            lines, labels = self.axes.get_legend_handles_labels()
            for earlier in list(self.figure.legends):
                earlier.remove()
            many = len(lines) > _MOST_LABELS_INSIDE and self.legend_place == "best"
            if many or self.legend_place == "beside":
                self.figure.legend(lines, labels, loc="outside right upper")
            elif lines:
                self.axes.legend(loc=self.legend_place)
            self.figure.savefig(target, format=kind, metadata={"Date": None} if kind == "svg" else None)


def plain(value: float) -> str:
    """1,024 rather than 2¹⁰."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _literal(text: str) -> str:
    """A dollar is a dollar: matplotlib would take what is between two of them for mathematics."""
    return text.replace("$", r"\$")


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _span(counts: Sequence[int | None]) -> str:
    known = [count for count in counts if count is not None]
    if not known:
        return "?"
    return str(known[0]) if min(known) == max(known) else f"{min(known)}-{max(known)}"
