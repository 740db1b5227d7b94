"""One self-contained HTML page: headings, text, tables and charts, with every chart's numbers to download.

Nothing is fetched from anywhere: styles are inside, charts are inline SVG, CSV files are data: addresses. Whatever
comes from a run is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bigbatch import __version__
from bigbatch.artifacts import atomic
from bigbatch.output.figures import Chart

_CSS = """
:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #5c5c5c; --paper: #fff; --card: #f6f7f9; --rule: #d9dce1;
  --accent: #0072b2; --good: #00765a; --bad: #b34700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --soft: #a5abb3; --paper: #14171b; --card: #1d2127;
  --rule: #363c45; --accent: #6cb8e8; --good: #4cc9a4; --bad: #f09a5a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 24px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 18px; margin: 32px 0 8px; } p { margin: 6px 0; max-width: 75ch; }
.under { color: var(--soft); margin: 2px 0 18px; }
a { color: var(--accent); } code, pre { font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; }
pre { background: var(--card); padding: 10px 12px; overflow-x: auto; border-radius: 6px; }
.strip { display: flex; flex-wrap: wrap; gap: 10px; margin: 14px 0; }
.strip div { flex: 1 1 150px; background: var(--card); border-radius: 8px; padding: 10px 14px; }
.strip b { display: block; font-size: 21px; line-height: 1.25; } .strip span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 14px; margin: 6px 0; }
th, td { padding: 4px 12px 4px 0; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 460px), 1fr)); gap: 16px; }
.charts.wide { grid-template-columns: 1fr; margin: 16px 0; }
figure { margin: 0; background: #fff; color: #1b1b1b; border: 1px solid var(--rule); border-radius: 8px;
  padding: 10px; }
figure svg { width: 100%; height: auto; display: block; } figcaption { font-size: 13px; color: #5c5c5c; }
figcaption a { color: #0072b2; white-space: nowrap; } .warning { color: var(--bad); } .good { color: var(--good); }
footer { margin-top: 36px; padding-top: 10px; border-top: 1px solid var(--rule); color: var(--soft); font-size: 13px; }
@media print { body { max-width: none; padding: 0; } figure { break-inside: avoid; } }
"""


class Page:
    """Built from top to bottom; `write` puts it on disk at once or not at all."""

    def __init__(self, title: str, under: str = "") -> None:
        self.title = title
        self._parts = [f"<h1>{escape(title)}</h1>", f'<p class="under">{escape(under)}</p>' if under else ""]

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str, kind: str = "") -> None:
        """A paragraph; `kind` is '', 'warning' or 'good'."""
        self._parts.append(f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def strip(self, facts: Iterable[tuple[str, str]]) -> None:
        """The few numbers that a reader came for: (what it is, its value)."""
        boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts)
        self._parts.append(f'<div class="strip">{boxes}</div>')

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, heat: str = "") -> None:
        """Numbers are set to the right. `heat` names a column whose cells are shaded by their value."""
        body = [list(row) for row in rows]
        shade = _shades([row[columns.index(heat)] for row in body]) if heat else []
        lines = []
        for index, row in enumerate(body):
            cells = [
                _cell(value, shade[index] if heat and columns[position] == heat else None)
                for position, value in enumerate(row)
            ]
            lines.append(f"<tr>{''.join(cells)}</tr>")
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        self._parts.append(f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>')

    def charts(self, charts: Iterable[tuple[Chart, str]], *, wide: bool = False) -> None:
        """Charts side by side where there is room, or over the whole width, each with a caption and its CSV."""
        figures = "".join(_figure(chart, caption) for chart, caption in charts)
        if figures:
            self._parts.append(f'<div class="charts{" wide" if wide else ""}">{figures}</div>')

    def pictures(self, pictures: Iterable[tuple[str, str]]) -> None:
        """SVG files of our own, each below the other with a caption."""
        for text, caption in pictures:
            drawing = text[text.index("<svg") :]
            self._parts.append(f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>")

    def images(self, images: Iterable[tuple[bytes, str]], width_pixels: int = 64) -> None:
        """Small PNG pictures in a row, each with a caption."""
        shown = "".join(
            f'<figure style="display:inline-block;margin:4px"><img alt="{escape(caption)}" width="{width_pixels}" '
            f'style="image-rendering:pixelated" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
            for png, caption in images
        )
        self._parts.append(f"<div>{shown}</div>")

    def download(self, name: str, content: str, kind: str = "text/csv") -> None:
        self._parts.append(f"<p>{_link(name, content, kind)}</p>")

    def link(self, name: str, beside: str) -> None:
        """A link to a file beside the page."""
        self._parts.append(f'<p><a href="{escape(quote(beside))}">{escape(name)}</a></p>')

    def footer(self, lines: Iterable[str]) -> None:
        self._parts.append("<footer>" + "".join(f"<div>{escape(line)}</div>" for line in lines) + "</footer>")

    def html(self) -> str:
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(self.title)}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta name="generator" content="bigbatch {__version__}"><link rel="icon" href="data:,">'
            f"<style>{_CSS}</style></head>\n<body>\n" + "\n".join(filter(None, self._parts)) + "\n</body></html>\n"
        )

    def write(self, path: Path | str) -> Path:
        return atomic.write_text(path, self.html())


def _figure(chart: Chart, caption: str) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in chart.title.lower()).strip("-")
    link = _link(f"{name}.csv", chart.csv(), "text/csv")
    under = f"<figcaption>{escape(caption)} {link}</figcaption>"
    return f'<figure aria-label="{escape(chart.title)}">{chart.svg()}{under}</figure>'


def _link(name: str, content: str, kind: str) -> str:
    encoded = base64.b64encode(content.encode()).decode()
    return f'<a download="{escape(name)}" href="data:{kind};base64,{encoded}">{escape(name)}</a>'


def _cell(value: Any, shade: str | None = None) -> str:
    style = f' style="background:{shade}"' if shade else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"<td{style}>{escape('' if value is None else str(value))}</td>"
    return f'<td class="number"{style}>{f"{value:,}" if isinstance(value, int) else f"{value:.4g}"}</td>'


def _shades(values: Sequence[Any]) -> list[str | None]:
    """Stronger for larger, by rank: one outlier does not bleach the rest."""
    known = sorted({value for value in values if isinstance(value, int | float)})
    strength = {value: (index + 1) / len(known) for index, value in enumerate(known)}
    return [f"rgba(213, 94, 0, {0.5 * strength[value]:.2f})" if value in strength else None for value in values]
