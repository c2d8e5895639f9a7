"""Signatures of webhooks."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec

from kfm.model.webhook_signatures import (
    check_fresh,
    sign_kfm,
    sign_standard,
    verify_github,
    verify_kfm,
    verify_standard,
)
from tools.vector_cases.shape import Case, Family, error

HAND = "by hand"
RFC = "RFC 4231"


def _signature(given: dict[str, Any]) -> Any:
    scheme = given["scheme"]
    body = bytes.fromhex(given["body_hex"]) if "body_hex" in given else given.get("body", "").encode()
    if scheme == "standard":
        return _standard(given, body)
    if scheme == "fresh":
        return msgspec.to_builtins(check_fresh(given["sent_at_ms"], given["now_ms"]))
    secrets = [bytes.fromhex(one) for one in given["secrets_hex"]]
    if "header" not in given:
        return sign_kfm(secrets[0], body)
    if scheme == "github":
        return msgspec.to_builtins(verify_github(secrets, body, given["header"]))
    legacy = scheme == "kfm-legacy-concat"
    return msgspec.to_builtins(verify_kfm(secrets, body, given["header"], legacy_concat=legacy))


def _standard(given: dict[str, Any], body: bytes) -> Any:
    if "signature" not in given:
        return sign_standard(given["secrets"][0], given["id"], given["timestamp"], body)
    verified = verify_standard(
        given["secrets"],
        body,
        message_id=given["id"],
        timestamp=given["timestamp"],
        signature=given["signature"],
        now_ms=given["now_ms"],
    )
    return msgspec.to_builtins(verified)


def _said(reason: str, secret_index: int | None = None) -> dict[str, Any]:
    return {"ok": reason == "ok", "reason": reason, "secret_index": secret_index}


def _sign(name: str, secret: bytes, body: bytes, digest: str, source: str) -> Case:
    given = {"scheme": "kfm", "secrets_hex": [secret.hex()], "body_hex": body.hex()}
    return Case(name, given, f"sha256={digest}", source)


_GITHUB = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
_SECRET = b"It's a Secret to Everybody".hex()
_OTHER = b"another secret".hex()
_LEGACY = "607da0a79132313e71b15b5493d0a5e0c25717fa008530cdc6526629ab47bcd5"


def _check(
    name: str,
    header: str | None,
    pin: Any,
    *,
    scheme: str = "kfm",
    secrets: list[str] | None = None,
    body: str = "Hello, World!",
    source: str = HAND,
) -> Case:
    given = {
        "scheme": scheme,
        "secrets_hex": [_SECRET] if secrets is None else secrets,
        "body": body,
        "header": header,
    }
    return Case(name, given, pin, source)


_STD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
_STD_OLD = "whsec_" + b64encode(b"a retired key of 24 byte").decode()
_STD_SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
_STD_BODY = '{"test": 2432232314}'
_STD_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
_STD_MS = 1614265330_000
_LIBRARY = "the test of the Standard Webhooks reference libraries"


def _std(name: str, pin: Any, *, source: str = HAND, **changes: Any) -> Case:
    given = {
        "scheme": "standard",
        "secrets": [_STD],
        "id": _STD_ID,
        "timestamp": "1614265330",
        "body": _STD_BODY,
    }
    given |= {"signature": _STD_SIGNATURE, "now_ms": _STD_MS, **changes}
    return Case(name, given, pin, source)


def _fresh(name: str, sent_at_ms: int, reason: str) -> Case:
    given = {"scheme": "fresh", "sent_at_ms": sent_at_ms, "now_ms": 1_000_000}
    return Case(name, given, _said(reason), HAND)


_GOOD = f"sha256={_GITHUB}"

SIGNATURES = Family(
    "signatures",
    "Signing and verifying: HMAC-SHA256 of the body, the older plain concatenation, GitHub's and Standard Webhooks.",
    _signature,
    [
        _sign(
            "published 1",
            b"\x0b" * 20,
            b"Hi There",
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            f"{RFC}, case 1",
        ),
        _sign(
            "published 2",
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            f"{RFC}, case 2",
        ),
        _sign(
            "published 3",
            b"\xaa" * 20,
            b"\xdd" * 50,
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            f"{RFC}, case 3",
        ),
        _sign(
            "published 4",
            bytes(range(1, 26)),
            b"\xcd" * 50,
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
            f"{RFC}, case 4",
        ),
        _sign(
            "published 6",
            b"\xaa" * 131,
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            f"{RFC}, case 6",
        ),
        _sign(
            "GitHub's example",
            b"It's a Secret to Everybody",
            b"Hello, World!",
            _GITHUB,
            "GitHub's documentation",
        ),
        _check("right", _GOOD, _said("ok", 0)),
        _check(
            "right, as GitHub sends it",
            _GOOD,
            _said("ok", 0),
            scheme="github",
            source="GitHub's documentation",
        ),
        _check("hex in capitals", f"sha256={_GITHUB.upper()}", _said("ok", 0)),
        _check("old secret still active", _GOOD, _said("ok", 1), secrets=[_OTHER, _SECRET]),
        _check("new secret first", _GOOD, _said("ok", 0), secrets=[_SECRET, _OTHER]),
        _check("wrong secret", _GOOD, _said("mismatch"), secrets=[_OTHER]),
        _check("no secret", _GOOD, _said("no-secret"), secrets=[]),
        _check("body changed", _GOOD, _said("mismatch"), body="Hello, World?"),
        _check("body with a newline more", _GOOD, _said("mismatch"), body="Hello, World!\n"),
        _check("no header", None, _said("missing")),
        _check("empty header", "", _said("missing")),
        _check("no prefix", _GITHUB, _said("malformed")),
        _check("other algorithm", f"sha1={_GITHUB[:40]}", _said("malformed")),
        _check("one digit short", _GOOD[:-1], _said("malformed")),
        _check("one digit more", f"{_GOOD}0", _said("malformed")),
        _check("trailing newline", f"{_GOOD}\n", _said("malformed")),
        _check("not hex", "sha256=" + "g" * 64, _said("malformed")),
        _check("outside ASCII", "sha256=" + "é" * 64, _said("malformed")),
        _check("digits of another script", "sha256=" + "١" * 64, _said("malformed")),
        _check("very long", "sha256=" + "0" * 5_000, _said("malformed")),
        _check("one bit off", f"sha256={_GITHUB[:-1]}6", _said("mismatch")),
        _check("concatenation is refused", f"sha256={_LEGACY}", _said("mismatch")),
        _check(
            "concatenation, where asked for",
            f"sha256={_LEGACY}",
            _said("ok", 0),
            scheme="kfm-legacy-concat",
            source="sha256sum",
        ),
        _check(
            "concatenation, second secret",
            f"sha256={_LEGACY}",
            _said("ok", 1),
            scheme="kfm-legacy-concat",
            secrets=[_OTHER, _SECRET],
        ),
        _check("HMAC passes there too", _GOOD, _said("ok", 0), scheme="kfm-legacy-concat"),
        _std("published", _said("ok", 0), source=_LIBRARY),
        Case(
            "published, signed",
            {
                "scheme": "standard",
                "secrets": [_STD],
                "id": _STD_ID,
                "timestamp": 1614265330,
                "body": _STD_BODY,
            },
            _STD_SIGNATURE,
            _LIBRARY,
        ),
        _std("secret without its prefix", _said("ok", 0), secrets=[_STD.removeprefix("whsec_")]),
        _std("second secret", _said("ok", 1), secrets=[_STD_OLD, _STD]),
        _std("several signatures", _said("ok", 0), signature=f"v1,{'A' * 43}= v2,x {_STD_SIGNATURE}"),
        _std("asymmetric signatures are passed over", _said("malformed"), signature="v1a,AAAA"),
        _std("only wrong signatures", _said("mismatch"), signature=f"v1,{'A' * 43}="),
        _std("no signature", _said("missing"), signature=""),
        _std("no id", _said("missing"), id=None),
        _std("other id", _said("mismatch"), id="msg_other"),
        _std("no timestamp", _said("missing"), timestamp=None),
        _std("other timestamp", _said("mismatch"), timestamp="1614265331"),
        _std("timestamp is no number", _said("malformed"), timestamp="now"),
        _std("timestamp with a sign", _said("malformed"), timestamp="+1614265330"),
        _std("white space of the body changed", _said("mismatch"), body='{"test":2432232314}'),
        _std("base64 is broken", _said("malformed"), signature="v1,###"),
        _std("five minutes old", _said("ok", 0), now_ms=_STD_MS + 300_000),
        _std("older", _said("stale"), now_ms=_STD_MS + 300_001),
        _std("five minutes early", _said("ok", 0), now_ms=_STD_MS - 300_000),
        _std("earlier", _said("future"), now_ms=_STD_MS - 300_001),
        _std("secret can't be read", error("KFM201"), secrets=["whsec_###"]),
        _fresh("now", 1_000_000, "ok"),
        _fresh("tolerated", 700_000, "ok"),
        _fresh("too old", 699_999, "stale"),
        _fresh("ahead, tolerated", 1_300_000, "ok"),
        _fresh("too far ahead", 1_300_001, "future"),
    ],
)

FAMILIES = [SIGNATURES]
