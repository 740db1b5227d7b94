"""`bigbatch trust`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bigbatch.errors import DONE


def command(
    modules: Annotated[
        list[str] | None, Parameter(help="like mypkg.mod; without any, show those that are trusted")
    ] = None,
    /,
    *,
    forget: Annotated[bool, Parameter(negative="", help="trust them no longer")] = False,
) -> int:
    """Remember modules whose code files may name: what --trust does for one command, for all of yours."""
    from bigbatch import trust
    from bigbatch.artifacts import atomic

    known = trust.remembered_modules()
    if modules:
        trust.trust_modules(modules)  # refuses what is not a module
        known = [name for name in dict.fromkeys([*known, *modules]) if not (forget and name in modules)]
        atomic.write_text(trust.remembered_file(), "".join(f"{name}\n" for name in known))
    print("\n".join(known) or "no modules are trusted")
    return DONE
