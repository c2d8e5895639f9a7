"""What excludes an approval that waits: another one that was given, or what was published since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kfm.model.records import Record

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.quarantine import Approval


class Exclusion(Record, frozen=True):
    """Why an approval, given now, could not be carried out: another one is, or was."""

    kind: Literal["published", "approved"]
    base_sequence: int  # the version that its preview would change
    sequence: int | None = None  # published: the version that is the head now
    request: str | None = None  # approved: the other request
    approval: str | None = None  # approved: the other approval

    @property
    def sentence(self) -> str:
        if self.kind == "published":
            return (
                f"Version {self.sequence} is published since; this preview was made on version "
                f"{self.base_sequence}."
            )
        return (
            f"Approval {self.approval} of the same dataset was given, also on version {self.base_sequence}: "
            "once that is published, this preview can't come true."
        )


def excluded_by(ledger: LedgerReader, approval: Approval) -> Exclusion | None:
    """What would make the preview of an undecided approval drift; None: nothing does."""
    if approval.kind not in ("update", "change") or approval.status != "requested":
        return None
    if approval.base_sequence is None or approval.dataset_id is None:
        return None
    base = approval.base_sequence
    for head in ledger.promotions(approval.dataset_id, limit=1):
        if head.sequence > base:
            return Exclusion(kind="published", base_sequence=base, sequence=head.sequence)
    for request, other, sequence in ledger.request_reader().approved_of(approval.dataset_id):
        if other != approval.request_id and sequence == base:
            return Exclusion(kind="approved", base_sequence=base, request=request, approval=other)
    return None


def rivals(ledger: LedgerReader, approval: Approval) -> list[str]:
    """Undecided approvals of the same dataset on the same version: only one can be carried out as shown."""
    if approval.kind != "update" or approval.status != "requested" or approval.base_sequence is None:
        return []
    return sorted(
        one.request_id
        for one in ledger.approvals(state="requested", limit=1000)
        if one.kind == "update" and one.request_id != approval.request_id
        if (one.dataset_id, one.base_sequence) == (approval.dataset_id, approval.base_sequence)
    )
