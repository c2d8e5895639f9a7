"""Versions: read from their trees, and written with their pointers by the transaction that makes a head."""

from typing import NamedTuple

from msgspec.structs import replace

from kfm.db import rows
from kfm.db.session import Database, Row, Session
from kfm.model.records import PROMOTED_TOGETHER, GovernanceEntry, Promotion
from kfm.model.versions import NewRows, Version, VersionPages, new_rows, version_of


class VersionReader(VersionPages):
    """Versions by their ids, with the pages and items that the database has."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._session = database.session

    def version(self, version_id: str) -> Version | None:
        row = self._session.one("versions.get", version_id=version_id)
        return self._version(version_id, row) if row else None

    def head(self, dataset_id: str) -> tuple[Promotion, Version] | None:
        row = self._session.one("promotions.head_with_manifest", dataset_id=dataset_id)
        if row is None:
            return None
        *promotion, manifest, tree_id, files_id = row
        found = rows.promotion_from(tuple(promotion))
        return found, self._version(found.version_id, (manifest, tree_id, files_id))

    def _version(self, version_id: str, row: Row) -> Version:
        """In the form in which it was named; one that is kept whole gets its trees here."""
        text, tree_id, files_id = row
        if tree_id is None:
            whole = version_of(rows.manifest_from(text))
            return Version(whole.pages, whole.header, (whole.tree_id, whole.files_id), version_id, 1)
        header, form = rows.header_from(text)
        return Version(self, header, (tree_id, files_id), version_id, form)

    def bodies(self, page_ids: list[str]) -> dict[str, str]:
        return dict(self._session.all("version_pages.some", page_ids=rows.text_of(page_ids)))

    def documents(self, digests: list[str]) -> dict[str, bytes]:
        found = self._session.all("version_items.some", digests=rows.text_of(digests))
        return {digest: document.encode() for digest, document in found}


# --- writing -----------------------------------------------------------------------------


def placed(entry: GovernanceEntry, sequence: int, policy_epoch: int, now_ms: int) -> GovernanceEntry:
    """What the version was given in this transaction, in the chain, too: else its row could tell another."""
    if entry.kind not in ("promotion", PROMOTED_TOGETHER):
        return entry
    details = {**entry.details, "sequence": sequence, "policy_epoch": policy_epoch}
    return replace(entry, recorded_at_ms=now_ms, details=details)


class MadeVersion(NamedTuple):
    """A version with its number, and what made it: a run, or a change by a person."""

    dataset_id: str
    sequence: int
    version_id: str
    run_id: str
    fence: int
    policy_epoch: int


class StagedVersion(NamedTuple):
    """A version as it is stored: its own row, and what of its trees and items is new."""

    text: str
    tree_id: str
    files_id: str
    new: NewRows


def stage(version: Version) -> StagedVersion:
    """Outside the transaction: what is hashed and encoded need not be in it."""
    text = rows.text_of(version.header if version.form == 1 else version.root)
    return StagedVersion(text, version.tree_id, version.files_id, new_rows(version))


def insert_version(session: Session, made: MadeVersion, version: StagedVersion, now_ms: int) -> bool:
    """The version and its pointer; False if its number is taken.

    What it shares with the version that it was made from is there, because that one is."""
    put_version(session, made.version_id, made.dataset_id, version)
    return session.one("promotions.insert", promoted_at_ms=now_ms, **made._asdict()) is not None


def put_version(session: Session, version_id: str, dataset_id: str, version: StagedVersion) -> None:
    # In one order, so that two who store the same never wait for each other in a circle.
    if version.new.items:
        documents = ((digest, document.decode()) for digest, document in version.new.items.items())
        session.bulk("version_items.insert", sorted(documents))
    if version.new.pages:
        session.bulk("version_pages.insert", sorted(version.new.pages.items()))
    session.all(
        "versions.insert",
        version_id=version_id,
        dataset_id=dataset_id,
        manifest=version.text,
        tree_id=version.tree_id,
        files_id=version.files_id,
    )
