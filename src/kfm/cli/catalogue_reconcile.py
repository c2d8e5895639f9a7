"""`kfm catalogue reconcile`: external catalogues against ours."""

from __future__ import annotations

import click
import msgspec

from kfm.cli.options import session_options
from kfm.cli.output import table
from kfm.cli.progress import watched
from kfm.cli.session import Session


@click.command(name="reconcile")
@click.argument("replicas", nargs=-1, metavar="[REPLICA]...")
@click.option("--repair", is_flag=True, help="Deliver again what differs, and remove what we no longer have.")
@session_options
def reconcile(session: Session, replicas: tuple[str, ...], repair: bool) -> int:
    """Compare external STAC APIs with our catalogue, item by item.

    Deliveries keep them equal; this finds what somebody else changed there, and what a late answer left
    behind. Items that others put into the same collections are left alone.

    Exit codes: 0 equal, or repaired · 1 something differs · 4 a replica is unavailable.
    """
    from kfm.wiring.replicas import compare_all

    progress = watched(session)
    with session.app(role=None if repair else "read") as app:
        app.announce = session.note
        progress.phase("comparing")
        results = compare_all(app, replicas, repair=repair, progress=progress.advance)
        progress.done()
    rows = [
        {
            **msgspec.to_builtins(compared),
            "delivered": delivered.sent if delivered else 0,
            "refused": delivered.refused if delivered else 0,
            "waiting": delivered.waiting if delivered else 0,
        }
        for compared, delivered in results
    ]
    differs = sum(compared.differs for compared, _ in results)
    left = sum(row["refused"] + row["waiting"] for row in rows)
    code = int(bool(left if repair else differs))
    names = ("replica", "items", "equal", "missing", "stale", "extra", "delivered", "refused")
    lines = table([name.upper() for name in names], [tuple(str(row[name]) for name in names) for row in rows])
    session.emit({"replicas": rows, "exit_code": code}, lines, rows=rows)
    if differs and not repair:
        session.note("`kfm catalogue reconcile --repair` delivers again what differs")
    return code
