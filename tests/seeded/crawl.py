"""Follows the links of the console as a person, from Home to where no link leads to a new page.

`python -m tests.seeded.crawl [PERSON …]` follows every link there is, which takes minutes; tests follow a few
of each kind.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from kfm.web.console.pages import PAGES
from tests.seeded.site import CONSOLE, Visitor, links, plain, site_of
from tests.world.keeping import copied_world
from tests.world.story import ROLES

# Parameters whose values are words of ours: each is another view. Of the others one value is like the next.
WORDS = ("tab", "view", "status", "state", "kind", "last", "outcome", "level")
_ROUTES = [(re.compile(re.sub(r"{\w+}", "[^/]+", page.path) + "$"), page.path) for page in PAGES]


def kind_of(address: str) -> tuple[str, ...]:
    """Pages of one kind are made by the same lines: the route, which parameters, and which of our words."""
    parts = urlsplit(address)
    path = parts.path.removeprefix(CONSOLE)
    route = next((route for pattern, route in _ROUTES if pattern.match(path)), path)
    if route.startswith("do/"):
        route = path
    query = [f"{name}={value}" if name in WORDS else name for name, value in parse_qsl(parts.query)]
    return (route, *sorted(query))


def crawl(visitor: Visitor, each_kind: int | None = None) -> Iterator[tuple[str, str, int, str]]:
    """Address, where it was found, status and text of every page that can be come to; `each_kind`: only so
    many of a kind."""
    waiting = [(CONSOLE, "")]
    known = {CONSOLE}
    seen: Counter[tuple[str, ...]] = Counter()
    while waiting:
        address, origin = waiting.pop(0)
        kind = kind_of(address)
        if each_kind is not None and seen[kind] >= each_kind:
            continue
        seen[kind] += 1
        answer = visitor.ask(address)
        yield address, origin, answer.status_code, answer.text
        for href, _ in links(answer.text):
            target = href.partition("#")[0]
            if target and target not in known and "refresh=" not in target:
                known.add(target)
                waiting.append((target, address))


def main(people: list[str]) -> int:
    broken = 0
    scratch = tempfile.TemporaryDirectory(prefix="kfm-crawl-")
    with scratch as place, site_of(copied_world(Path(place) / "world")) as site:
        for who in people or ROLES:
            found: Counter[str] = Counter()
            for address, origin, status, text in crawl(site.as_person(who)):
                found[kind_of(address)[0]] += 1
                if status != 200:
                    broken += 1
                    print(f"{who}: {status} {address} from {origin}: {plain(text)[:200]}", flush=True)
            print(f"{who}: {found.total()} pages: {dict(found.most_common())}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
