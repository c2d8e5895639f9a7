"""Several sources, one promotion: each member's objects have a folder of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from kfm.model.errors import ConfigError
from kfm.model.records import Found, Window
from kfm.model.settings import Limits
from kfm.sources.placement import StreamDownload, settled

if TYPE_CHECKING:
    from kfm.ports import Source


class SyncSource:
    """All members for one window; one that fails fails the whole."""

    def __init__(self, source_id: str, members: Mapping[str, Source], limits: Limits) -> None:
        self._source_id = source_id
        self._members = members
        self._limits = limits

    def discover(self, window: Window) -> list[Found]:
        return settled(
            self._source_id,
            (
                msgspec.structs.replace(found, path=f"{member_id}/{found.path}")
                for member_id, member in self._members.items()
                for found in member.discover(window)
            ),
            self._limits,
        )

    @contextlib.contextmanager
    def open(self, found: Found, offset: int) -> Iterator[StreamDownload]:
        member_id, _, path = found.path.partition("/")
        if member_id not in self._members:
            raise ConfigError(f"Sync `{self._source_id}` has no member `{member_id}`.")
        own = msgspec.structs.replace(found, path=path)
        with self._members[member_id].open(own, offset) as download:
            announced = msgspec.structs.replace(download.found, path=found.path)
            yield StreamDownload(download.offset, announced, download.chunks())
