"""Announcements in the mix of a day of NODD: keys as its datasets write them, none of them real.

A day has about four million: radars make most of them, satellites a third, and the rest are models, whose
files come with an index each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import md5
from itertools import accumulate

import orjson

from bench.ingest_feed import TOPIC
from bench.ingest_references import START_MS, object_key
from kfm.model.times import rfc3339
from kfm.ports import QueueMessage

DAY_UNITS = 4_000_000
DAY_MS = 86_400_000
SITES = ("KTLX", "KFWS", "KAMX", "KLOT", "KMUX", "KHGX", "KOKX", "KATX", "KDMX", "KBOX")
PRODUCTS = ("N0B", "N0G", "N0S", "DAA", "DPR", "HHC", "NST", "NVW")
FIELDS = ("MergedReflectivityQC_00.50", "PrecipRate_00.00", "RadarOnly_QPE_01H_00.00", "MESH_00.50")
GRANULES = ("GATMO", "SVM05", "SVI01", "GDNBO")


def at_of(number: int) -> int:
    return START_MS + number * DAY_MS // DAY_UNITS


def _text(form: str, at_ms: int) -> str:
    return time.strftime(form, time.gmtime(at_ms // 1000))


def _abi(number: int) -> tuple[str, str]:
    return "noaa-goes19", object_key(number)


def _level3(number: int) -> tuple[str, str]:
    site, product = SITES[number % 10][1:], PRODUCTS[number // 10 % 8]
    return "unidata-nexrad-level3", f"{site}_{product}_{_text('%Y_%m_%d_%H_%M_%S', START_MS + number * 80)}"


def _level2(number: int) -> tuple[str, str]:
    site, at_ms = SITES[number % 10], START_MS + number * 1_100
    stamp = _text("%Y%m%d_%H%M%S", at_ms)
    return "unidata-nexrad-level2", f"{_text('%Y/%m/%d', at_ms)}/{site}/{site}{stamp}_V06"


def _mrms(number: int) -> tuple[str, str]:
    field, at_ms = FIELDS[number % 4], START_MS + number * 1_000
    stamp = _text("%Y%m%d-%H%M%S", at_ms)
    return "noaa-mrms-pds", f"CONUS/{field}/{stamp[:8]}/MRMS_{field}_{stamp}.grib2.gz"


def _jpss(number: int) -> tuple[str, str]:
    at_ms = START_MS + number // 4 * 1_000
    start, end = _text("d%Y%m%d_t%H%M%S", at_ms), _text("%H%M%S", at_ms + 85_000)
    made = _text("%Y%m%d%H%M%S", at_ms + 3_600_000)
    orbit, part = f"b{number % 99_999:05}", f"{number % 10**6:06}"
    name = f"{GRANULES[number % 4]}_j01_{start}0_e{end}0_{orbit}_c{made}{part}_oeac_ops.h5"
    return "noaa-nesdis-n20-pds", name


def _gefs(number: int) -> tuple[str, str]:
    file, index = divmod(number, 2)
    hour, rest = file % 100 * 3, file // 100
    cycle_ms = START_MS + rest // 30 * 21_600_000
    folder = _text("gefs.%Y%m%d/%H", cycle_ms)
    key = f"{folder}/gep{rest % 30 + 1:02}.t{folder[-2:]}z.pgrb2f{hour:03}"
    return "noaa-gefs-pds", key + (".idx" if index else "")


def _hrrr(number: int) -> tuple[str, str]:
    file, index = divmod(number, 2)
    at_ms = START_MS + file // 49 * 3_600_000
    key = f"{_text('hrrr.%Y%m%d/conus/hrrr.t%H', at_ms)}z.wrfsfcf{file % 49:02}.grib2"
    return "noaa-hrrr-bdp-pds", key + (".idx" if index else "")


def _gfs(number: int) -> tuple[str, str]:
    file, index = divmod(number, 2)
    cycle_ms = START_MS + file // 209 * 21_600_000
    folder = _text("gfs.%Y%m%d/%H", cycle_ms)
    key = f"{folder}/atmos/gfs.t{folder[-2:]}z.pgrb2.0p25.f{file % 209:03}"
    return "noaa-gfs-bdp-pds", key + (".idx" if index else "")


# How many of a hundred; the last number of each share.
SHARES: tuple[tuple[int, Callable[[int], tuple[str, str]]], ...] = (
    (34, _abi),
    (30, _level3),
    (6, _level2),
    (8, _mrms),
    (10, _jpss),
    (6, _gefs),
    (4, _hrrr),
    (2, _gfs),
)
_ENDS = tuple(accumulate(share for share, _ in SHARES))
assert _ENDS[-1] == 100


def place_of(number: int) -> tuple[str, str]:
    """Bucket and key of the so-and-so-manieth object of the feed; no two are the same."""
    turn, slot = divmod(number, 100)
    slot = slot * 37 % 100  # kinds are mixed within a hundred
    begin = 0
    for end, (share, made) in zip(_ENDS, SHARES, strict=True):
        if slot < end:
            return made(turn * share + slot - begin)
        begin = end
    raise AssertionError(slot)


def announcement(number: int) -> bytes:
    """A message of SQS, as SNS and S3 write it."""
    bucket, key = place_of(number)
    at_ms, digest = at_of(number), md5(f"{bucket}/{key}".encode()).hexdigest()
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": rfc3339(at_ms),
        "eventName": "ObjectCreated:Put",
        "userIdentity": {"principalId": "AWS:AIDAJIC4U5R2TXT7T3MI6"},
        "requestParameters": {"sourceIPAddress": "192.0.2.17"},
        "responseElements": {"x-amz-request-id": f"{number:016X}", "x-amz-id-2": "4CFJrIHl+bAyhktScnPO98mk"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "MjQ5OTllZTctZGNmZC00NjZkLThlNDctYmQxZTQzNDViZGU0",
            "bucket": {
                "name": bucket,
                "ownerIdentity": {"principalId": "A2AJV00K47QOI1"},
                "arn": f"arn:aws:s3:::{bucket}",
            },
            "object": {
                "key": key,
                "size": 1_000_000 + int(digest[:6], 16),
                "eTag": digest,
                "sequencer": f"00{at_ms:012X}{digest[:4].upper()}",
            },
        },
    }
    members = {
        "Type": "Notification",
        "MessageId": f"191c04d9-d428-5417-b457-{number:012x}",
        "TopicArn": TOPIC,
        "Subject": "Amazon S3 Notification",
        "Message": orjson.dumps({"Records": [record]}).decode(),
        "Timestamp": rfc3339(at_ms + 1_000),
        "SignatureVersion": "1",
        "Signature": "DrjMXAKufoJ7lM2ZC7uZ5q0NwrGCoy4YQAT/" * 9,
        "SigningCertURL": "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-6aad65c2.pem",
        "UnsubscribeURL": f"https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn={TOPIC}",
    }
    lines = [f'  "{name}" : {orjson.dumps(value).decode()}' for name, value in members.items()]
    return ("{\n" + ",\n".join(lines) + "\n}").encode()


def messages(first: int, count: int) -> Iterator[QueueMessage]:
    for number in range(first, first + count):
        yield QueueMessage(f"r{number}", announcement(number), f"m{number}")
