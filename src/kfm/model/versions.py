"""Versions: what a dataset is at one time, read as far as it is asked for, and edited by what changes.

A version says a few things of itself (its header) and has two trees, of items and of files. Its id is the
SHA-256 of its root document, which has the header and the ids of the trees: so making, naming and comparing
versions costs what they differ in. Versions of before were named by the hash of the whole list (form 1).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from typing import Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from kfm.model.branches import PathChange
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import PathConflict, StoreCorrupt
from kfm.model.records import Item, Manifest, Record
from kfm.model.settings import Rights
from kfm.model.trees import EMPTY, Forest, Row, TreeNode, clashes, decode
from kfm.model.version_trees import (
    NO_ITEMS,
    PAGES_KEPT_MAX,
    ItemFacts,
    facts_from,
    files_forest,
    header_of,
    item_from,
    item_row,
    items_forest,
    manifest_pieces,
)

ROWS_MAX = 1000  # pages or items that are asked for at once
ITEMS_KEPT_BYTES = 128 * 1024 * 1024  # documents of the items that are remembered

T = TypeVar("T")
Form = Literal[1, 2]
_HEADER = tuple(name for name in Manifest.__struct_fields__ if name != "items")


class ItemsRoot(Record, frozen=True):
    count: int
    tree: str  # the id of its page


class FilesRoot(Record, frozen=True):
    count: int
    bytes: int
    tree: str


class VersionRoot(Record, frozen=True):
    """The root document of a version, published as `manifest.json`. Its SHA-256 is the version's id."""

    manifest: Literal[2]
    dataset_id: str
    title: str
    description: str
    domain: str
    keywords: tuple[str, ...]
    rights: Rights
    items: ItemsRoot
    files: FilesRoot


def header_from(root: Mapping[str, object]) -> Manifest:
    """What a version says beside its items, as its root document has it."""
    try:
        found = msgspec.convert(root, VersionRoot)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"A stored version can't be read: {error}.") from error
    return Manifest(**{name: getattr(found, name) for name in _HEADER}, items=())


class RememberedItems:
    """Items that were read, by hash, up to a bound: one for all versions that are made of each other."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self._bytes = 0

    def add(self, read: Mapping[str, Item], size: int) -> None:
        """`size`: of their documents."""
        if self._bytes + size > ITEMS_KEPT_BYTES:
            self.items, self._bytes = {}, 0
        self.items |= read
        self._bytes += size


class VersionPages:
    """Pages and items of versions, by their hashes. What was read is remembered: of the next version only
    what is new is read. This one holds what is in memory; what it does not have is asked of those below."""

    def __init__(self, *below: "VersionPages") -> None:
        self._below = below
        self.held_pages: dict[str, str] = {}  # that no database has yet
        self.held_items: dict[str, bytes] = {}
        self._nodes: dict[str, TreeNode] = below[0]._nodes if below else {}
        self.remembered: RememberedItems = below[0].remembered if below else RememberedItems()

    def bodies(self, page_ids: list[str]) -> dict[str, str]:
        """The texts of these pages, as far as they are there."""
        found = {one: self.held_pages[one] for one in page_ids if one in self.held_pages}
        for pages in self._below:
            if rest := [one for one in page_ids if one not in found]:
                found |= pages.bodies(rest)
        return found

    def documents(self, digests: list[str]) -> dict[str, bytes]:
        """The documents of these items, as far as they are there."""
        found = {one: self.held_items[one] for one in digests if one in self.held_items}
        for pages in self._below:
            if rest := [one for one in digests if one not in found]:
                found |= pages.documents(rest)
        return found

    # --- reading ---

    def items_forest(self) -> Forest:
        return items_forest(self.body, self._nodes)

    def files_forest(self) -> Forest:
        return files_forest(self.body, self._nodes)

    def body(self, page_id: str) -> str:
        """The text of a page."""
        return self._bodies([page_id])[page_id]

    def _bodies(self, page_ids: list[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for some in _portions(page_ids):
            found |= self.bodies(some)
        _require(page_ids, found, "page")
        return found

    def leaves(self, tree_id: str, seen: set[str] | None = None) -> list[TreeNode]:
        """The leaves of a tree, read level by level; without those that were seen, or lie below."""
        waiting = [tree_id] if tree_id != EMPTY else []
        while waiting:
            if seen is not None:
                waiting = [one for one in waiting if one not in seen]
                seen.update(waiting)
            nodes = self._read_nodes(waiting)
            if not nodes or nodes[0].level == 0:
                return nodes
            waiting = [row[1] for node in nodes for row in node.rows]
        return []

    def _read_nodes(self, page_ids: list[str]) -> list[TreeNode]:
        known = self._nodes
        missing = [one for one in page_ids if one not in known]
        read = {one: decode(one, body) for one, body in self._bodies(missing).items()}
        found = [read.get(one) or known[one] for one in page_ids]
        if len(known) + len(read) > PAGES_KEPT_MAX:
            self._nodes = known = {}
        known |= read
        return found

    def read_items(self, wanted: list[tuple[str, int]]) -> list[Item]:
        """The items of these hashes and sizes."""
        known = self.remembered.items
        missing = [digest for digest, _ in wanted if digest not in known]
        read: dict[str, Item] = {}
        for some in _portions(missing):
            read |= {digest: item_from(digest, text) for digest, text in self.documents(some).items()}
        _require(missing, read, "item")
        found = [read.get(digest) or known[digest] for digest, _ in wanted]
        if read:
            self.remembered.add(read, sum(size for digest, size in wanted if digest in read))
        return found

    def mark(self, tree_id: str, seen: set[str]) -> list[tuple[str, int]]:
        """Add the pages and entries of a tree; (hash, size) of the entries that were not there."""
        found: dict[str, int] = {}
        for node in self.leaves(tree_id, seen):
            found |= {row[1]: row[2] for row in node.rows if row[1] not in seen}
        seen.update(found)
        return list(found.items())

    def held(self, tree_id: str) -> dict[str, str]:
        """The pages of a tree that no database has yet."""
        found: dict[str, str] = {}
        waiting = [tree_id]
        while waiting:
            new = {one: body for one in waiting if (body := self._held_page(one)) is not None}
            found |= new
            nodes = [decode(one, body) for one, body in new.items()]
            waiting = [row[1] for node in nodes if node.level for row in node.rows]
        return found

    def _held_page(self, page_id: str) -> str | None:
        if page_id in self.held_pages:
            return self.held_pages[page_id]
        return next((body for pages in self._below if (body := pages._held_page(page_id))), None)

    def held_documents(self, digests: Iterable[str]) -> dict[str, bytes]:
        """The documents, of these, that no database has yet."""
        wanted = list(digests)
        found = {one: self.held_items[one] for one in wanted if one in self.held_items}
        for pages in self._below:
            found |= pages.held_documents(wanted)
        return found


class Version:
    """One whole version of a dataset."""

    def __init__(
        self,
        pages: VersionPages,
        header: Manifest,
        trees: tuple[str, str],
        version_id: str = "",
        form: Form = 2,
    ) -> None:
        """`trees`: of items and of files. `version_id`: where it is known; it follows from the rest."""
        assert not header.items, "items are in the tree"
        self.pages = pages
        self.header = header
        self.tree_id, self.files_id = trees
        self.form = form
        self._version_id = version_id

    def __repr__(self) -> str:
        return f"Version({self.dataset_id!r}, {self.version_id!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        mine, its = ((one.version_id, one.tree_id, one.files_id, one.header) for one in (self, other))
        return mine == its

    def __hash__(self) -> int:
        return hash(self.version_id)

    @property
    def dataset_id(self) -> str:
        return self.header.dataset_id

    @property
    def version_id(self) -> str:
        if not self._version_id:
            digest = sha256()
            for piece in self.pieces():
                digest.update(piece)
            self._version_id = f"sha256:{digest.hexdigest()}"
        return self._version_id

    def pieces(self) -> Iterator[bytes]:
        """`manifest.json`: what is hashed is what is published."""
        if self.form == 1:
            return manifest_pieces(self.manifest())
        return iter((canonical_bytes(msgspec.to_builtins(self.root)),))

    @property
    def root(self) -> VersionRoot:
        header = {name: getattr(self.header, name) for name in _HEADER}
        facts = self.facts()
        return VersionRoot(
            manifest=2,
            items=ItemsRoot(count=len(self), tree=self.tree_id),
            files=FilesRoot(count=facts.files, bytes=facts.bytes, tree=self.files_id),
            **header,
        )

    def __bool__(self) -> bool:
        return True  # one without items is a version, too

    def __len__(self) -> int:
        """The number of its items."""
        return self.pages.items_forest().node(self.tree_id).entries

    def facts(self, start: str = "") -> ItemFacts:
        """Of the items whose ids begin so."""
        if self.tree_id == EMPTY:
            return NO_ITEMS
        return facts_from(self.pages.items_forest().folded(self.tree_id, start))

    # --- items ---

    def items(self, start: str = "") -> list[Item]:
        """Those whose ids begin so, in the order of their ids."""
        if start:
            rows = self.pages.items_forest().entries(self.tree_id, start)
            return self.pages.read_items([(entry.sha256, entry.size) for _, entry in rows])
        leaves = self.pages.leaves(self.tree_id)
        return self.pages.read_items([(row[1], row[2]) for node in leaves for row in node.rows])

    def find(self, ids: Iterable[str]) -> dict[str, Item]:
        """Those of these items that it has."""
        there = self.pages.items_forest().lookup(self.tree_id, ids)
        found = self.pages.read_items([(entry.sha256, entry.size) for entry in there.values()])
        return dict(zip(there, found, strict=True))

    def after(self, item_id: str) -> str | None:
        """The first id that is not before this one."""
        row = next(self.pages.items_forest().rows(self.tree_id, item_id), None)
        return row[0] if row is not None else None

    def proof(self, item_id: str) -> list[str]:
        """The pages on the way from the root to an item's row: a page is found by its hash in the one before,
        the first by that in the root document."""
        way, page_id = [], self.tree_id
        while True:
            body = self.pages.body(page_id)
            way.append(body)
            node = decode(page_id, body)
            if node.level == 0:
                return way
            page_id = next(row[1] for row in node.rows if row[0] >= item_id)

    def manifest(self) -> Manifest:
        """With all of its items."""
        return replace(self.header, items=tuple(self.items()))

    def unseen(self, seen: set[str]) -> list[Item]:
        """The items that versions before this one did not have: `seen` are the pages and items of those."""
        return self.pages.read_items(self.pages.mark(self.tree_id, seen))

    # --- files ---

    def files(self, start: str = "") -> Iterator[tuple[str, str, int]]:
        """(path, SHA-256, size) of those whose paths begin so, in the order of their paths."""
        for path, entry in self.pages.files_forest().entries(self.files_id, start):
            yield path, entry.sha256, entry.size

    # --- comparing ---

    def is_same(self, other: "Version | None") -> bool:
        """Does another one say and hold the same, whatever its form?"""
        return other is not None and self.tree_id == other.tree_id and self.header == other.header

    def changed_items(self, since: "Version | None") -> list[tuple[Item | None, Item | None]]:
        """(before, after) of each item that differs, in the order of ids."""
        forest = self._with(since).items_forest()
        changes = list(forest.diff(since.tree_id if since else EMPTY, self.tree_id))
        olds = iter(since.pages.read_items(_of_side(changes, "before")) if since else ())
        news = iter(self.pages.read_items(_of_side(changes, "after")))
        return [(next(olds) if one.before else None, next(news) if one.after else None) for one in changes]

    def changed_files(self, since: "Version | None", start: str = "") -> Iterator[PathChange]:
        """The files that differ by bytes or are at another path, in the order of paths."""
        forest = self._with(since).files_forest()
        return forest.diff(since.files_id if since else EMPTY, self.files_id, start)

    def _with(self, other: "Version | None") -> VersionPages:
        """The pages of both."""
        return self.pages if other is None else VersionPages(self.pages, other.pages)


class NewRows(NamedTuple):
    """What of a version no database has yet, by hash."""

    pages: dict[str, str]
    items: dict[str, bytes]


def new_rows(version: Version) -> NewRows:
    pages = version.pages.held(version.tree_id)
    leaves = [node for one, body in pages.items() if (node := decode(one, body)).level == 0]
    items = version.pages.held_documents(row[1] for node in leaves for row in node.rows)
    return NewRows(pages | version.pages.held(version.files_id), items)


def _of_side(changes: Iterable[PathChange], side: str) -> list[tuple[str, int]]:
    found = (getattr(one, side) for one in changes)
    return [(entry.sha256, entry.size) for entry in found if entry is not None]


# --- making ----------------------------------------------------------------------------------


def version_of(manifest: Manifest, form: Form = 2, pages: VersionPages | None = None) -> Version:
    """The version that has just these items."""
    changes: dict[str, Item | None] = {item.id: item for item in manifest.items}
    if len(changes) != len(manifest.items):
        raise PathConflict("Two items have one id.")
    empty = Version(pages or VersionPages(), header_of(manifest), (EMPTY, EMPTY))
    made = edited(empty, header_of(manifest), changes)
    return Version(made.pages, made.header, (made.tree_id, made.files_id), form=form)


def whole_id(manifest: Manifest) -> str:
    """The id of a version of form 1."""
    digest = sha256()
    for piece in manifest_pieces(manifest):
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


def rebuilt(manifest: Manifest, beside: Version | None) -> Version:
    """A version of form 1, which was kept whole, with the pages that it shares with another one."""
    if beside is None:
        return version_of(manifest, form=1)
    there, wanted = {item.id: item for item in beside.items()}, {item.id: item for item in manifest.items}
    changes: dict[str, Item | None] = dict.fromkeys(there.keys() - wanted.keys())
    changes |= {name: item for name, item in wanted.items() if there.get(name) != item}
    made = edited(beside, header_of(manifest), changes)
    return Version(made.pages, made.header, (made.tree_id, made.files_id), whole_id(manifest), 1)


def emptied(version: Version, name: str) -> Version:
    """A version that says the same under this name and has no items, in the same form."""
    header = replace(version.header, dataset_id=name)
    return Version(VersionPages(), header, (EMPTY, EMPTY), form=version.form)


def edited(base: Version, header: Manifest, changes: Mapping[str, Item | None]) -> Version:
    """A version with another header and these items in place of those that the base has; None takes one away.

    Costs what changes. A path that two items would have, or that would be a file and a folder, is refused.
    """
    pages = VersionPages(base.pages)
    old = base.find(changes)
    rows: dict[str, Row | None] = {}
    for name, item in changes.items():
        if item is None:
            if name in old:
                rows[name] = None
        elif old.get(name) != item:
            assert item.id == name
            rows[name], document = item_row(item)
            pages.held_items[rows[name][1]] = document  # type: ignore[index]
    if not rows:
        return Version(pages, header, (base.tree_id, base.files_id))
    forest = base.pages.items_forest()
    tree_id, _ = forest.put(base.tree_id, rows)
    files = base.pages.files_forest()
    files_id = _files(files, base, [old[name] for name in rows if name in old], [changes[n] for n in rows])
    pages.held_pages |= forest.made | files.made
    return Version(pages, header, (tree_id, files_id))


def _files(files: Forest, base: Version, old: list[Item], new: Iterable[Item | None]) -> str:
    """The tree of files, with those of these items in place of those."""
    left = {asset.path: item for item in old for asset in item.assets}
    owners: dict[str, Item] = {}
    put: dict[str, Row | None] = dict.fromkeys(left)
    for item in new:
        for asset in item.assets if item is not None else ():
            assert item is not None
            if asset.path in owners:
                raise PathConflict(f"{asset.path} belongs to {owners[asset.path].id} and to {item.id}.")
            owners[asset.path] = item
            put[asset.path] = (asset.path, asset.sha256, asset.size)
    taken = files.lookup(base.files_id, [path for path in owners if path not in left])
    for path in sorted(taken):
        raise PathConflict(f"{path} belongs to {_owner(base, path)} and to {owners[path].id}.")
    files_id, added = files.put(base.files_id, put)
    wrong, _ = clashes(files, base.files_id, files_id, sorted(added), 1)
    for folder, path in wrong:
        whose = owners[folder].id if folder in owners else _owner(base, folder)
        other = owners[path].id if path in owners else _owner(base, path)
        raise PathConflict(f"{folder} of {whose} is a folder of {other} ({path}).")
    return files_id


def _owner(version: Version, path: str) -> str:
    """Whose file it is: looked for only to say so."""
    owners = (item.id for item in version.items() if any(asset.path == path for asset in item.assets))
    return next(owners, "another item")


def _portions(wanted: Collection[T]) -> Iterator[list[T]]:
    rest = iter(wanted)
    while some := list(islice(rest, ROWS_MAX)):
        yield some


def _require(wanted: Iterable[str], found: Collection[str], what: str) -> None:
    for one in wanted:
        if one not in found:
            raise StoreCorrupt(f"The {what} {one[:12]} of a version is not in the database.")
