"""Which version a target shows, and whether that may be replaced by the head: it never goes backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kfm.model.errors import TargetUnavailable
from kfm.model.records import Promotion
from kfm.publish.targets.folder import sequence_of

VERSION_CHARS = 12


class ShownVersion(NamedTuple):
    """A version by its number and its id, or as much of the id as its name has."""

    sequence: int
    version_id: str

    @classmethod
    def named(cls, name: str) -> ShownVersion:
        """Of `00000012-0123456789ab`; raises ValueError for any other name."""
        return cls(sequence_of(name), f"sha256:{name.partition('-')[2]}")

    def is_version(self, sequence: int, version_id: str | None) -> bool:
        return (
            self.sequence == sequence
            and version_id is not None
            and len(self.version_id) >= len("sha256:") + VERSION_CHARS
            and version_id.startswith(self.version_id)
        )


def is_done(
    target: str,
    shown: ShownVersion,
    promotion: Promotion,
    known: Callable[[int], str | None] | None,
    pointer: str = "what it shows of the dataset",
) -> bool:
    """Does the target show the head? Read before the head was, so a database that it came from knows at least
    as much; one that shows what this database never promoted is refused."""
    if shown.sequence < promotion.sequence:
        same = known is None or shown.is_version(shown.sequence, known(shown.sequence))
    else:
        same = shown.is_version(promotion.sequence, promotion.version_id)
    if not same:
        raise TargetUnavailable(
            f"{target}: it shows {shown.sequence} ({shown.version_id}), which is not of this database; the "
            f"database is at {promotion.sequence} ({promotion.version_id}).",
            remedy="The target belongs to another state folder, or the state was lost or restored: give it "
            f"another place, or remove {pointer} and project again.",
        )
    return shown.sequence == promotion.sequence
