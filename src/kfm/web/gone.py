"""410 Gone: what readers were given once and was taken down is answered with its tombstone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm.model.dataset_changes import Withdrawal, gone_from, lift_command, tombstone, whole
from kfm.model.errors import DataWithdrawn
from kfm.model.quantities import moment
from kfm.reports.datasets import withdrawn_item
from kfm.web.problems import Problem, missing
from kfm.web.visibility import Visibility

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.records import Promotion
    from kfm.model.schedules import Schedule
    from kfm.model.versions import Version


def gone(dataset_id: str, sequence: int, withdrawals: Sequence[Withdrawal]) -> Problem:
    """The answer in the place of what was withdrawn, retired or purged. It does not name the dataset: the
    tombstone does, where the reader may know it."""
    first = withdrawals[0]
    word = "retired" if first.retires else "withdrawn and purged" if first.purge else "withdrawn"
    return Problem(
        410,
        f"It was {word} on {moment(first.withdrawn_at_ms)}, with version {first.since_sequence}.",
        code=DataWithdrawn.code,
        members={"remedy": _remedy(first), "tombstone": tombstone(dataset_id, sequence, withdrawals)},
    )


def _remedy(one: Withdrawal) -> str:
    if one.purge:
        return "Do not use copies of it. Its bytes were removed for good: nothing brings them back."
    return f"Do not use copies of it. An operator lets it be published again with `{lift_command(one)}`."


def gone_dataset(ledger: LedgerReader, dataset_id: str) -> Problem | None:
    """Why nothing of a dataset is to be read; None: there is something, or there never was."""
    found = whole(ledger.change_reader().withdrawals(dataset_id))
    head = next(iter(ledger.promotions(dataset_id, 1)), None) if found else None
    return gone(dataset_id, head.sequence, found) if head is not None else None


def readable_version(ledger: LedgerReader, dataset_id: str, number: int) -> tuple[Promotion, Version]:
    """A version by its number. Problem 404 without one, 410 where it holds what was taken down."""
    promotion = ledger.promotion(dataset_id, number)
    version = ledger.version(promotion.version_id) if promotion is not None else None
    if promotion is None or version is None:
        raise missing("version")
    against = gone_from(number, version, ledger.change_reader().withdrawals(dataset_id))
    if against:
        raise gone(dataset_id, number, against)
    return promotion, version


def gone_item(ledger: LedgerReader, dataset_id: str, item_id: str) -> Problem | None:
    """Why an item that was published once is not to be read; None: it never was, or was not taken down."""
    known = ledger.change_reader().withdrawals(dataset_id)
    found = withdrawn_item(ledger, dataset_id, item_id, known) if known else []
    head = next(iter(ledger.promotions(dataset_id, 1)), None) if found else None
    return gone(dataset_id, head.sequence, found) if head is not None else None


def gone_for_readers(
    app: App, schedules: Sequence[Schedule], dataset_id: str, item_id: str | None
) -> Problem | None:
    """The same for a caller of whom nothing is known: reasons and names of masked datasets are withheld, and
    a guess at one finds nothing."""
    visibility = Visibility(
        app.settings, app.ledger, everything=False, hide=app.loaded.hide, schedules=schedules
    )
    wanted = visibility.meant(dataset_id) or dataset_id
    found = gone_dataset(app.ledger, wanted)
    if found is None and item_id is not None and not visibility.hides(wanted):
        found = gone_item(app.ledger, wanted, item_id)
    if found is not None:
        found.members = visibility.document(found.members)
    return found
