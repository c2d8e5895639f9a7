"""Which addresses may be connected to."""

from __future__ import annotations

import pytest

from kfm.model.addresses import Reach, allow_problem, is_public, parse_address, reach_of

pytestmark = pytest.mark.req("UPD-16")

PRIVATE = (
    "0.0.0.0 10.0.0.1 100.64.0.1 127.0.0.1 127.1.2.3 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.8 "
    "192.0.2.1 192.168.1.1 198.18.0.1 198.51.100.7 203.0.113.9 224.0.0.1 240.0.0.1 255.255.255.255 :: ::1 "
    "::ffff:127.0.0.1 ::ffff:7f00:1 64:ff9b::7f00:1 64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:7f00:1::1 "
    "3fff::1 fc00::1 fd12:3456::1 fe80::1 fe80::1%eth0 fec0::1 ff02::1"
).split()
PUBLIC = (
    "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 223.255.255.255 "
    "2606:4700::1111 2a00:1450:4001::1 ::ffff:8.8.8.8 64:ff9b::808:808"
).split()


@pytest.mark.parametrize("text", PRIVATE)
def test_what_is_inside_is_not_public(text: str) -> None:
    """Loopback, link-local, private, reserved and embedded addresses are not reached by chance."""
    address = parse_address(text)
    assert address is not None
    assert not is_public(address)
    assert not Reach().permits("data.example.org", text)


@pytest.mark.parametrize("text", PUBLIC)
def test_what_is_outside_is_public(text: str) -> None:
    """Every public address may be reached, by whatever name."""
    assert Reach().permits("data.example.org", text)


@pytest.mark.parametrize(
    ("host", "allow", "reached", "at", "permitted"),
    [
        ("127.0.0.1", (), "127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", (), "127.0.0.2", "127.0.0.2", False),
        ("127.0.0.1", (), "localhost", "127.0.0.1", True),  # the same address, by another name
        ("::1", (), "::1", "::1", True),
        ("localhost", (), "LOCALHOST.", "::1", True),
        ("minio", (), "minio", "10.0.0.5", True),
        ("store.internal", (), "store.internal", "10.0.0.5", True),
        ("data.example.org", (), "data.example.org", "10.0.0.5", False),
        ("data.example.org", (), "localhost", "127.0.0.1", False),
        ("data.example.org", ("data.example.org",), "data.example.org", "10.0.0.5", True),
        ("data.example.org", ("10.0.0.0/8",), "other.example.org", "10.0.0.5", True),
        ("data.example.org", ("10.0.0.0/8",), "other.example.org", "::ffff:10.0.0.5", True),
        ("data.example.org", ("10.0.0.0/8",), "other.example.org", "127.0.0.1", False),
        ("data.example.org", ("127.0.0.1",), "127.0.0.1", "127.0.0.1", True),
        ("data.example.org", ("fd00::/8",), "x", "fd00::1", True),
    ],
)
def test_a_private_address_is_reached_where_the_configuration_names_it(
    host: str, allow: tuple[str, ...], reached: str, at: str, permitted: bool
) -> None:
    """By the source's own address, by a name that is local by its form, or by `allow`; by nothing else."""
    assert reach_of(host, allow).permits(reached, at) is permitted


@pytest.mark.parametrize(
    "entry", ["gis.corp.example", "localhost", "10.0.0.0/8", "10.1.2.3", "fd00::/8", "::1"]
)
def test_hosts_and_ranges_can_be_allowed(entry: str) -> None:
    """A host, an address, a range."""
    assert allow_problem(entry) is None


@pytest.mark.parametrize(
    "entry", ["", "http://gis", "a b", "10.0.0.0/33", "gis:8080", "*.corp", "-x", "a..b"]
)
def test_anything_else_is_no_place(entry: str) -> None:
    """Addresses with scheme or port, patterns and nonsense are refused when the configuration is read."""
    assert allow_problem(entry) is not None
