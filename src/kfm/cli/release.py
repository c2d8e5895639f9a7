"""`kfm release`: what was done, for people who were not there."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import one_line
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.quantities import counted
from kfm.model.times import parse_rfc3339


@click.command()
@click.argument("version", required=False)
@click.option("--to", metavar="DIR", help="The folder that holds releases (default: releases/).")
@click.option("--since", metavar="TIME", help="Only what began at or after this date or RFC 3339 time (UTC).")
@click.option("--until", metavar="TIME", help="Only what began before this date or RFC 3339 time (UTC).")
@click.option(
    "--sign",
    metavar="COMMAND",
    help="Sign the attestation: COMMAND reads it and prints a signature. No shell is used.",
)
@click.option("--replace", is_flag=True, help="Put it in the place of one with other content.")
@click.option("--rationale", metavar="TEXT", help="Why; kept in the audit log. Required to replace.")
@click.option("--verify", metavar="DIR", help="Check a release instead: checksums, attestation, schemas.")
@session_options
def command(session: CommandSession, version: str | None, verify: str | None, **options: Any) -> int:
    """Make releases/VERSION/ from the ledger, or verify one.

    It holds the telemetry documents, an SBOM (SPDX 2.3), a manifest with checksums and an attestation
    (in-toto, SLSA provenance). The same ledger and the same installation make the same bytes. Datasets
    that may not be named go by their masks.

    \b
      kfm release v1.2.0 --since 2026-01-01 --until 2026-04-01
      kfm release v1.2.0 --sign "openssl dgst -sha256 -sign key.pem"
      kfm release --verify releases/v1.2.0
    """
    if (version is None) == (verify is None):
        raise UsageError("Give a VERSION to make, or --verify DIR to check.")
    if verify is not None:
        if any(options.values()):
            raise UsageError("--verify only reads: it takes no other option.")
        return _verify(session, verify)
    since, until = options.pop("since"), options.pop("until")
    with session.app() as app:
        from kfm.release.builder import make_release
        from kfm.telemetry.aggregates import TimeBounds

        bounds = TimeBounds(since_ms=_moment(since, "--since"), until_ms=_moment(until, "--until"))
        if None not in (bounds.since_ms, bounds.until_ms) and bounds.since_ms >= bounds.until_ms:  # type: ignore[operator]
            raise UsageError("--since must be before --until.")
        made = make_release(app, version or "", bounds=bounds, **options)
    session.emit(made, [click.style(f"{made.state:9}  {made.version}  {made.path}", fg="green")])
    session.note(
        f"  {counted(len(made.files), 'file')}, {made.digest}, {'signed' if made.signed else 'unsigned'}"
    )
    return 0


def _verify(session: CommandSession, folder: str) -> int:
    from kfm.release.builder import verify_release

    found = verify_release(folder)
    good = not found.findings
    word = click.style("sound" if good else "not sound", fg="green" if good else "red")
    lines = [one_line(f"wrong: {one.file}: {one.problem}") for one in found.findings]
    whole = f"{one_line(found.path)}, {counted(found.files, 'file')}, {found.digest or 'no attestation'}"
    session.emit(found, [*lines, f"{word}: {whole}"])
    if good:
        tail = "the signature is for its maker's tool to check" if found.signed else "it is not signed"
        session.note(f"  checksums, attestation and schemas agree; {tail}")
    return 0 if good else 1


def _moment(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_rfc3339(f"{text}T00:00:00Z" if len(text) == 10 else text)
    except UsageError as error:
        raise UsageError(
            f"{option}: {error.detail}", remedy="Write 2026-01-01 or 2026-01-01T06:00:00Z."
        ) from None
