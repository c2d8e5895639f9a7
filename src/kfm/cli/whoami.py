"""`kfm whoami`: the identity of the caller, its origin, and its roles."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.session import CommandSession

MAY = {
    "read": "read what the ledger says",
    "operate": "run, retry, stop, ask for approvals and whatever else changes something",
    "approve": "approve what another person has requested",
}


@click.command()
@session_options
def command(session: CommandSession) -> None:
    """Show who you are for kfm, how that is known, and your roles.

    You are the person that the token in KFM_TOKEN belongs to, else the one with the account that runs
    this. People, their roles, accounts and tokens are in the configuration under `people:`; without it,
    every account may do everything. No token is ever shown.
    """
    loaded = session.load()
    identity = loaded.identity()
    origin = next(
        (
            loaded.origins.get(f"people[{index}].subject")
            for index, person in enumerate(loaded.settings.people)
            if identity.declared and person.subject == identity.subject
        ),
        None,
    )
    document = {
        "subject": identity.subject,
        "known_by": identity.known_by,
        "account": identity.account,
        "declared": identity.declared,
        "roles": list(identity.roles),
        "names": list(identity.names),
        "from": origin,
        "people": len(loaded.settings.people),
        "note": _note(identity),
    }
    session.emit(document, _lines(document))


def _note(identity: Any) -> str | None:
    from kfm.config.loader import token

    if identity.open:
        unused = " KFM_TOKEN is set, and says nothing without `people:`." if token() else ""
        return f"No people are declared, so every account may do everything.{unused}"
    if identity.known_by == "token" and not identity.declared:
        return "The token in KFM_TOKEN belongs to no person, so everything is refused. Correct or unset it."
    if not identity.declared:
        return "This account is not among the people of the configuration, so it may only read."
    return None


def _lines(document: dict[str, Any]) -> list[str]:
    by = {"token": "the token in KFM_TOKEN", "account": f"the account {document['account']}"}
    lines = [f"{document['subject']}, known by {by[document['known_by']]}"]
    lines += [f"  {role:8} {MAY[role]}" for role in document["roles"]] or ["  no role"]
    if document["from"]:
        lines.append(f"declared in {document['from']}")
    if len(document["names"]) > 1:
        lines.append(f"one person with {', '.join(document['names'][1:])}")
    if document["note"]:
        lines.append(document["note"])
    return lines
