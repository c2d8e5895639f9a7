"""`kfm du`: where the bytes are, and what `kfm gc` would free."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.session import CommandSession
from kfm.model.quantities import readable_size

SHOWN_MAX = 12


@click.command()
@session_options
def command(session: CommandSession) -> None:
    """Show where the bytes are, and what `kfm gc` would free.

    The ledger by table, with indexes; stored objects; published trees; the lineage files; what runs left in
    the state folder. A file that several names lead to counts once in its place. Objects in a bucket are
    counted by listing it; what is published in one is shown without a size: its own tools know it. What gc
    would free of the ledger is what old rows hold; with `retention.enabled` unset they stay.
    """
    from kfm.storage.usage import usage

    with session.app(read_only=True, bare=True) as app:
        found = usage(app)
    document = {
        "bytes": found.size,
        "ledger": {
            "bytes": found.ledger_bytes,
            "free_bytes": found.free_bytes,
            "tables": found.tables,
        },
        "places": found.places,
        "collectable": {**found.collectable, "retention_enabled": found.retention_enabled},
    }
    session.emit(document, _lines(found))
    if any(found.collectable.values()):
        session.note("what would go, one by one: kfm gc --dry-run")


def _lines(found: Any) -> list[str]:
    lines = [f"{readable_size(found.size)} in all", f"{readable_size(found.ledger_bytes)}  ledger"]
    shown = [one for one in found.tables if one.bytes][:SHOWN_MAX]
    lines += [f"  {readable_size(one.bytes)}  {one.table}" for one in shown]
    rest = sum(one.bytes for one in found.tables) - sum(one.bytes for one in shown)
    if rest:
        lines.append(f"  {readable_size(rest)}  other tables")
    if found.free_bytes:
        lines.append(f"  {readable_size(found.free_bytes)}  free, for the next rows")
    for one in found.places:
        size = "not measured" if one.bytes is None else readable_size(one.bytes)
        lines.append(f"{size}  {one.what}: {one.where}")
    freed = found.collectable
    unset = "" if found.retention_enabled else " (old rows stay: `retention.enabled` is not set)"
    parts = [f"{readable_size(size)} of {what}" for what, size in freed.items() if size]
    lines.append(f"gc would free {', '.join(parts)}{unset}" if parts else "gc would free nothing")
    return lines
