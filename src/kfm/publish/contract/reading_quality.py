"""Quality rules of a contract."""

from __future__ import annotations

from typing import Any, Literal

from kfm.publish.contract import vocabulary
from kfm.publish.contract.document import Part, custom_properties, nearest
from kfm.publish.contract.model import Operator, Rule
from kfm.publish.contract.patterns import compiled

_WARNINGS = {"info", "information", "warn", "warning"}


def read_rules(owner: Part, names: set[str], level: Literal["object", "property"]) -> tuple[Rule, ...]:
    """The rules that can be checked on bytes. A rule that would be skipped in silence is refused."""
    block = owner.get("quality")
    rules = [_read_rule(part, names, level) for part in block.parts()] if block else []
    return tuple(rule for rule in rules if rule is not None)


def _read_rule(part: Part, names: set[str], level: str) -> Rule | None:
    part.fields(vocabulary.QUALITY)
    kind = part.get("type")
    kind_text = kind.choice(["library", "text", "sql", "custom"]) if kind else "library"
    if kind_text == "text" or _ignored(part):
        return None
    if kind_text != "library":
        part.fail(
            f"{kind_text} rules are not run here; use a library metric, or say that it is checked elsewhere "
            "with the custom property kfmIgnore: true"
        )
    metric, is_old = _metric(part)
    if level == "property" and metric == "rowCount":
        part.fail("rowCount belongs to the object, not to a property")
    if level == "object" and metric not in ("rowCount", "duplicateValues"):
        part.fail(f"{metric} belongs to a property, not to the object")
    unit = part.get("unit")
    severity = part.get("severity")
    name = part.get("name")
    return Rule(
        metric=metric,
        operator=_operator(part, is_old),
        name=name.text() if name else None,
        percent=unit is not None and unit.choice(["rows", "percent"]) == "percent",
        warns_only=severity is not None and severity.text().lower() in _WARNINGS,
        **_arguments(part, metric, names, level),
    )


def _ignored(part: Part) -> bool:
    custom = custom_properties(part, vocabulary.KFM_QUALITY)
    return "kfmIgnore" in custom and custom["kfmIgnore"].flag()


def _metric(part: Part) -> tuple[Any, bool]:
    metric, rule = part.get("metric"), part.get("rule")
    if metric is not None:
        return metric.choice(vocabulary.METRICS), False
    if rule is None:
        part.fail(f"metric is missing: one of {', '.join(vocabulary.METRICS)}")
    word = vocabulary.OLD_RULES.get(rule.text())
    return word or rule.choice((*vocabulary.METRICS, *vocabulary.OLD_RULES)), True


def _operator(part: Part, is_old: bool) -> Operator:
    given = [word for word in vocabulary.OPERATORS if part.get(word) is not None]
    if not given and is_old:
        return Operator(name="mustBe", operand=(0,))
    if len(given) != 1:
        part.fail(f"needs exactly one of {', '.join(vocabulary.OPERATORS)}; it has {len(given)}")
    value = part.need(given[0])
    if not given[0].endswith("Between"):
        return Operator(name=given[0], operand=(value.number(),))
    pair = [item.number() for item in value.parts()]
    if len(pair) != 2 or pair[0] > pair[1]:
        value.fail("must be two numbers, the smaller one first")
    return Operator(name=given[0], operand=tuple(pair))


def _arguments(part: Part, metric: str, names: set[str], level: str) -> dict[str, Any]:
    block = part.get("arguments")
    allowed = {
        "missingValues": {"missingValues"},
        "invalidValues": {"validValues", "pattern"},
        "duplicateValues": {"properties"} if level == "object" else set(),
    }.get(metric, set())
    if block is not None:
        block.fields(allowed)
    found: dict[str, Any] = {}
    missing = block.get("missingValues") if block else None
    if missing is not None:
        found["missing_values"] = tuple(item.scalar() for item in missing.parts())
    valid = (block.get("validValues") if block else None) or part.get("validValues")
    if valid is not None:
        found["valid_values"] = tuple(item.scalar() for item in valid.parts())
    pattern = block.get("pattern") if block else None
    if pattern is not None:
        found["pattern"] = pattern.text()
        compiled(pattern)
    if metric == "invalidValues" and "valid_values" not in found and pattern is None:
        part.fail("invalidValues needs arguments: validValues, pattern, or both")
    if metric == "duplicateValues" and level == "object":
        found["properties"] = _columns(part, block, names)
    return found


def _columns(part: Part, block: Part | None, names: set[str]) -> tuple[str, ...]:
    listed = block.get("properties") if block else None
    if listed is None or not listed.parts():
        part.fail("duplicateValues of an object needs arguments.properties: the names of its columns")
    for item in listed.parts():
        if item.text() not in names:
            item.fail(f"there is no property {item.text()!r}{nearest(item.text(), names)}")
    return tuple(item.text() for item in listed.parts())
