"""Who may speak: topics by their full ARN, and certificates only from the topic's own region."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from urllib.parse import urlsplit

from kfm.ingest.refusals import Refusal

_ARN = re.compile(
    r"arn:(aws|aws-cn|aws-us-gov):sns:([a-z]{2}(?:-[a-z]+){1,3}-\d):(\d{12}):([A-Za-z0-9_-]{1,256})\Z"
)
_CERTIFICATE = re.compile(r"/[0-9A-Za-z_-]{1,128}\.pem\Z")


def region_of(arn: str) -> tuple[str, str]:
    """(partition, region) of a topic."""
    match = _ARN.match(arn)
    if match is None:
        raise Refusal("TOPIC_NOT_ALLOWED", "It is not the ARN of a topic.")
    return match[1], match[2]


def check_topic(arn: str, allowed: Collection[str]) -> str:
    """The topic, if it may speak. By the full ARN: a name may exist in several accounts."""
    if arn not in allowed:
        region_of(arn)
        raise Refusal("TOPIC_NOT_ALLOWED")
    return arn


def certificate_host(arn: str) -> str:
    """The only host that keeps this topic's certificates."""
    partition, region = region_of(arn)
    return f"sns.{region}.amazonaws.com{'.cn' if partition == 'aws-cn' else ''}"


@lru_cache(maxsize=256)  # a topic's certificate changes once a year
def check_certificate(url: str, arn: str) -> str:
    """The address of a signing certificate, if a fetch of it would go to Amazon and nowhere else.

    Whoever fetches it must not follow redirects.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refusal("CERTIFICATE_HOST", "Its address is no address.") from None
    # Compared as written: what a parser would drop or fold must not be there at all.
    exact = f"https://{certificate_host(arn)}{parts.path}" == url and port is None
    if not exact or _CERTIFICATE.match(parts.path) is None:
        raise Refusal("CERTIFICATE_HOST")
    return url
