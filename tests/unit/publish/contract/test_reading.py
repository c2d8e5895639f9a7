"""Reading contracts: what is understood, and how a mistake is explained."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.errors import ContractError
from kfm.publish.contract import load_contract
from kfm.publish.contract.expressions import Expression
from kfm.publish.contract.vocabulary import date_pattern
from tests.unit.publish.contract.staged import HEAD, contract_text, table

FULL = b"""\
apiVersion: v3.1.0
kind: DataContract
id: 53581432-6c55-4ba2-a65f-72344a91553a
name: streamflow
version: 1.1.0
status: active
domain: hydrology
dataProduct: water
tenant: kansas
tags: [water]
description: {purpose: Shows the flow, limitations: Provisional, usage: Free}
authoritativeDefinitions: [{url: "https://example.org", type: businessDefinition}]
servers: [{server: local, type: local, path: ./data}]
price: {priceAmount: 0, priceCurrency: USD, priceUnit: none}
support: [{channel: mail, url: "mailto:a@example.org"}]
team: {name: water, members: [{username: ann, role: steward}]}
roles: [{role: reader, access: read}]
contractCreatedTs: 2026-01-01T00:00:00Z
slaDefaultElement: streamflow.day
slaProperties:
  - {property: latency, value: 36, unit: h}
  - {property: retention, value: 3, unit: y, element: streamflow.day}
  - {property: generalAvailability, value: 2026-01-01T00:00:00Z}
schema:
  - name: streamflow
    physicalName: "*.csv"
    physicalType: file
    logicalType: object
    businessName: Streamflow
    dataGranularityDescription: One row per site and day
    tags: [daily]
    customProperties: [{property: owner, value: ann}]
    relationships: [{from: streamflow.site, to: sites.id}]
    properties:
      - name: site
        primaryKey: true
        primaryKeyPosition: 1
        logicalType: string
        physicalType: VARCHAR(15)
        classification: public
        examples: ["06891000"]
        criticalDataElement: true
        partitioned: false
        partitionKeyPosition: -1
        transformLogic: none
        transformSourceObjects: [raw]
      - name: day
        primaryKey: true
        primaryKeyPosition: 2
        logicalType: date
        logicalTypeOptions: {minimum: 2000-01-01, format: yyyy-MM-dd}
        quality:
          - {type: text, description: Checked by hand}
          - metric: nullValues
            mustBe: 0
            dimension: completeness
            severity: error
            businessImpact: operational
            schedule: 0 20 * * *
            scheduler: cron
"""


@pytest.mark.req("UPD-9")
def test_a_full_contract_is_read() -> None:
    """Everything that the standard knows is accepted; what bytes can prove is kept."""
    contract = load_contract(FULL, "c.odcs.yaml")
    (streamflow,) = contract.objects
    assert [prop.name for prop in streamflow.primary_key] == ["site", "day"]
    assert contract.version == "1.1.0"
    assert contract.freshness[0].age_ms_max == 36 * 3_600_000
    assert len(contract.freshness) == 1
    assert len(streamflow.properties[1].quality) == 1


def _with_line(text: str) -> bytes:
    head = "apiVersion: v3.1.0\nkind: DataContract\nid: c\nversion: '1'\nstatus: active\n"
    return (head + text).encode()


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "c.odcs.yaml:1: must be a mapping, not nothing"),
        (b"- 1", "c.odcs.yaml:1: must be a mapping, not a list"),
        (b"a: [1", "c.odcs.yaml:"),
        (b"\x00", "c.odcs.yaml:1:"),
        (b"\xff\xfe", "c.odcs.yaml:1:"),
        (b"a: 1\nb: 2\na: 3\n", "c.odcs.yaml:3: `a` is given twice; the first is on line 1"),
        (b"a: 1\n---\nb: 2\n", "c.odcs.yaml:2: a second document begins here"),
        (b"[" * 1500, "nested more than 64 levels deep"),
        (b"kind: DataContract\n", "apiVersion is missing"),
        (
            b"kind: DataContact\n",
            "c.odcs.yaml:1: kind 'DataContact' is not one of DataContract; did you mean 'DataContract'?",
        ),
        (b"kind: DataContract\napiVersion: v2.2.2\n", "c.odcs.yaml:2: apiVersion 'v2.2.2' is not supported"),
        (
            b"kind: DataContract\napiVersion: v3.1.0\nid: x\nversion: 1.10\nstatus: a\n",
            "c.odcs.yaml:4: version must be text, not a number; put it in quotes",
        ),
        (
            _with_line("schma: []\n"),
            "c.odcs.yaml:6: 'schma' is not a word of the standard; did you mean 'schema'?",
        ),
        (_with_line("schema: {}\n"), "c.odcs.yaml:6: schema must be a list"),
        (
            _with_line("schema:\n- name: t\n- name: t\n"),
            "c.odcs.yaml:8: schema[1] there is already an object called 't'",
        ),
        (
            _with_line("schema:\n- name: t\n  properties:\n  - nme: a\n"),
            "c.odcs.yaml:9: schema[0].properties[0] name is missing",
        ),
        (
            _with_line("schema:\n- name: t\n  properties:\n  - name: a\n    requird: true\n"),
            "c.odcs.yaml:10: schema[0].properties[0] 'requird' is not a word of the standard; "
            "did you mean 'required'?",
        ),
        (
            _with_line("schema:\n- name: t\n  properties:\n  - name: a\n    logicalType: strin\n"),
            "did you mean 'string'?",
        ),
        (
            _with_line(
                "schema:\n- name: t\n  properties:\n  - name: a\n    logicalType: integer\n"
                "    logicalTypeOptions: {maxLength: 3}\n"
            ),
            "c.odcs.yaml:11: schema[0].properties[0].logicalTypeOptions 'maxLength' is not a word",
        ),
        (
            _with_line("schema:\n- name: t\n  properties:\n  - name: a\n    required: yes\n"),
            "must be true or false",
        ),
        (
            _with_line("schema:\n- name: t\n  customProperties: [{property: kfmPonter, value: /a}]\n"),
            "did you mean 'kfmPointer'?",
        ),
        (_with_line("slaProperties: [{property: freshness, value: 1}]\n"), "freshness needs an element"),
    ],
)
def test_mistakes_name_file_line_and_nearest_word(text: bytes, message: str) -> None:
    """A contract that can't be read says where, what and what was probably meant."""
    with pytest.raises(ContractError) as raised:
        load_contract(text, "c.odcs.yaml")
    assert message in raised.value.message
    assert raised.value.exit_code == 2


def _rule(**rule: Any) -> bytes:
    return contract_text(table({"name": "a", "quality": [rule]}))


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_rule(metric="nullValues"), "needs exactly one of"),
        (_rule(metric="nullValues", mustBe=0, mustNotBe=1), "needs exactly one of"),
        (_rule(metric="nulValues", mustBe=0), "did you mean 'nullValues'?"),
        (_rule(metric="rowCount", mustBe=0), "rowCount belongs to the object"),
        (_rule(mustBe=0), "metric is missing"),
        (_rule(metric="nullValues", mustBeBetween=[3, 1]), "the smaller one first"),
        (_rule(metric="nullValues", mustBe="0"), "must be a number"),
        (_rule(metric="nullValues", mustBe=0, unit="persent"), "did you mean 'percent'?"),
        (_rule(metric="invalidValues", mustBe=0), "validValues, pattern, or both"),
        (_rule(metric="invalidValues", mustBe=0, arguments={"pattern": "("}), "is not a regular expression"),
        (_rule(metric="invalidValues", mustBe=0, arguments={"patern": "a"}), "did you mean 'pattern'?"),
        (_rule(type="sql", query="SELECT 1", mustBe=0), "sql rules are not run here"),
        (contract_text(table(quality=[{"metric": "nullValues", "mustBe": 0}])), "belongs to a property"),
        (contract_text(table(quality=[{"metric": "duplicateValues", "mustBe": 0}])), "arguments.properties"),
        (contract_text(table({"name": "a"}, {"name": "a"})), "already a property"),
        (
            contract_text(
                table({"name": "a", "logicalType": "string", "logicalTypeOptions": {"pattern": "["}})
            ),
            "regular expression",
        ),
        (
            contract_text(
                table({"name": "a", "logicalType": "date", "logicalTypeOptions": {"minimum": "soon"}})
            ),
            "'soon' is not a date",
        ),
        (
            contract_text(
                table({"name": "a", "logicalType": "date", "logicalTypeOptions": {"format": "QQQ"}})
            ),
            "'QQQ' is not supported",
        ),
        (
            contract_text(
                table(
                    {
                        "name": "a",
                        "logicalType": "timestamp",
                        "logicalTypeOptions": {"defaultTimezone": "Kansas"},
                    }
                )
            ),
            "not a time zone",
        ),
        (
            contract_text(
                table({"name": "a", "logicalType": "integer", "logicalTypeOptions": {"format": "i7"}})
            ),
            "'i7' is not one of i8",
        ),
        (
            contract_text(
                table({"name": "a", "logicalType": "number", "logicalTypeOptions": {"multipleOf": 0}})
            ),
            "greater than 0",
        ),
        (
            contract_text(
                table({"name": "a"}), slaProperties=[{"property": "freshness", "value": 1, "element": "b"}]
            ),
            "there is no element 'b'; there are: t.a",
        ),
        (
            contract_text(
                table({"name": "a"}), slaProperties=[{"property": "freshness", "value": 1, "element": "a"}]
            ),
            "not a date or a timestamp",
        ),
        (contract_text(table(custom={"kfmDelimiter": "::"})), "one character"),
        (contract_text(table(custom={"kfmPointer": "a"})), "begins with '/'"),
        (
            contract_text(
                table({"name": "a", "logicalType": "object", "properties": [{"name": "b", "unique": True}]})
            ),
            "are for columns",
        ),
    ],
)
def test_mistakes_in_rules_are_explained(text: bytes, message: str) -> None:
    """A rule that would check nothing, or something else, is refused when it is read."""
    with pytest.raises(ContractError) as raised:
        load_contract(text, "c")
    assert message in raised.value.message


def test_rules_checked_elsewhere_can_be_passed_over_openly() -> None:
    """A rule that is not run here has to say so."""
    rule = {
        "type": "custom",
        "engine": "soda",
        "implementation": "x",
        "customProperties": [{"property": "kfmIgnore", "value": True}],
    }
    contract = load_contract(contract_text(table({"name": "a", "quality": [rule]})), "c")
    assert contract.objects[0].properties[0].quality == ()


def test_aliases_do_not_explode() -> None:
    """A small file that unfolds to millions of values is refused quickly."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(ContractError, match="more than"):
        load_contract("\n".join(lines).encode(), "c")


def test_size_is_bounded() -> None:
    """A contract of megabytes is none."""
    with pytest.raises(ContractError, match="larger than"):
        load_contract(b"#" * 2_000_000, "c")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_any_bytes_are_a_contract_or_a_clear_error(data: bytes) -> None:
    """Garbage is a ContractError, never another one."""
    complaint = "c.odcs.yaml"
    try:
        load_contract(data, "c.odcs.yaml")
    except ContractError as error:
        complaint = error.message
    assert "c.odcs.yaml" in complaint


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
WORDS = [
    "name",
    "properties",
    "quality",
    "logicalType",
    "logicalTypeOptions",
    "physicalName",
    "enum",
    "items",
]


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(WORDS), json_values, max_size=5),
    st.dictionaries(st.sampled_from(["property", "value", "unit", "element"]), json_values, max_size=4),
)
def test_right_words_with_wrong_values_are_clear_errors(body: dict[str, Any], sla: dict[str, Any]) -> None:
    """Known words with nonsense behind them never end in a traceback."""
    text = msgspec.json.encode(
        {
            **HEAD,
            "schema": [{"name": "t", "properties": [{"name": "a", **body}], **body}],
            "slaProperties": [sla],
        }
    )
    complaint = "c"
    try:
        load_contract(text, "c")
    except ContractError as error:
        complaint = error.message
    assert "c" in complaint


def test_expressions_mean_what_they_mean_in_the_standard() -> None:
    """ECMA-262: `$` is only the very end, classes are ASCII, groups may be named, `\\/` is a slash."""
    assert Expression("^ab$").matches("ab")
    assert not Expression("^ab$").matches("ab\n")
    assert not Expression(r"^\d$").matches("٣")
    assert Expression("^(?<year>[0-9]{4})[$]$").matches("2026$")
    assert Expression(r"^a\/b\$$").matches("a/b$")


def test_date_patterns_quote_text() -> None:
    """Text in quotes stands for itself, two quotes for one."""
    assert date_pattern("yyyy'Z'MM''dd").fullmatch("2026Z01'31")
    for broken in ("yyyy'", "yyyy yyyy", "yy", "EEE"):
        with pytest.raises(ValueError, match=r"quote|twice|not supported"):
            date_pattern(broken)
