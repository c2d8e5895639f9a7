"""Which folders a version has, what is in them, and which of them differ from an earlier version. Pure.

Read by look-ups, folder by folder: a plan costs what it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kfm.model.branches import TreeEntry
from kfm.model.item_ids import source_part
from kfm.model.records import Item
from kfm.model.remembered import remembered
from kfm.model.versions import Version
from kfm.publish.catalogue import NamedDocuments, Tombstone
from kfm.publish.catalogue.addresses import Page, page_name
from kfm.publish.catalogue.pages import Earlier, contents, has_pages

ENTRIES_MAX = 1000  # files and items of a version whose folders are its own
DATA, ITEMS, CATALOGUE = "data", "items", "catalogue"
_INDEX = "index.json"
_DAY = 3  # dates of a page that has no folder of its own

Wanted = TreeEntry | Item | Page  # a file's bytes; an item's document; a page's


class Folder(NamedTuple):
    """What is in one folder, by name."""

    files: dict[str, Wanted]
    folders: list[str]


def is_shared(version: Version) -> bool:
    """Is it so large that it shares folders with others?"""
    return version.facts().files + len(version) > ENTRIES_MAX


class FolderPlan:
    """The folders of a version, by their paths in it. `earlier`: what is there already."""

    def __init__(
        self, version: Version, tombstone: Tombstone | None = None, earlier: Earlier | None = None
    ) -> None:
        self.version = version
        self.documents = NamedDocuments(version, earlier)
        self._tombstone = tombstone
        self._earlier = earlier

    @property
    def is_known(self) -> bool:
        """Is it known what is there already?"""
        return self._earlier is not None

    def own_documents(self) -> dict[str, bytes]:
        """The documents at the top, which no other version has."""
        return self.documents.own(self._tombstone)

    # --- what there is ---

    def top(self) -> list[str]:
        """The folders at the top."""
        found = [DATA] if self.version.facts().files else []
        found += [ITEMS] if len(self.version) else []
        return [*found, CATALOGUE] if self.documents.pages.is_paged else found

    def folder(self, path: str) -> Folder:
        """The contents of a folder. One that is not there is empty."""
        kind, _, below = path.partition("/")
        if kind == DATA:
            return data_folder(self.version, below)
        if not below:
            return Folder({}, [source_part(one) for one in self.documents.pages.sources])
        return self._of_page(kind, self._page(below))

    def _page(self, below: str) -> Page:
        part, *dates = below.split("/")
        source_id = next(one for one in self.documents.pages.sources if source_part(one) == part)
        return Page(source_id, tuple(dates))

    def _of_page(self, kind: str, page: Page) -> Folder:
        listed = contents(self.version, page)
        names = [one.dates[-1] for one in listed.pages]
        if kind == ITEMS:
            return Folder({f"{one.id}.json": one for one in listed.items}, names)
        files: dict[str, Wanted] = {_INDEX: page}
        if len(page.dates) < _DAY - 1:
            return Folder(files, names)
        return Folder(files | {f"{one.dates[-1]}.json": one for one in listed.pages}, [])

    # --- what is as it was ---

    def is_changed(self, path: str) -> bool:
        """Does a folder, or anything in it, differ from the earlier version?"""
        pages, kind = self.documents.pages, path.partition("/")[0]
        if self._earlier is None or (kind == ITEMS and pages.is_fresh):
            return True
        if kind == CATALOGUE and self._is_catalogue_fresh:
            return True
        return path in self._changed

    @remembered
    def _is_catalogue_fresh(self) -> bool:
        assert self._earlier is not None
        renamed = self._earlier.version.dataset_id != self.version.dataset_id
        return renamed or not has_pages(self._earlier.version)

    @remembered
    def _changed(self) -> set[str]:
        found: set[str] = set()
        for path in self._changed_names():
            folder = path.rpartition("/")[0]
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition("/")[0]
        return found

    def _changed_names(self) -> Iterator[str]:
        assert self._earlier is not None
        for change in self.version.changed_files(self._earlier.version):
            yield f"{DATA}/{change.path}"
        for page in self.documents.pages.on_the_way:
            yield "/".join((ITEMS, source_part(page.source_id), *page.dates, "…"))
            if not self._is_catalogue_fresh and self.documents.page_differs(page):
                yield page_name(page)

    @remembered
    def _moved(self) -> dict[str, str]:
        """Files of the earlier version by their bytes: paths of those that are gone, or hold others now."""
        assert self._earlier is not None
        changes = self.version.changed_files(self._earlier.version)
        return {one.before.sha256: one.path for one in changes if one.before is not None}

    def earlier_path(self, path: str, wanted: Wanted) -> str | None:
        """Where the earlier version has the same; where it could, if nothing is known of it."""
        if self._earlier is None or self._stays(path, wanted):
            return path
        moved = self._moved.get(wanted.sha256) if isinstance(wanted, TreeEntry) else None
        return f"{DATA}/{moved}" if moved is not None else None

    def _stays(self, path: str, wanted: Wanted) -> bool:
        assert self._earlier is not None
        pages, old = self.documents.pages, self._earlier.version
        if isinstance(wanted, TreeEntry):
            path = path.removeprefix(f"{DATA}/")
            return old.pages.files_forest().entry(old.files_id, path) == wanted
        if isinstance(wanted, Item):
            return not pages.is_fresh and wanted.id not in pages.changed_ids
        return not self._is_catalogue_fresh and not (
            wanted in pages.on_the_way and self.documents.page_differs(wanted)
        )

    def rendered(self, wanted: Item | Page) -> bytes:
        """The document that is wanted."""
        if isinstance(wanted, Item):
            return self.documents.item(wanted)
        data = self.documents.page(wanted)
        assert data is not None, "an empty page is not in the plan"
        return data


def data_folder(version: Version, path: str) -> Folder:
    """The files that lie in a folder, and its folders: one look-up for each of these."""
    start = f"{path}/" if path else ""
    forest = version.pages.files_forest()
    files: dict[str, Wanted] = {}
    folders: list[str] = []
    rows = forest.rows(version.files_id, start)
    while (row := next(rows, None)) is not None and row[0].startswith(start):
        name, slash, _ = row[0][len(start) :].partition("/")
        if slash:
            folders.append(name)
            rows = forest.rows(
                version.files_id, f"{start}{name}0"
            )  # past all that lie in it: `0` follows `/`
        else:
            files[name] = TreeEntry(sha256=row[1], size=row[2])
    return Folder(files, folders)
