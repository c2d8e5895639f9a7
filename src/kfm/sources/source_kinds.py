"""From a source's settings to a source: built-in kinds, plugins, several with one promotion, redaction."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kfm import ports
from kfm.model.errors import ConfigError, PluginConflict
from kfm.model.quantities import suggest
from kfm.model.records import Found, Window
from kfm.model.redaction import MASK
from kfm.model.settings import Limits, Settings, SourceSettings, own_places, takes_in
from kfm.sources.placement import StreamDownload, settled

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from kfm.ports import Source


PATH_MASK = "redacted"  # some readers of published paths take stars for patterns
GROUP = "kfm.sources"
KINDS = ("files", "http", "bucket", "dataset", "sync")


def answers_empty(source: ports.Source) -> bool:
    """Is a discovery of nothing upstream's own word that there is nothing?"""
    return getattr(source, "answers_empty", False) is True


class RedactedSource:
    """Callers see the redacted names; upstream is asked by its own."""

    def __init__(self, inner: ports.Source, hide: Callable[[str], str]) -> None:
        self._inner = inner
        self._hide = hide
        self._own: dict[Found, Found] = {}  # cleaned → as upstream knows it

    @property
    def answers_empty(self) -> bool:
        return answers_empty(self._inner)

    def discover(self, window: Window) -> list[Found]:
        cleaned = []
        for found in self._inner.discover(window):
            shown = self._cleaned(found)
            if shown != found:
                self._own[shown] = found
            cleaned.append(shown)
        return cleaned

    @contextlib.contextmanager
    def open(self, found: Found, offset: int) -> Iterator[ports.Download]:
        own = self._own.get(found)
        if own is None:
            with self._inner.open(found, offset) as download:
                yield download
            return
        with self._inner.open(own, offset) as download:
            announced = self._cleaned(download.found)
            yield StreamDownload(download.offset, announced, download.chunks())

    def _cleaned(self, found: Found) -> Found:
        hide = self._hide
        return msgspec.structs.replace(
            found,
            uri=hide(found.uri),
            path=hide(found.path).replace(MASK, PATH_MASK),
            media_type=hide(found.media_type),
            etag=hide(found.etag) if found.etag else found.etag,
            version=hide(found.version) if found.version else found.version,
            origin=hide(found.origin) if found.origin else found.origin,
        )


class SyncSource:
    """All members for one window; one that fails fails the whole."""

    def __init__(self, source_id: str, members: Mapping[str, Source], limits: Limits) -> None:
        self._source_id = source_id
        self._members = members
        self._limits = limits

    @property
    def answers_empty(self) -> bool:
        """Only if every member answers."""
        return all(map(answers_empty, self._members.values()))

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


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What a source may use of the outside. A plugin's factory gets it, too."""

    http: Any  # ports.Http
    guard: Any  # ports.Guard
    clock: Any  # ports.Clock
    open_bucket: Callable[[str, Mapping[str, str]], Any]  # address, options → ports.Bucket
    resolve_secret: Callable[[str], str]
    resolve_path: Callable[[str], str]
    limits: Limits = Limits()
    head: Any = None  # Callable[[str], tuple[Promotion, Manifest] | None]: the version that a dataset shows
    objects: Any = None  # Callable[[], ports.Objects]: where the bytes of versions are
    public_name: Any = None  # Callable[[str], str]: of a dataset; a masked one by its mask
    circuit_guard: Any = None  # Callable[[SourceSettings, Tools], Tools]: tools behind its circuit


def make_source(source: SourceSettings, settings: Settings, tools: Tools) -> ports.Source:
    """The source behind the settings. A plugin is called as factory(source, tools)."""
    limits = tools.limits
    if tools.circuit_guard is not None and source.kind not in ("files", "dataset", "sync"):
        tools = tools.circuit_guard(source, tools)
    if source.kind == "files":
        from kfm.sources.files import FilesSource

        folder = tools.resolve_path(source.folder or ".")
        _require_apart(source, folder, settings, tools.resolve_path)
        return FilesSource(source, folder, limits)
    if source.kind == "http":
        from kfm.sources.http import HttpSource

        return HttpSource(source, tools.http, tools.guard, tools.resolve_secret, limits, tools.clock)
    if source.kind == "bucket":
        from kfm.sources.bucket import BucketSource

        def connect() -> ports.Bucket:
            options = {name: tools.resolve_secret(value) for name, value in source.bucket_options.items()}
            bucket: ports.Bucket = tools.open_bucket(source.bucket or "", options)
            return bucket

        return BucketSource(source, connect, tools.guard, limits)
    if source.kind == "dataset":
        from kfm.sources.dataset import DatasetSource

        return DatasetSource(source, tools.head, tools.objects(), limits, tools.public_name or str)
    if source.kind == "sync":
        direct = [settings.source(member) for member in source.members]
        if any(member.kind == "sync" for member in direct):
            raise ConfigError(f"Sync `{source.id}` has a sync among its members.")
        members = {
            # One promotion, one calendar: the members' dates are those of the sync.
            member.id: make_source(
                msgspec.structs.replace(member, time_zone=source.time_zone), settings, tools
            )
            for member in direct
        }
        return SyncSource(source.id, members, limits)
    made: ports.Source = find_plugin(source.kind).load()(source, tools)
    return made


def _require_apart(
    source: SourceSettings, folder: str, settings: Settings, resolve_path: Callable[[str], str]
) -> None:
    """Links and a state folder named by the environment are known only now."""
    place = os.path.realpath(folder)
    for what, own in own_places(settings):
        if takes_in(place, os.path.realpath(resolve_path(own)), source.dataset, what):
            raise ConfigError(
                f"The folder `{source.folder}` of source `{source.id}` and the {what} `{own}` overlap: "
                "kfm would take in its own output."
            )


def find_plugin(kind: str) -> EntryPoint:
    """The one plugin of that name."""
    from importlib.metadata import entry_points

    group = entry_points(group=GROUP)
    found = list({(point.value, _origin(point)): point for point in group if point.name == kind}.values())
    if not found:
        words = (*KINDS, *sorted({point.name for point in group}))
        close = suggest(kind, words)
        hint = f" Did you mean `{close}`?" if close else f" There are: {', '.join(words)}."
        raise ConfigError(f"There is no kind of source `{kind[:60]}`.{hint}")
    if len(found) > 1:
        owners = " and ".join(sorted(f"{_origin(point)} ({point.value})" for point in found))
        raise PluginConflict(f"The kind of source `{kind}` is offered by {owners}.")
    return found[0]


def _origin(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"
