"""Bytes that are almost right."""

from __future__ import annotations

import random

TOKENS = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"'",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"&a *a",
    b"!!python/object",
    b"NaN",
    b"Infinity",
    b"-0",
    b"1e999",
    b"9007199254740993",
    b"\xf0\x9f\x8c\xbd",
    b"\xed\xa0\x80",
    b"../",
    b"%2e%2e",
    b"P1M",
    b"P99999999999D",
    b"0000-00-00",
    b"9999-12-31T23:59:60Z",
    b"\t",
    b"|",
    b"---",
    b"<<: *x",
    b"null",
    b"true",
    b"=" * 50,
    b"[" * 200,
    b'{"a":' * 60,
)
BYTES_MAX = 20_000


def mutated(seed: bytes, rng: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(len(data) + 1)
        throw = rng.random()
        if throw < 0.35:
            data[at:at] = rng.choice(TOKENS)
        elif throw < 0.55 and data:
            data[at % len(data)] = rng.randrange(256)
        elif throw < 0.75:
            del data[at : at + rng.randrange(1, 12)]
        elif throw < 0.9:
            piece = bytes(data[at : at + rng.randrange(1, 40)])
            data[at:at] = piece * rng.randrange(1, 5)
        else:
            data = bytearray(rng.randbytes(rng.randrange(0, 60)))
    return bytes(data[:BYTES_MAX])
