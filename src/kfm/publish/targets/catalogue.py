"""Catalogues elsewhere that show the head: a STAC API with transactions, a DCAT record at an address.

Neither has all of a version in one request, so the version that it shows is written last, and read back: what
another process overwrote meanwhile is sent again, until what stands there is the head.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from kfm.model.errors import BackendUnavailable, CircuitOpen, CollectorRefused, TargetUnavailable
from kfm.model.records import Asset, Item, Promotion
from kfm.model.versions import Version
from kfm.ports import PublishedVersions
from kfm.publish.catalogue import BY_HASH, dcat, dcat_documents, encode, stac_collection, tombstone_of
from kfm.publish.catalogue.addresses import Page
from kfm.publish.catalogue.pages import Earlier, Pages
from kfm.publish.targets.folder import HeadReader, History, require_folder_name, version_name
from kfm.publish.targets.shown import ShownVersion, is_done
from kfm.sinks.http_document import HttpDocuments
from kfm.sinks.stac_api import REVISION, StacApi

ATTEMPTS_MAX = 5
SEQUENCE, VERSION, WITHDRAWN = "kfm:sequence", "kfm:version_id", "kfm:withdrawn"
NAMED_MAX = 100  # items that are asked for one by one; of more, the whole list is read
REVISION_DIGITS = 13  # of a digest: as many bits as every reader of JSON keeps of a number
Call = Callable[[Callable[[], Any]], Any]  # makes one request, through its provider's circuit


class CataloguePush:
    """What both kinds share: the rounds, and where the files of a version are read."""

    def __init__(self, name: str, call: Call, assets: str) -> None:
        self.name = name
        self._call = call
        self._assets = assets

    def project(self, dataset_id: str, head: HeadReader, known: History | None = None) -> int | None:
        require_folder_name(dataset_id)
        since, is_first = None, True  # `since`: what was shown at first; only what differs from it is sent
        try:
            for _ in range(ATTEMPTS_MAX):
                shown = self._shown(dataset_id)
                found = head()
                if found is None:
                    return None
                promotion, version = found
                done = shown is not None and is_done(self.name, shown, promotion, known)
                if done and self._is_whole(promotion, version, since):
                    return promotion.sequence
                if is_first and not done:
                    since = _shown_version(shown, known)
                is_first = False
                self._push(promotion, version, since)
        except CircuitOpen:
            raise
        except (BackendUnavailable, CollectorRefused) as error:
            raise TargetUnavailable(f"{self.name}: {error}") from error
        raise TargetUnavailable(f"{self.name}: it did not show what was sent, {ATTEMPTS_MAX} times.")

    def stands(self, dataset_id: str, head: Promotion) -> bool:
        """Does it still show the head? A late request of a process that is gone may have undone it."""
        shown = self._shown(dataset_id)
        return shown is not None and shown.is_version(head.sequence, head.version_id)

    def purge(
        self,
        dataset_id: str,
        gone: Sequence[Promotion],
        blobs: Collection[str],
        check: Callable[[], None] = lambda: None,
    ) -> int:
        """A catalogue shows the head alone, so nothing old is there."""
        del dataset_id, gone, blobs, check
        return 0

    def _shown(self, dataset_id: str) -> ShownVersion | None:
        raise NotImplementedError

    def _is_whole(self, promotion: Promotion, version: Version, since: Version | None) -> bool:
        raise NotImplementedError

    def _push(self, promotion: Promotion, version: Version, since: Version | None) -> None:
        raise NotImplementedError

    def _bucket(self, dataset_id: str) -> str | None:
        """The dataset's tree in a bucket; None, if the files are elsewhere."""
        return None if "{" in self._assets else f"{self._assets.rstrip('/')}/{quote(dataset_id)}/"

    def _located(self, dataset_id: str) -> Callable[[Asset], str]:
        """Where an asset is read: in the tree of a bucket target, or as the address says."""
        bucket = self._bucket(dataset_id)

        def located(asset: Asset) -> str:
            if bucket is not None:
                return bucket + BY_HASH.asset(asset)
            named = {"{dataset}": quote(dataset_id), "{path}": quote(asset.path), "{sha256}": asset.sha256}
            made = self._assets
            for field, value in named.items():
                made = made.replace(field, value)
            return made

        return located

    def _version(self, document: dict[str, Any], sequence: str, version: str) -> ShownVersion | None:
        """The version that a document names; None if there is none, or one that waits for its items."""
        if not document or document.get(sequence) == 0:
            return None
        try:
            return ShownVersion(int(document[sequence]), str(document[version]))
        except (KeyError, TypeError, ValueError):
            raise TargetUnavailable(
                f"{self.name}: what is there was not put there by kfm.",
                remedy="Move it away, or give the target another address.",
            ) from None


class StacCatalogue(CataloguePush):
    """The dataset as a collection of a STAC API, with its items."""

    def __init__(self, name: str, api: StacApi, call: Call, assets: str) -> None:
        super().__init__(name, call, assets)
        self._api = api

    def _shown(self, dataset_id: str) -> ShownVersion | None:
        return self._version(self._call(lambda: self._api.collection(dataset_id)), SEQUENCE, VERSION)

    def _is_whole(self, promotion: Promotion, version: Version, since: Version | None) -> bool:
        del promotion
        differs = Differing(version, since)
        wanted = {one["id"]: one["properties"][REVISION] for one in self._items(version, differs)}
        return wanted == self._there(version.dataset_id, differs)

    def _there(self, dataset_id: str, differs: Differing) -> dict[str, int | None]:
        """What is there of the items that can differ, with their revisions."""
        found: dict[str, int | None] = {}
        if differs.ids is None or len(differs.ids) > NAMED_MAX:
            found = self._call(lambda: dict(self._api.items(dataset_id)))
        for name in differs.ids if differs.ids is not None and len(differs.ids) <= NAMED_MAX else ():
            found |= self._call(partial(self._api.revisions, dataset_id, [name]))
        return {name: one for name, one in found.items() if differs.ids is None or name in differs.ids}

    def _push(self, promotion: Promotion, version: Version, since: Version | None) -> None:
        """New items first, then what is gone, then the collection, which names the version."""
        api, dataset_id = self._api, version.dataset_id
        if self._shown(dataset_id) is None:
            self._call(lambda: api.ensure_collection(self._collection(version, 0, "")))
        differs = Differing(version, since)
        there, wanted = self._there(dataset_id, differs), set()
        for item in self._items(version, differs):
            wanted.add(item["id"])
            if there.get(item["id"], -1) != item["properties"][REVISION]:
                self._call(partial(api.put_item, item))
        for name in there.keys() - wanted:
            self._call(partial(api.delete_item, dataset_id, name))
        last = self._collection(version, promotion.sequence, promotion.version_id)
        if (tombstone := tombstone_of(promotion)) is not None:
            last[WITHDRAWN] = tombstone
        self._call(lambda: api.ensure_collection(last))

    def _collection(self, version: Version, sequence: int, version_id: str) -> dict[str, Any]:
        document = stac_collection.collection(version, [])
        return {**document, "links": _absolute(document["links"]), SEQUENCE: sequence, VERSION: version_id}

    def _items(self, version: Version, differs: Differing) -> Iterator[dict[str, Any]]:
        """The items that can differ, as they are to be."""
        addresses = _Elsewhere(self._located(version.dataset_id))
        for one in differs.items():
            document = stac_collection.item(version.header, one, addresses)
            document["links"] = _absolute(document["links"])
            digest = sha256(encode(document)).hexdigest()
            document["properties"][REVISION] = int(digest[:REVISION_DIGITS], 16)
            yield document


class Differing:
    """The items of a version that can differ from what is shown: all, if that is not known."""

    def __init__(self, version: Version, since: Version | None) -> None:
        pages = Pages(version, Earlier(since, None) if since is not None else None)
        self._version = version
        self._changes = pages.changes if not pages.is_fresh else None
        self.ids = pages.changed_ids if not pages.is_fresh else None  # None: all

    def items(self) -> list[Item]:
        if self._changes is None:
            return self._version.items()
        return [after for _, after in self._changes if after is not None]


class _Elsewhere:
    """Addresses of files that are read at another place; the catalogue has its own for its documents."""

    collection = ""

    def __init__(self, asset: Callable[[Asset], str]) -> None:
        self.asset = asset

    def above_item(self, item: Item) -> str:
        del item
        return ""

    def above_page(self, page: Page) -> str:
        del page
        return ""

    def page_above(self, page: Page) -> str | None:
        del page
        return None


class DcatRecord(CataloguePush):
    """The dataset as one DCAT record at an address, put there with the ETag of what it replaces."""

    def __init__(self, name: str, documents: HttpDocuments, call: Call, url: str, assets: str) -> None:
        super().__init__(name, call, assets)
        self._documents = documents
        self._url = url if "{dataset}" in url else f"{url.rstrip('/')}/{{dataset}}.jsonld"

    def _shown(self, dataset_id: str) -> ShownVersion | None:
        return self._version(self._read(dataset_id)[0], "dcat:version", "kfm:versionId")

    def _is_whole(self, promotion: Promotion, version: Version, since: Version | None) -> bool:
        del since
        return self._read(version.dataset_id)[0] == self._record(promotion, version)

    def _push(self, promotion: Promotion, version: Version, since: Version | None) -> None:
        del since
        there, etag = self._read(version.dataset_id)
        shown = self._version(there, "dcat:version", "kfm:versionId")
        if shown is None or shown.sequence <= promotion.sequence:
            body = encode(self._record(promotion, version))
            address = self._address(version.dataset_id)
            self._call(lambda: self._documents.put(address, body, etag=etag, is_new=not there))

    def _read(self, dataset_id: str) -> tuple[dict[str, Any], str | None]:
        found: tuple[dict[str, Any], str | None] = self._call(
            lambda: self._documents.get(self._address(dataset_id))
        )
        return found

    def _address(self, dataset_id: str) -> str:
        return self._url.replace("{dataset}", quote(dataset_id))

    def _record(self, promotion: Promotion, version: Version) -> dict[str, Any]:
        bucket = self._bucket(version.dataset_id)
        lists: list[tuple[str, str]] = []
        if bucket is not None:
            lists = dcat_documents(f"{bucket}latest/", f"{bucket}versions/{version_name(promotion)}/")
        document = dcat.dataset(version, self._located(version.dataset_id), lists)
        document["@context"] = {**document["@context"], "kfm": "urn:kfm:terms:"}
        tombstone = tombstone_of(promotion)
        if tombstone is not None:
            document["kfm:withdrawn"] = tombstone
        return {**document, "dcat:version": str(promotion.sequence), "kfm:versionId": promotion.version_id}


def _shown_version(shown: ShownVersion | None, known: History | None) -> Version | None:
    """The version that is shown, if it is known. One of before (form 1) was sent with other addresses."""
    if shown is None or not isinstance(known, PublishedVersions):
        return None
    version = known.version(shown.sequence)
    return version if version is not None and version.form != 1 else None


def _absolute(links: list[dict[str, str]]) -> list[dict[str, str]]:
    """Those that lead somewhere from anywhere: a server writes its own for the rest."""
    return [link for link in links if urlsplit(link["href"]).scheme]
