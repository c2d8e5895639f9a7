"""The hash of a node's code: nothing that a person changes may leave a stale result behind."""

from __future__ import annotations

import importlib
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.model.errors import PipelineError
from kfm.pipelines.code_hash import CodeHashes
from kfm.pipelines.declaration import Pipeline
from kfm.runs.transform import load_function
from tests.workshop import Workshop, ran

HELPERS = """
    import functools
    LIMIT = 3
    def aid(): return LIMIT
    def beside(): return 0
    def passing_on(function):
        @functools.wraps(function)
        def wrapper(*args): return function(*args)
        return wrapper
"""


@pytest.fixture
def hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """The hash of `node` in a file of this text, beside helpers.py; each time as in a new process."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def hash_of(text: str, helpers: str = HELPERS) -> str:
        (tmp_path / "helpers.py").write_text(textwrap.dedent(helpers))
        (tmp_path / "flow.py").write_text(textwrap.dedent(text))
        sys.modules.pop("helpers", None)
        linecache.clearcache()
        importlib.invalidate_caches()
        node: Any = load_function(str(tmp_path / "flow.py"), "node")
        return CodeHashes().of(node)

    yield hash_of
    sys.modules.pop("helpers", None)


CHANGES = {
    "the last line of a text": ('def node():\n    return """a\n    one"""\n', "one", "two"),
    "a row of a table": ("def node():\n    return (\n        1,\n        2,\n    )\n", "2", "7"),
    "a default": ("def node(x={'one'}): return x\n", "one", "two"),
    "a set": ("KEEP = {'one', 'b'}\ndef node(): return KEEP\n", "one", "two"),
    "bytes": ("MAGIC = b'one'\ndef node(): return MAGIC\n", "one", "two"),
    "keys that are numbers": ("BY = {1: 'one'}\ndef node(): return BY\n", "one", "two"),
    "the order of a mapping": ("BY = dict(a=1, b=2)\ndef node(): return list(BY)\n", "a=1, b=2", "b=2, a=1"),
    "a date": ("import datetime as d\nDAY = d.date(2026, 1, 1)\ndef node(): return DAY\n", "1)", "2)"),
    "an expression": ("import re\nFIND = re.compile('one')\ndef node(): return FIND\n", "one", "two"),
    "a not-a-number": ("LIMIT = float('nan')\ndef node(): return LIMIT\n", "nan", "inf"),
    "a method": ("class M:\n    def go(self): return 'one'\ndef node(): return M().go()\n", "one", "two"),
    "a static method": (
        "class M:\n    @staticmethod\n    def go(): return 'one'\ndef node(): return M.go()\n",
        "one",
        "two",
    ),
    "a property": (
        "class M:\n    @property\n    def go(self): return 'one'\ndef node(): return M().go\n",
        "one",
        "two",
    ),
    "a base class": (
        "class B:\n    def go(self): return 'one'\nclass M(B): pass\ndef node(): return M().go()\n",
        "one",
        "two",
    ),
    "what a thing holds": (
        "class M:\n    def __init__(self, k): self.k = k\nIT = M('one')\ndef node(): return IT.k\n",
        "one",
        "two",
    ),
    "a field of a dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass M:\n    a: int = 1\ndef node(): return M().a\n",
        "= 1",
        "= 2",
    ),
    "a thing that is called": (
        "class M:\n    def __call__(self): return 'one'\nnode = M()\n",
        "one",
        "two",
    ),
    "a bound method": (
        "class M:\n    def go(self): return 'one'\nnode = M().go\n",
        "one",
        "two",
    ),
    "under a cache": ("import functools\n@functools.lru_cache\ndef node(): return 'one'\n", "one", "two"),
    "a cached helper": (
        "import functools\n@functools.cache\ndef aid(): return 'one'\ndef node(): return aid()\n",
        "one",
        "two",
    ),
    "a partial function": (
        "from functools import partial\ndef f(x): return x\nnode = partial(f, 'one')\n",
        "one",
        "two",
    ),
    "the function of a partial": (
        "from functools import partial\ndef f(x): return x, 'one'\nnode = partial(f, 1)\n",
        "one",
        "two",
    ),
    "under a decorator of another file": (
        "from helpers import passing_on\n@passing_on\ndef node(): return 'one'\n",
        "one",
        "two",
    ),
    "under a decorator of the library": (
        "from contextlib import contextmanager\n@contextmanager\ndef node(): yield 'one'\n",
        "one",
        "two",
    ),
    "an asynchronous generator that it uses": (
        "async def g():\n    yield 'one'\nasync def node(): return [x async for x in g()]\n",
        "one",
        "two",
    ),
    "a closure": (
        "def make(k):\n    def node(): return k\n    return node\nnode = make({'one'})\n",
        "one",
        "two",
    ),
    "a lambda": ("f = lambda: 'one'\ndef node(): return f()\n", "one", "two"),
    "a function of many kinds": (
        "from functools import singledispatch\n@singledispatch\ndef f(x): return 0\n@f.register(int)\n"
        "def _(x): return 'one'\ndef node(): return f(1)\n",
        "one",
        "two",
    ),
}


@pytest.mark.req("RS-3", "RS-4")
@pytest.mark.parametrize("what", CHANGES)
def test_whatever_a_node_uses_is_part_of_its_code(hashed: Callable[..., str], what: str) -> None:
    """Unchanged, the hash is the same each time; changed anywhere that matters, it is another."""
    text, old, new = CHANGES[what]
    first = hashed(text)
    assert hashed("# a line above\n" + text) == first
    assert hashed(text.replace(old, new)) != first


@pytest.mark.req("RS-3", "RS-4")
@pytest.mark.parametrize(
    "text",
    [
        "import helpers\ndef node(): return helpers.aid()\n",
        "from helpers import aid\ndef node(): return aid()\n",
        "def node():\n    import helpers\n    return helpers.aid()\n",
        "def node():\n    def inner():\n        from helpers import aid as a\n        return a()\n"
        "    return inner()\n",
        "import helpers\ndef node(): return getattr(helpers, 'a' + 'id')()\n",
        "import helpers\nclass M:\n    def go(self): return helpers.aid()\ndef node(): return M().go()\n",
    ],
)
def test_other_files_of_the_project_count(hashed: Callable[..., str], text: str) -> None:
    """A helper that was changed in another file, or a constant that the helper uses, runs the node again."""
    first = hashed(text)
    assert hashed(text) == first
    assert hashed(text, HELPERS.replace("return LIMIT", "return LIMIT + 1")) != first
    assert hashed(text, HELPERS.replace("LIMIT = 3", "LIMIT = 4")) != first


def test_what_it_does_not_use_does_not_count(hashed: Callable[..., str]) -> None:
    """Other functions, of this file or the other, are no reason to run again."""
    text = "import helpers\ndef node(): return helpers.aid()\ndef other(): return 1\n"
    first = hashed(text)
    assert hashed(text.replace("return 1", "return 2")) == first
    assert hashed(text, HELPERS.replace("return 0", "return 1")) == first


def test_things_that_hold_each_other_end(hashed: Callable[..., str]) -> None:
    """Circles of functions, classes and containers, and chains longer than Python recurses."""
    circle = "def f(): return g()\ndef g(): return f()\nL = []\nL.append(L)\ndef node(): return f, L\n"
    assert hashed(circle) == hashed(circle)
    chain = "".join(f"def f{n}(): return f{n + 1}()\n" for n in range(3000))
    long = chain + "def f3000(): return 'one'\ndef node(): return f0()\n"
    assert hashed(long) != hashed(long.replace("one", "two"))


def test_code_is_told_before_any_node_runs() -> None:
    """A node that alters a global does not alter what another's code was found to be."""
    shop = Workshop()
    seen: dict[str, int] = {}

    def pipeline() -> Pipeline:
        seen.clear()
        flow = Pipeline("global")

        @flow.node("a")
        def a() -> int:
            seen["a"] = 1
            return 1

        @flow.node("b")
        def b(a: int) -> int:
            return a + len(seen)

        return flow

    assert ran(shop.run(pipeline())) == ["a", "b"]
    assert ran(shop.run(pipeline())) == []


def test_a_file_that_can_not_be_loaded_is_named(hashed: Callable[..., str]) -> None:
    """The fixture loads as the command line does."""
    with pytest.raises(PipelineError, match=r"flow\.py"):
        hashed("def node(: pass\n")


def test_a_block_counts_what_it_uses(hashed: Callable[..., str]) -> None:
    """Around a block it is the function that the block stands in, and the helpers that it calls."""
    text = """\
        from kfm.pipelines.code_hash import enclosing_code
        import helpers
        def hashed(): return enclosing_code(2)
        def aid(): return helpers.aid()
        def block(): return hashed(), aid
        def node(): return 0
    """

    def of(helpers: str) -> str:
        hashed(text, helpers)
        block: Any = load_function(sys.modules["helpers"].__file__.replace("helpers", "flow"), "block")  # type: ignore[union-attr]
        digest: str = block()[0]
        return digest

    assert of(HELPERS) == of(HELPERS)
    assert of(HELPERS) != of(HELPERS.replace("LIMIT = 3", "LIMIT = 4"))
