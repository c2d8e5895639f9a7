"""Trees: an ordered map from path to entry, cut into bodies that are named by their hash.

Where a body ends is decided by the hash of a path alone: about every 64th path closes the body that it
stands in, about every 64th of those closes the body above, and so on. So the same entries make the same
tree whatever happened before, and a change of one entry makes one new body on each level. Folders are
not stored: a run that fills 100,000 folders with one file each writes no more than one that fills one.
How many a body has is the forest's own choice, for all of its trees.

A body is the JSON text `[level, rows]`; a leaf's rows are `[path, sha256, size]`, those above it
`[last path, tree id, number of entries]`. Rows stand in the order of Unicode code points. A forest that
folds has a fourth column: facts of one entry, and above that what they come to.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import Any, NamedTuple

from kfm.model.branches import PathChange, TreeEntry
from kfm.model.errors import StoreCorrupt

SPREAD = 63  # a mask of the bits of a byte: one path in 64 closes a body
NODES_KEPT_MAX = 4096  # decoded bodies that are remembered

Row = Sequence[Any]  # [path, sha256, size] or [last path, tree id, count]; with facts where the forest folds
Load = Callable[[str], str]
Fold = Callable[[Iterable[Any]], Any]  # facts of some entries → of all of them, in whatever portions


class TreeNode(NamedTuple):
    level: int
    rows: list[Row]

    @property
    def entries(self) -> int:
        return len(self.rows) if self.level == 0 else sum(row[2] for row in self.rows)


def encode(level: int, rows: Sequence[Row]) -> tuple[str, str]:
    """(tree id, body)."""
    import orjson  # late: a command that only looks at heads needs none of it

    body = orjson.dumps((level, rows))
    return sha256(body).hexdigest(), body.decode()


def decode(tree_id: str, body: str) -> TreeNode:
    """The body, if it is the one that has this id."""
    if sha256(body.encode()).hexdigest() != tree_id:
        raise StoreCorrupt(f"The tree {tree_id[:12]} is not what was stored under this id.")
    import orjson

    return TreeNode(*orjson.loads(body))


EMPTY = sha256(b"[0,[]]").hexdigest()  # the id of the tree without entries


def height(path: str, spread: int = SPREAD) -> int:
    """How many bodies, from the leaf upwards, end with this path."""
    found = 0
    for byte in sha256(path.encode()).digest():
        if byte & spread:
            break
        found += 1
    return found


class Forest:
    """The bodies that there are, and those that were made here."""

    def __init__(
        self,
        load: Load,
        known: dict[str, TreeNode] | None = None,
        *,
        kept_max: int = NODES_KEPT_MAX,
        spread: int = SPREAD,
        fold: Fold | None = None,
    ) -> None:
        """`known`: decoded bodies that outlive this forest; `spread`: the mask by which one ends."""
        self._load = load
        self._kept_max = kept_max
        self.spread = spread
        self._fold = fold
        self._known: dict[str, TreeNode] = {} if known is None else known
        self.made: dict[str, str] = {}  # id → body, not stored yet

    def node(self, tree_id: str) -> TreeNode:
        if tree_id == EMPTY:
            return TreeNode(0, [])
        known = self._known.get(tree_id)
        if known is None:
            known = decode(tree_id, self.made.get(tree_id) or self._load(tree_id))
            if len(self._known) >= self._kept_max:
                self._known = {}
            self._known[tree_id] = known
        return known

    def make(self, level: int, rows: list[Row]) -> Row:
        """Remember a body; the row that stands for it one level up."""
        tree_id, body = encode(level, rows)
        self.made[tree_id] = body
        return self._row(tree_id, TreeNode(level, rows))

    def top(self, tree_id: str) -> list[Row]:
        """The one row that stands for a whole tree; none for the empty one."""
        node = self.node(tree_id)
        return [self._row(tree_id, node)] if node.rows else []

    def _row(self, tree_id: str, node: TreeNode) -> Row:
        row = (node.rows[-1][0], tree_id, node.entries)
        return row if self._fold is None else (*row, self._fold(each[3] for each in node.rows))

    # --- reading ---------------------------------------------------------------------

    def entry(self, tree_id: str, path: str) -> TreeEntry | None:
        row = next(self.rows(tree_id, path), None)
        return _entry(row) if row is not None and row[0] == path else None

    def rows(self, tree_id: str, start: str = "") -> Iterator[Row]:
        """Leaf rows in order, from the first path that is not before `start`."""
        node = self.node(tree_id)
        first = bisect_left(node.rows, start, key=_path) if start else 0
        if node.level == 0:
            yield from node.rows[first:]
            return
        for number in range(first, len(node.rows)):
            yield from self.rows(node.rows[number][1], start if number == first else "")

    def entries(self, tree_id: str, prefix: str = "") -> Iterator[tuple[str, TreeEntry]]:
        """In the order of paths, those that begin with the prefix."""
        for row in self.rows(tree_id, prefix):
            if not row[0].startswith(prefix):
                return
            yield row[0], _entry(row)

    def lookup(self, tree_id: str, paths: Iterable[str]) -> dict[str, TreeEntry]:
        """Those of the paths that are there."""
        wanted = sorted(set(paths))
        found = zip(wanted, self.seek(tree_id, wanted), strict=True)
        return {path: _entry(row) for path, row in found if row is not None and row[0] == path}

    def seek(self, tree_id: str, paths: Sequence[str]) -> Iterator[Row | None]:
        """For each path, in order, the first row that is not before it."""
        leaf: list[Row] = []
        for path in paths:
            if not leaf or leaf[-1][0] < path:
                ref = self.find(tree_id, 0, path)
                leaf = self.node(ref[1]).rows if ref is not None else []
            yield leaf[bisect_left(leaf, path, key=_path)] if leaf else None

    def find(self, tree_id: str, level: int, path: str, *, beyond: bool = False) -> Row | None:
        """The row of the body on this level in which a path belongs (or what follows it, if `beyond`)."""
        cut = bisect_right if beyond else bisect_left
        rows = self.top(tree_id)
        above = self.node(tree_id).level
        while True:
            at = cut(rows, path, key=_path)
            if at == len(rows):
                return None
            if above == level:
                return rows[at]
            rows, above = self.node(rows[at][1]).rows, above - 1

    def folded(self, tree_id: str, prefix: str = "") -> Any:
        """The facts of the entries that begin so. Of what lies inside the span, the rows above are enough."""
        assert self._fold is not None, "this forest keeps no facts"
        return self._fold(self._facts(tree_id, prefix))

    def _facts(self, tree_id: str, prefix: str) -> Iterator[Any]:
        node = self.node(tree_id)
        first = bisect_left(node.rows, prefix, key=_path) if prefix else 0
        whole = not prefix  # the first body may begin before the span
        for row in node.rows[first:]:
            inside = row[0].startswith(prefix)
            if inside and (whole or node.level == 0):
                yield row[3]
            elif node.level:
                yield from self._facts(row[1], prefix)
            if not inside:
                return
            whole = True

    def last(self, tree_id: str, level: int) -> Row | None:
        rows = self.top(tree_id)
        if not rows:
            return None
        for _ in range(self.node(tree_id).level - level):
            rows = self.node(rows[-1][1]).rows
        return rows[-1]

    def diff(self, old: str, new: str, prefix: str = "") -> Iterator[PathChange]:
        """The paths that differ, in order. What both trees share is not read."""
        if old == new:
            return
        sides, levels = [self.top(old), self.top(new)], [self.node(old).level, self.node(new).level]
        while True:
            if levels[0] == levels[1]:
                shared = {row[1] for row in sides[0]} & {row[1] for row in sides[1]}
                sides = [[row for row in side if row[1] not in shared] for side in sides]
                if levels[0] == 0:
                    break
            higher = [level == max(levels) for level in levels]
            sides = [self._below(s, prefix) if up else s for s, up in zip(sides, higher, strict=True)]
            levels = [level - up for level, up in zip(levels, higher, strict=True)]
        yield from _joined(*(self._leaves(side, prefix) for side in sides))

    def _below(self, refs: Iterable[Row], prefix: str) -> list[Row]:
        rows = list(chain.from_iterable(self.node(ref[1]).rows for ref in refs))
        if not prefix:
            return rows
        first = bisect_left(rows, prefix, key=_path)
        end = first
        while end < len(rows) and (rows[end][0] <= prefix or rows[end][0].startswith(prefix)):
            end += 1
        return rows[first : end + 1]  # the last one may begin with it and end after

    def _leaves(self, refs: Iterable[Row], prefix: str) -> Iterator[Row]:
        for ref in refs:
            for row in self.node(ref[1]).rows:
                if row[0].startswith(prefix):
                    yield row

    # --- changing --------------------------------------------------------------------

    def update(self, tree_id: str, changes: Mapping[str, TreeEntry | None]) -> tuple[str, list[str]]:
        """The tree with these changes, and the paths that it did not have before. Bodies are in `made`."""
        return self.put(
            tree_id,
            {
                path: None if entry is None else (path, entry.sha256, entry.size)
                for path, entry in changes.items()
            },
        )

    def put(self, tree_id: str, rows_put: Mapping[str, Row | None]) -> tuple[str, list[str]]:
        """As `update`, with whole rows of leaves; None takes one away."""
        pending: dict[str, Row | None] = dict(rows_put)
        added: list[str] = []
        top = self.node(tree_id).level
        for level in range(top + 1):
            pending = _Pass(self, tree_id, level, added).run(pending)
            if not pending:
                return tree_id, []
        rows = _merged(self.top(tree_id), sorted(pending.items()))
        level = top
        while len(rows) > 1:
            level += 1
            rows = [self.make(level, piece) for piece in _cut(level, rows, self.spread)]
        return self._lowest(rows), added

    def _lowest(self, rows: list[Row]) -> str:
        """A body above a single other one says nothing: the other one is the tree."""
        if not rows:
            return EMPTY
        tree_id: str = rows[0][1]
        while (node := self.node(tree_id)).level > 0 and len(node.rows) == 1:
            self.made.pop(tree_id, None)
            tree_id = node.rows[0][1]
        return tree_id

    def reach(self, tree_id: str, seen: set[str]) -> None:
        """Add every body of a tree. What was seen before is not read again, and leaves are not at all."""
        waiting = [tree_id]
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            node = self.node(one)
            below = [row[1] for row in node.rows] if node.level else []
            if node.level == 1:
                seen.update(below)
            else:
                waiting += below


class _Pass:
    """One level of an update: changes to its rows come in, changes to the rows above go out."""

    def __init__(self, forest: Forest, tree_id: str, level: int, added: list[str]) -> None:
        self._forest, self._tree_id, self._level, self._added = forest, tree_id, level, added
        self._spread = forest.spread
        self._taken: dict[str, Row] = {}  # last path → row of each body that is replaced
        self._out: dict[str, Row | None] = {}

    def run(self, pending: Mapping[str, Row | None]) -> dict[str, Row | None]:
        waiting = sorted(pending.items())
        at = 0
        while at < len(waiting):
            ref = self._forest.find(self._tree_id, self._level, waiting[at][0])
            if ref is None:
                ref = self._open_end()
                at = self._rewrite(ref, waiting, at, len(waiting))
            else:
                at = self._rewrite(ref, waiting, at, bisect_right(waiting, ref[0], key=_path))
        return {last: row for last, row in self._out.items() if not self._is_old(last, row)}

    def _open_end(self) -> Row | None:
        """The last body, if what comes after its last path belongs into it."""
        last = self._forest.last(self._tree_id, self._level)
        if last is None or last[0] in self._taken or height(last[0], self._spread) > self._level:
            return None
        return last

    def _rewrite(self, ref: Row | None, waiting: list[tuple[str, Row | None]], start: int, end: int) -> int:
        """Make one body anew, with those after it that its end no longer holds apart; how far it came."""
        rows = self._replace(ref, waiting[start:end])
        while rows and height(rows[-1][0], self._spread) <= self._level and ref is not None:
            following = self._forest.find(self._tree_id, self._level, ref[0], beyond=True)
            upto = len(waiting) if following is None else bisect_right(waiting, following[0], key=_path)
            if following is None and end == upto:
                break
            rows += self._replace(following, waiting[end:upto])
            ref, end = following, upto
        for piece in _cut(self._level, rows, self._spread):
            row = self._forest.make(self._level, piece)
            self._out[row[0]] = row
        return end

    def _replace(self, ref: Row | None, changes: Sequence[tuple[str, Row | None]]) -> list[Row]:
        old: list[Row] = []
        if ref is not None:
            self._taken[ref[0]] = ref
            self._out.setdefault(ref[0], None)
            old = self._forest.node(ref[1]).rows
        if self._level == 0:
            here = {row[0] for row in old}
            self._added += [path for path, row in changes if row is not None and path not in here]
        return _merged(old, changes)

    def _is_old(self, last: str, row: Row | None) -> bool:
        known = self._taken.get(last)
        return known is not None and row is not None and row[1] == known[1]


def clashes(
    forest: Forest, before: str, tree_id: str, added: Sequence[str], limit: int
) -> tuple[list[tuple[str, str]], int]:
    """(path, the other one) for each new path that would be a file and a folder at once, and their number.

    `added` are in order; only they can bring a clash about.
    """
    new, folders = set(added), set[str]()
    for path in added:
        cut = path.rfind("/")
        while cut > 0 and (folder := path[:cut]) not in folders:
            folders.add(folder)
            cut = folder.rfind("/")
    wrong = folders & new
    if before != EMPTY:
        wrong |= forest.lookup(tree_id, folders).keys()
        starts = sorted(f"{path}/" for path in added)
        for start, row in zip(starts, forest.seek(tree_id, starts), strict=True):
            if row is not None and row[0].startswith(start):
                wrong.add(start[:-1])
    found = []
    for path in sorted(wrong)[:limit]:
        inside = next(forest.entries(tree_id, f"{path}/"), None)
        assert inside is not None, "a folder is there because of what is in it"
        found.append((path, inside[0]))
    return found, len(wrong)


def _path(row: Row) -> str:
    return row[0]  # type: ignore[no-any-return]


def _entry(row: Row) -> TreeEntry:
    return TreeEntry(sha256=row[1], size=row[2])


def _merged(rows: Sequence[Row], changes: Iterable[tuple[str, Row | None]]) -> list[Row]:
    """The rows with the changes, both in order."""
    if not rows:
        return [row for _, row in changes if row is not None]
    every = {row[0]: row for row in rows}
    for path, row in changes:
        if row is None:
            every.pop(path, None)
        else:
            every[path] = row
    return [every[path] for path in sorted(every)]


def _cut(level: int, rows: list[Row], spread: int) -> Iterator[list[Row]]:
    """Pieces that end where their last path says so."""
    start = 0
    if level == 0:  # the many: without a call for each
        digests = (sha256(row[0].encode()).digest()[0] for row in rows)
        ends = [number for number, byte in enumerate(digests, 1) if not byte & spread]
    else:
        ends = [number for number, row in enumerate(rows, 1) if height(row[0], spread) > level]
    for end in ends:
        yield rows[start:end]
        start = end
    if start < len(rows):
        yield rows[start:]


def _joined(old: Iterator[Row], new: Iterator[Row]) -> Iterator[PathChange]:
    """Two ordered sequences side by side; only what differs."""
    left, right = next(old, None), next(new, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            yield PathChange(path=left[0], before=_entry(left), after=None)
            left = next(old, None)
        elif left is None or right[0] < left[0]:
            yield PathChange(path=right[0], before=None, after=_entry(right))
            right = next(new, None)
        else:
            if left[1] != right[1] or left[2] != right[2]:
                yield PathChange(path=left[0], before=_entry(left), after=_entry(right))
            left, right = next(old, None), next(new, None)
