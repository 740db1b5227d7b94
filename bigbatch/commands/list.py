"""`bigbatch list`."""

from __future__ import annotations

from bigbatch import parts
from bigbatch.errors import DONE, Problem


def command(kind: str | None = None) -> int:
    """Show all parts of a kind (optim, models, recipes ...) with one line each; without a kind, the kinds."""
    from rich.console import Console
    from rich.table import Table

    from bigbatch.errors import did_you_mean

    if kind is not None and kind not in parts.KINDS:
        raise Problem(
            f"no kind of part called '{kind}'{did_you_mean(kind, parts.KINDS)} Kinds: {', '.join(parts.KINDS)}"
        )
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name in parts.names(kind) if kind else parts.KINDS:
        table.add_row(name, parts.summary(kind, name) if kind else ", ".join(parts.names(name)))
    Console().print(table)
    return DONE
