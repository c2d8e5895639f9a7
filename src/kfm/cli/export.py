"""`kfm export RUN`: what is on record of a run, as one bundle that a stranger can check."""

from __future__ import annotations

import os
from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import one_line
from kfm.cli.session import CommandSession
from kfm.model.errors import BackendUnavailable, UsageError
from kfm.model.quantities import counted, readable_size
from kfm.reports.lookup import find_run_or_call


@click.command()
@click.argument("run", required=False)
@click.option(
    "--to", metavar="PATH", help="A folder, or a file that ends in .zip (default: evidence-RUN.zip here)."
)
@click.option(
    "--internal", is_flag=True, help="Do not mask the names of a masked dataset. Not for passing on."
)
@click.option("--verify", metavar="PATH", help="Check a bundle instead of making one.")
@click.option("--expect", metavar="DIGEST", help="With --verify: the digest that the bundle must have.")
@click.option(
    "--anchors", metavar="FILE", help="With --verify: anchors of the chain that were kept elsewhere."
)
@session_options
def command(
    session: CommandSession,
    run: str | None,
    to: str | None,
    internal: bool,
    verify: str | None,
    expect: str | None,
    anchors: str | None,
) -> int:
    """Bundle everything that is on record of a run, or check such a bundle.

    RUN is a run's id, or the beginning of one. The bundle is an RO-Crate: ledger rows, attempts, lineage,
    provenance, governance entries, policies, catalogue records and the files that the run left, with their
    checksums and a verify.py that needs nothing but Python. It lists what is missing. The data itself
    is not part of it.

    RUN may also be an invocation, or the beginning of its id: `kfm run --json` and `kfm explain DATASET` show
    it. Of one that was refused and became no run there is a single document: its provenance.

    --verify runs nothing that is in the bundle. It says how much is proven: everything by the digest that
    you got by another way (--expect); by anchors (--anchors) the governance entries up to them, the events
    that these seal and the manifest that they name; the rest is listed as unproven.

    Exit code of --verify: 0 if everything agrees, 1 if something does not, 2 if there is no bundle.
    """
    if verify is not None:
        if run is not None or to is not None or internal:
            raise UsageError(
                "--verify takes a bundle and nothing else.", remedy="`kfm export --verify BUNDLE`"
            )
        return _check(session, verify, expect, anchors)
    for option, value in (("--expect", expect), ("--anchors", anchors)):
        if value is not None:
            raise UsageError(
                f"{option} goes with --verify.", remedy=f"`kfm export --verify BUNDLE {option} …`"
            )
    if run is None:
        raise UsageError("Name the run: kfm export RUN.", remedy="`kfm runs` lists them.")
    with session.app(read_only=True) as app:
        document = _write(app, run, to, internal)
    written = f"{counted(document['files'], 'file')}, {readable_size(document['size'])}"
    place = os.path.relpath(document["path"])
    shown = document["path"] if place.startswith("..") else place
    session.emit(document, [f"{one_line(shown)}: {written}", f"digest {document['digest']}"])
    for sentence in document["missing"]:
        session.note(f"not in it: {one_line(sentence)}")
    if internal:
        session.note("for internal use: names are not masked")
    return 0


def _write(app: Any, wanted: str, to: str | None, internal: bool) -> dict[str, Any]:
    from kfm.evidence_bundle.bundle import export_call, export_run

    about = find_run_or_call(app.ledger, wanted)
    refused = about.run_id is None  # of an invocation that became a run, the run is meant
    name = about.invocation_id if refused else about.run_id
    path = os.path.abspath(to or f"evidence-{name}.{'jsonld' if refused else 'zip'}")
    to_write = (app.ledger, app.files, app.settings, name, path)
    try:
        if refused:
            bundle = export_call(*to_write, internal=internal)
        else:
            bundle = export_run(
                *to_write,
                runs_folder=f"{app.state}/runs",
                internal=internal,
                hide=app.loaded.discretion.hide,
            )
    except OSError as error:
        raise BackendUnavailable(
            f"{to or path} can't be written: {(error.strerror or str(error)).lower()}.",
            remedy="Name a place that can be written with --to.",
        ) from None
    return {
        "run_id": None if refused else name,
        "invocation_id": name if refused else None,
        "internal": internal,
        **bundle._asdict(),
        "missing": list(bundle.missing),
    }


def _check(session: CommandSession, path: str, expect: str | None, anchors: str | None) -> int:
    from kfm.evidence_bundle.verify_bundle import NoBundle, read_anchors, verify

    if not os.path.lexists(path):
        raise UsageError(f"There is no bundle {path}.", remedy="Name a folder or an archive of `kfm export`.")
    try:
        kept = read_anchors(anchors) if anchors is not None else ()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{anchors} can't be read: {error}.", remedy="Name a file that `kfm audit anchor` wrote."
        ) from None
    try:
        digest, files, findings, notes = verify(path, expect or "", kept)
    except NoBundle as error:
        raise UsageError(
            f"{path} is no bundle of evidence: {error}.",
            remedy="Name a folder or an archive of `kfm export`.",
        ) from None
    code = 1 if findings else 0
    document = {
        "path": os.path.abspath(path),
        "digest": digest,
        "files": files,
        "sound": not findings,
        "findings": findings,
        "notes": notes,
        "exit_code": code,
    }
    lines = [f"wrong: {one_line(finding)}" for finding in findings] or [one_line(note) for note in notes]
    lines.append(f"{'not sound' if findings else 'sound'}: {counted(files, 'file')}, {digest}")
    session.emit(document, lines)
    return code
