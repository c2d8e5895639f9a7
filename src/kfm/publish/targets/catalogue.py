"""Catalogues elsewhere that show the head: a STAC API with transactions, a DCAT record at an address.

Neither has all of a version in one request, so the version that it shows is written last, and read back: what
another process overwrote meanwhile is sent again, until what stands there is the head.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from kfm.model.errors import BackendUnavailable, CircuitOpen, CollectorRefused, TargetUnavailable
from kfm.model.records import Asset, Manifest, Promotion
from kfm.publish.catalogue import dcat, encode, stac_collection, tombstone_of
from kfm.publish.targets.folder import HeadReader, History, require_folder_name
from kfm.publish.targets.s3 import blob_key
from kfm.publish.targets.shown import ShownVersion, is_done
from kfm.sinks.http_document import HttpDocuments
from kfm.sinks.stac_api import REVISION, StacApi

ATTEMPTS_MAX = 5
SEQUENCE, VERSION, WITHDRAWN = "kfm:sequence", "kfm:version_id", "kfm:withdrawn"
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
        try:
            for _ in range(ATTEMPTS_MAX):
                shown = self._shown(dataset_id)
                found = head()
                if found is None:
                    return None
                promotion, manifest = found
                done = shown is not None and is_done(self.name, shown, promotion, known)
                if done and self._is_whole(promotion, manifest):
                    return promotion.sequence
                self._push(promotion, manifest)
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

    def _is_whole(self, promotion: Promotion, manifest: Manifest) -> bool:
        raise NotImplementedError

    def _push(self, promotion: Promotion, manifest: Manifest) -> None:
        raise NotImplementedError

    def _located(self, manifest: Manifest) -> Callable[[Asset], str]:
        """Where an asset is read: in the tree of a bucket target, or as the address says."""
        dataset, address = quote(manifest.dataset_id), self._assets

        def located(asset: Asset) -> str:
            if "{" not in address:
                return f"{address.rstrip('/')}/{dataset}/{blob_key(asset)}"
            named = {"{dataset}": dataset, "{path}": quote(asset.path), "{sha256}": asset.sha256}
            made = address
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

    def _is_whole(self, promotion: Promotion, manifest: Manifest) -> bool:
        del promotion
        wanted = {name: item["properties"][REVISION] for name, item in self._items(manifest).items()}
        return wanted == self._there(manifest.dataset_id)

    def _there(self, dataset_id: str) -> dict[str, int | None]:
        found: dict[str, int | None] = self._call(lambda: dict(self._api.items(dataset_id)))
        return found

    def _push(self, promotion: Promotion, manifest: Manifest) -> None:
        """New items first, then what is gone, then the collection, which names the version."""
        api, dataset_id = self._api, manifest.dataset_id
        if self._shown(dataset_id) is None:
            self._call(lambda: api.ensure_collection(self._collection(manifest, 0, "")))
        there, items = self._there(dataset_id), self._items(manifest)
        for name, item in items.items():
            if there.get(name, -1) != item["properties"][REVISION]:
                self._call(partial(api.put_item, item))
        for name in there.keys() - items.keys():
            self._call(partial(api.delete_item, dataset_id, name))
        last = self._collection(manifest, promotion.sequence, promotion.version_id)
        if (tombstone := tombstone_of(promotion)) is not None:
            last[WITHDRAWN] = tombstone
        self._call(lambda: api.ensure_collection(last))

    def _collection(self, manifest: Manifest, sequence: int, version_id: str) -> dict[str, Any]:
        document = stac_collection.collection(manifest)
        return {**document, "links": _absolute(document["links"]), SEQUENCE: sequence, VERSION: version_id}

    def _items(self, manifest: Manifest) -> dict[str, dict[str, Any]]:
        located, found = self._located(manifest), {}
        for one in manifest.items:
            document = stac_collection.item(manifest, one, located)
            document["links"] = _absolute(document["links"])
            for asset in one.assets:
                document["assets"][asset.path]["href"] = located(asset)
            digest = sha256(encode(document)).hexdigest()
            document["properties"][REVISION] = int(digest[:REVISION_DIGITS], 16)
            found[one.id] = document
        return found


class DcatRecord(CataloguePush):
    """The dataset as one DCAT record at an address, put there with the ETag of what it replaces."""

    def __init__(self, name: str, documents: HttpDocuments, call: Call, url: str, assets: str) -> None:
        super().__init__(name, call, assets)
        self._documents = documents
        self._url = url if "{dataset}" in url else f"{url.rstrip('/')}/{{dataset}}.jsonld"

    def _shown(self, dataset_id: str) -> ShownVersion | None:
        return self._version(self._read(dataset_id)[0], "dcat:version", "kfm:versionId")

    def _is_whole(self, promotion: Promotion, manifest: Manifest) -> bool:
        return self._read(manifest.dataset_id)[0] == self._record(promotion, manifest)

    def _push(self, promotion: Promotion, manifest: Manifest) -> None:
        there, etag = self._read(manifest.dataset_id)
        shown = self._version(there, "dcat:version", "kfm:versionId")
        if shown is None or shown.sequence <= promotion.sequence:
            body = encode(self._record(promotion, manifest))
            address = self._address(manifest.dataset_id)
            self._call(lambda: self._documents.put(address, body, etag=etag, is_new=not there))

    def _read(self, dataset_id: str) -> tuple[dict[str, Any], str | None]:
        found: tuple[dict[str, Any], str | None] = self._call(
            lambda: self._documents.get(self._address(dataset_id))
        )
        return found

    def _address(self, dataset_id: str) -> str:
        return self._url.replace("{dataset}", quote(dataset_id))

    def _record(self, promotion: Promotion, manifest: Manifest) -> dict[str, Any]:
        document = dcat.dataset(manifest, self._located(manifest))
        document["@context"] = {**document["@context"], "kfm": "urn:kfm:terms:"}
        tombstone = tombstone_of(promotion)
        if tombstone is not None:
            document["kfm:withdrawn"] = tombstone
        return {**document, "dcat:version": str(promotion.sequence), "kfm:versionId": promotion.version_id}


def _absolute(links: list[dict[str, str]]) -> list[dict[str, str]]:
    """Those that lead somewhere from anywhere: a server writes its own for the rest."""
    return [link for link in links if urlsplit(link["href"]).scheme]
