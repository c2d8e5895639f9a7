"""Keys that were never written: made from a rule's own pattern."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Any

from hypothesis import strategies as st

from kfm.nodd.grammar import Dataset, Rule
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.patterns import KINDS

# Few values, so that two keys often differ in one field only: there collisions would hide.
_SAMPLES = {
    "yyyy": ("2024", "2023"),
    "mm": ("01", "12"),
    "dd": ("01", "02"),
    "hh": ("00", "06", "23"),
    "doy": ("001", "366"),
    "ymd": ("20240101", "20240102", "20241231"),
    "ymdh": ("2024010100", "2024010123"),
    "ymdhm": ("202401010000", "202412312359"),
    "hm": ("0000", "2359"),
    "hms": ("000000", "000001", "235959"),
    "hmst": ("0000000", "2359599"),
    "day_scan": ("20240010000000", "20243662359599"),
    "date_scan": ("202401010000000", "202412312359599"),
    "d2": ("00", "01"),
    "d3": ("000", "001"),
    "digits": ("1", "11"),
    "hours": ("00", "000", "06"),
    "lower": ("a", "f", "wrf"),
    "word": ("A", "a-b", "A1"),
    "system": ("a", "a_b"),
    "name": ("a", "a.b", "f00", "a_f000.x"),
    "text": ("a", "a=b"),
    "path": ("a", "a/b", "by=1/b"),
}
_BY_REGEX = {KINDS[name]: values for name, values in _SAMPLES.items()}
_BY_NAME = {
    "sat": ("G16", "G18", "npp", "j01", "j02"),
    "product": (
        *("ABI-L1b-RadC", "ABI-L2-CMIPM", "ABI-L2-CMIPM1", "ABI-L2-CMIPM2", "ABI-C", "GLM-L2-LCFA", "GLM-A"),
        *(
            "SUVI-L1b-Fe094",
            "SUVI-A",
            "SVM05",
            "JRR-AOD",
            "JRR_v1r1",
            "N0S",
            "AW",
            "wrfsfc",
            "awip12",
            "a_f01",
        ),
    ),
    "env": ("OR", "IT"),
    "version": ("V06", "V03", "v1r1", "v2r10"),
    "since": ("20240101000000",),
    "until": ("20240101005959",),
    "usaf": ("724500", "A00001"),
    "station": ("USC00143954", "ASN00002022"),
}


@cache
def field_values(name: str, regex: str) -> st.SearchStrategy[str]:
    if regex in _BY_REGEX:
        return st.sampled_from(_BY_REGEX[regex])
    fitting = [value for value in _BY_NAME.get(name, ()) if re.fullmatch(regex, value)]
    if fitting:
        return st.sampled_from(fitting)
    return st.from_regex(re.compile(regex, re.ASCII), fullmatch=True).filter(lambda text: len(text) < 12)


@st.composite
def fields_of(draw: Any, rule: Rule) -> dict[str, str | None]:
    """Any fields that the rule's pattern could have; options now and then left out."""
    kinds = rule.pattern.kinds
    fields: dict[str, str | None] = {name: draw(field_values(name, regex)) for name, regex in kinds.items()}
    for name in sorted(rule.pattern.optional):
        if draw(st.integers(0, 3)) == 0:
            fields[name] = None
    return fields


@st.composite
def alike(draw: Any, dataset: Dataset) -> list[str]:
    """Keys of one rule that lie where they belong, and others that differ from the first in one field."""
    rule = draw(st.sampled_from(dataset.rules))
    fields = draw(fields_of(rule))
    if rule.folders is not None:
        with suppress(RecordRefusal):
            fields |= rule.folders(fields, rule.times(fields))
    keys = [rule.pattern.render(fields)]
    for name, regex in rule.pattern.kinds.items():
        other = fields | {name: draw(field_values(name, regex))}
        changes = [other, other | {name: None}] if name in rule.pattern.optional else [other]
        for changed in changes:
            keys.append(rule.pattern.render(changed))
            if rule.folders is not None:
                with suppress(RecordRefusal):
                    keys.append(rule.pattern.render(changed | rule.folders(changed, rule.times(changed))))
    keys += [key.rpartition("/")[2] for key in keys[:2]]
    return [key + suffix for key in dict.fromkeys(keys) for suffix in ("", *dataset.sidecars)]
