"""Contracts that are none: each must be refused with its file and line, never half understood."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from tests.simulation.kits.tables import TableKit

Document = dict[str, Any]


def _property(document: Document) -> Document:
    found: Document = document["schema"][0]["properties"][0]
    return found


def _custom(document: Document, name: str, value: Any) -> None:
    document["schema"][0].setdefault("customProperties", []).append({"property": name, "value": value})


def _set(**words: Any) -> Callable[[Document], None]:
    return lambda document: document.update(words)


def _column(**words: Any) -> Callable[[Document], None]:
    return lambda document: _property(document).update(words)


def _typed(kind: str, **options: Any) -> Callable[[Document], None]:
    return _column(logicalType=kind, logicalTypeOptions=options)


def _rule(**words: Any) -> Callable[[Document], None]:
    return _column(quality=[words])


def _table_rule(**words: Any) -> Callable[[Document], None]:
    return lambda document: document["schema"][0].update(quality=[words])


def _our(name: str, value: Any) -> Callable[[Document], None]:
    return lambda document: _custom(document, name, value)


def _sla(**words: Any) -> Callable[[Document], None]:
    return lambda document: document.update(slaProperties=[words])


def _deep(document: Document) -> None:
    inner: Document = {"name": "x", "logicalType": "object"}
    for _ in range(20):
        inner = {"name": "x", "logicalType": "object", "properties": [inner]}
    document["schema"][0]["properties"].append(inner)


CHANGES: tuple[Callable[[Document], None], ...] = (
    _set(kind="Contract"),
    _set(apiVersion="v2.2.0"),
    _set(apiVersion=3),
    _set(versoin="1"),
    _set(id=""),
    _set(status=None),
    _set(name="\ud800"),
    _set(schema={"a": 1}),
    _set(schema=["text"]),
    lambda document: document["schema"].append(copy.deepcopy(document["schema"][0])),
    lambda document: document["schema"][0]["properties"].append(dict(_property(document))),
    lambda document: document["schema"][0].update(logicalType="table"),
    _column(logicalType="text"),
    _column(requierd=True),
    _column(required="yes"),
    _column(logicalTypeOptions={"minimum": 1}, logicalType=None),
    _column(enum=[]),
    _column(enum=[[1]]),
    _column(items={"logicalType": "string"}),
    _column(properties=[{"name": "x"}], logicalType="string"),
    _column(primaryKey=True, primaryKeyPosition=0),
    _column(properties=[{"name": "x", "unique": True}], logicalType="object", logicalTypeOptions=None),
    _typed("string", minLength=-1),
    _typed("string", maxLength=1.5),
    _typed("string", pattern="(["),
    _typed("integer", format="i7"),
    _typed("number", multipleOf=0),
    _typed("number", minimum="low"),
    _typed("number", minimum=True),
    _typed("date", minimum="soon"),
    _typed("date", format="YYYY"),
    _typed("date", format="yyyy-yyyy"),
    _typed("date", format="yyyy'open"),
    _typed("timestamp", defaultTimezone="Mars/Base"),
    _typed("timestamp", timezone="yes"),
    _deep,
    _rule(metric="nullValues"),
    _rule(metric="nullValues", mustBe=1, mustNotBe=2),
    _rule(metric="nullValues", mustBeBetween=[3, 1]),
    _rule(metric="rowCount", mustBe=1),
    _rule(metric="invalidValues", mustBe=0),
    _rule(metric="nullValue", mustBe=0),
    _rule(rule="odd"),
    _rule(mustBe=0),
    _rule(type="sql", query="select 1"),
    _rule(metric="nullValues", mustBe=0, unit="cups"),
    _rule(metric="nullValues", mustBe=0, arguments={"pattern": "x"}),
    _table_rule(metric="nullValues", mustBe=0),
    _table_rule(metric="duplicateValues", mustBe=0),
    _table_rule(metric="duplicateValues", mustBe=0, arguments={"properties": ["cod"]}),
    _our("kfmFormat", "xml"),
    _our("kfmPointer", "data"),
    _our("kfmDelimiter", "ab"),
    _our("kfmOptional", "yes"),
    _our("kfmOdd", 1),
    lambda document: (_custom(document, "kfmOptional", True), _custom(document, "kfmOptional", True))[0],
    _sla(property="freshness", value=1),
    _sla(property="freshness", value=1, element="nothing"),
    _sla(property="freshness", value=-1, element="rows.seen"),
    _sla(property="freshness", value=1, element="code"),
    _sla(property="freshness", value=1, element="rows.code", unit="moons"),
)

TEXTS = (
    b"",
    b"- a\n- b\n",
    b"a: 1\na: 2\n",
    b"a: [1, 2\n",
    b"a: !!python/object:os.system x\n",
    b"\x00",
    b"a: &x [*x]\n",
    b"kind: DataContract\n---\nkind: DataContract\n",
    b"x: &a [1,2,3,4,5,6,7,8,9]\ny: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nz: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
    b"w: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\nv: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
)


def wrong_contract(rng: random.Random) -> bytes:
    """A good contract with one thing wrong, or no contract at all."""
    if rng.random() < 0.2:
        return rng.choice(TEXTS)
    document = json.loads(TableKit(rng, columns=1, form="csv").contract)
    document.pop("slaDefaultElement", None)
    rng.choice(CHANGES)(document)
    return json.dumps(document, indent=1).encode()
