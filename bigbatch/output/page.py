"""One self-contained HTML page: headings, text, tables and charts, with the numbers of every chart as CSV.

The page loads nothing: styles are inside, charts are inline SVG, CSV files are data: URLs. All text is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
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
    """An HTML page that is built from top to bottom and written atomically."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self._parts = [f"<h1>{escape(title)}</h1>", f'<p class="under">{escape(subtitle)}</p>' if subtitle else ""]

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str, kind: str = "") -> None:
        """Add a paragraph; `kind` is '', 'warning' or 'good'."""
        self._parts.append(f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def key_numbers(self, facts: Iterable[tuple[str, str]]) -> None:
        """Add the most important (name, value) pairs as large boxes."""
        boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts)
        self._parts.append(f'<div class="strip">{boxes}</div>')

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, heat: str = "") -> None:
        """Add a table. Numbers are aligned to the right; the cells of the column `heat` are shaded by their value."""
        body = [list(row) for row in rows]
        heat_column = columns.index(heat) if heat else None
        shades = _shade_by_rank([row[heat_column] for row in body]) if heat_column is not None else [None] * len(body)
        lines = (
            "".join(_cell(value, shade if column == heat_column else None) for column, value in enumerate(row))
            for row, shade in zip(body, shades, strict=True)
        )
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        content = "".join(f"<tr>{line}</tr>" for line in (head, *lines))
        self._parts.append(f'<div class="scroll"><table>{content}</table></div>')

    def charts(self, charts: Iterable[tuple[Chart, str]], *, wide: bool = False) -> None:
        """Add charts in a grid, or each over the full width, with captions and CSV."""
        figures = "".join(_figure(chart, caption) for chart, caption in charts)
        if figures:
            self._parts.append(f'<div class="charts{" wide" if wide else ""}">{figures}</div>')

    def svg_images(self, images: Iterable[tuple[str, str]]) -> None:
        """Add the content of SVG files that we wrote, one below the other, with captions."""
        for text, caption in images:
            svg = text[text.index("<svg") :]
            self._parts.append(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>")

    def png_images(self, images: Iterable[tuple[bytes, str]], width_pixels: int = 64) -> None:
        """Add small PNG images in a row, with captions."""
        figures = "".join(
            f'<figure style="display:inline-block;margin:4px"><img alt="{escape(caption)}" width="{width_pixels}" '
            f'style="image-rendering:pixelated" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
            for png, caption in images
        )
        self._parts.append(f"<div>{figures}</div>")

    def csv_download(self, name: str, content: str) -> None:
        """Add a link that saves the content as a CSV file."""
        self._parts.append(f"<p>{_csv_link(name, content)}</p>")

    def link(self, name: str, path: str) -> None:
        """Add a link to a file next to the page."""
        self._parts.append(f'<p><a href="{escape(quote(path))}">{escape(name)}</a></p>')

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
    under = f"<figcaption>{escape(caption)} {_csv_link(f'{name}.csv', chart.csv())}</figcaption>"
    return f'<figure aria-label="{escape(chart.title)}">{chart.svg()}{under}</figure>'


def _csv_link(name: str, content: str) -> str:
    encoded = base64.b64encode(content.encode()).decode()
    return f'<a download="{escape(name)}" href="data:text/csv;base64,{encoded}">{escape(name)}</a>'


def _cell(value: object, shade: str | None) -> str:
    style = f' style="background:{shade}"' if shade else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"<td{style}>{escape('' if value is None else str(value))}</td>"
    return f'<td class="number"{style}>{f"{value:,}" if isinstance(value, int) else f"{value:.4g}"}</td>'


def _shade_by_rank(values: Sequence[object]) -> list[str | None]:
    """Return a colour per number, stronger for larger ones. Ranks are used because of outliers."""
    known = sorted({value for value in values if isinstance(value, int | float)})
    strength = {value: (index + 1) / len(known) for index, value in enumerate(known)}
    return [
        f"rgba(213, 94, 0, {0.5 * strength[value]:.2f})" if isinstance(value, int | float) else None for value in values
    ]
