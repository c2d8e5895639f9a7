"""The variables of OpenLineage's own clients mean to us what they mean to them."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.config.loader import OpenLineage, openlineage

CASES: dict[str, tuple[dict[str, str], OpenLineage]] = {
    "nothing": ({}, OpenLineage({})),
    "empty": ({"OPENLINEAGE_URL": ""}, OpenLineage({})),
    "an address": (
        {"OPENLINEAGE_URL": "http://c", "OPENLINEAGE_ENDPOINT": "in", "OPENLINEAGE_API_KEY": "k"},
        OpenLineage({"url": "http://c", "endpoint": "in", "auth": {"type": "api_key", "apiKey": "k"}}),
    ),
    "a transport": (
        {
            "OPENLINEAGE__TRANSPORT__TYPE": "http",
            "OPENLINEAGE__TRANSPORT__URL": "http://t",
            "OPENLINEAGE__TRANSPORT__TIMEOUT": "2.5",
            "OPENLINEAGE__TRANSPORT__AUTH__TYPE": "api_key",
            "OPENLINEAGE__TRANSPORT__AUTH__APIKEY": "k",
            "OPENLINEAGE_URL": "http://c",
        },
        OpenLineage({"url": "http://t", "timeout": 2.5, "auth": {"type": "api_key", "apikey": "k"}}),
    ),
    "JSON": (
        {"OPENLINEAGE__TRANSPORT__URL": "http://t", "OPENLINEAGE__TRANSPORT__AUTH": '{"type": "x"}'},
        OpenLineage({"url": "http://t", "auth": {"type": "x"}}),
    ),
    "a member of what is no object": (
        {"OPENLINEAGE__TRANSPORT__AUTH": "text", "OPENLINEAGE__TRANSPORT__AUTH__TYPE": "x"},
        OpenLineage({"auth": {"type": "x"}}),
    ),
    "disabled": (
        {"OPENLINEAGE_URL": "http://c", "OPENLINEAGE_DISABLED": " True "},
        OpenLineage({}, disabled=True),
    ),
    "noop": ({"OPENLINEAGE__TRANSPORT__TYPE": "noop"}, OpenLineage({}, disabled=True)),
    "another's transport": (
        {"OPENLINEAGE__TRANSPORT__TYPE": "kafka", "OPENLINEAGE__TRANSPORT__URL": "http://t"},
        OpenLineage({}, ignored="kafka"),
    ),
}


@pytest.mark.req("UPD-15")
@pytest.mark.parametrize("case", CASES)
def test_the_variables_are_honoured(case: str) -> None:
    """An address, a whole transport, `disabled`; a transport that is meant for others is ignored."""
    environ, expected = CASES[case]
    assert openlineage(environ) == expected


def test_the_client_takes_what_was_read() -> None:
    """A transport read from the environment is one that openlineage-python accepts."""
    pytest.importorskip("openlineage.client")
    from kfm.sinks.openlineage_http import HttpCollector
    from tests.stand_ins import FakeClock

    given: dict[str, Any] = openlineage(CASES["a transport"][0]).transport
    collector = HttpCollector(given, FakeClock(), timeout_ms=100)
    assert collector._transport.config.auth.get_bearer() == "Bearer k"
    assert collector._transport.timeout == 2.5
