"""Which addresses a request may connect to: public ones, and private ones that the configuration names."""

import re
from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from kfm.model.records import Record

IpAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# IANA's special-purpose registries, as tables: Python's own `is_global` differs between its versions.
_NOT_PUBLIC_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 "
        "192.0.2.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
    ).split()
)
_UNICAST_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(IPv6Network(text) for text in "2001::/23 2001:db8::/32 2002::/16 3fff::/20".split())
_NAT64 = IPv6Network("64:ff9b::/96")  # the last 32 bits are the IPv4 address that is reached through it
# Names that no one outside can register, and so point elsewhere: RFC 6761, 6762, 8375; ICANN for .internal.
_LOCAL_ENDINGS = (".localhost", ".local", ".internal", ".home.arpa")
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*", re.ASCII)


class Reach(Record, frozen=True):
    """What may be connected to beside public addresses."""

    hosts: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()

    def permits(self, host: str, address: str) -> bool:
        """May `host` be reached at this address, to which its name was resolved?"""
        found = parse_address(address)
        if found is None:
            return False
        return (
            is_public(found)
            or plain_host(host) in self.hosts
            or any(found in ip_network(network) for network in self.networks)
        )


def reach_of(host: str, allow: Collection[str] = ()) -> Reach:
    """Of a request to `host`, as the configuration has it.

    An address, or a name that is local by its form, says itself that it is private. Where any other name
    leads is said by a name server, which may say something else tomorrow: it needs `allow`.
    """
    entries = [*allow, host] if parse_address(host) is not None or is_local_name(host) else list(allow)
    networks = {str(network) for entry in entries if (network := _network(entry)) is not None}
    return Reach(
        hosts=frozenset(plain_host(entry) for entry in entries if _network(entry) is None),
        networks=frozenset(networks),
    )


def is_public(address: IpAddress) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _UNICAST_6 and not any(address in network for network in _NOT_PUBLIC_6)


def is_local_name(host: str) -> bool:
    name = plain_host(host)
    return "." not in name or name.endswith(_LOCAL_ENDINGS)


def parse_address(text: str) -> IpAddress | None:
    """An address by its digits, an IPv4 address inside an IPv6 one as that; None for a name."""
    try:
        found = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return found.ipv4_mapped
        if found in _NAT64:
            return IPv4Address(int(found) & 0xFFFF_FFFF)
    return found


def plain_host(host: str) -> str:
    return host.lower().rstrip(".")


def allow_problem(entry: str) -> str | None:
    """What is wrong with one entry of `allow`."""
    if _network(entry) is not None or _HOST.fullmatch(entry.lower()):
        return None
    return f"`{entry[:60]}` is no host, address or range such as `10.1.0.0/16`"


def _network(entry: str) -> Network | None:
    address = parse_address(entry)
    try:
        return ip_network(entry if address is None else str(address), strict=False)
    except ValueError:
        return None
