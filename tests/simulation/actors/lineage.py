"""Text that leaves the kernel: no planted secret survives, and every template says what it should."""

from __future__ import annotations

import base64
from datetime import datetime
from urllib.parse import quote
from zoneinfo import ZoneInfo

from kfm.model.errors import ConfigError
from kfm.model.records import Window
from kfm.model.redaction import MASK, TEXT_CHARS_MAX, is_secret_name, redact, redact_url, strip_params
from kfm.model.templates import PATH_FIELDS, Fields, render, safe_path, template_problem
from kfm.model.times import rfc3339
from tests.simulation.actors.scene import Scene, refused
from tests.simulation.judging import require

ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZabcdefghjkmnpqrstuvwxyz23456789"
# Where secrets turn up, with the words that must stay readable.
PLACES = (
    ("GET https://user:{}@example.org/data.csv failed", "example.org/data.csv failed"),
    ("https://example.org/x?api_key={}&year=2026", "year=2026"),
    ("https://example.org/x?a=1&X-Amz-Signature={}", "a=1"),
    ("Authorization: Bearer {}", "Authorization"),
    ("sent bearer {} upstream", "upstream"),
    ('{{"client_secret": "{}", "page": 4}}', '"page": 4'),
    ("password={}; host=db1", "host=db1"),
    ("Cookie: session={}", "Cookie"),
    ("key whsec_{} is used", "is used"),
    ("ghp_{} was refused", "was refused"),
)
UNSAFE = (
    "", "/etc/passwd", "a//b", "../x", "a/.hidden", "a\\b", "a\x00b", "a /b", "x" * 300, "a/" * 600 + "b",
    "a\u202eb",
)  # fmt: skip
NO_TEMPLATE = (
    "{windw.start}", "{window.start:Date}", "{window.start:%Q}", "{source:x}", "{", "a}b", "{relpath}",
    "{" * 3, "x" * 5000, "{zzz}", "{window.start:%}",
)  # fmt: skip


def write_down(scene: Scene) -> None:
    rng = scene.rng
    for template, plain in rng.sample(PLACES, 6):
        scene.pause("redact")
        secret = "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(24, 40)))
        text = redact(template.format(secret))
        require(secret not in text, "no secret is written down", template=template)
        require(plain in text, "and the rest stays readable", template=template, text=text)
    known = "pa ss/" + "".join(rng.choice(ALPHABET) for _ in range(8))
    data = known.encode()
    encoded = (base64.b64encode(data), base64.urlsafe_b64encode(data), base64.b64encode(b"x" + data + b"y"))
    for shown in (
        known,
        quote(known, safe=""),
        quote(known),
        data.hex(),
        *(text.decode() for text in encoded),
    ):
        hidden = redact(f"it said {shown} aloud", [known, "abc"])
        require(shown not in hidden and "aloud" in hidden, "a known secret is hidden in every spelling")
    if rng.random() < 0.2:
        long = redact("word " * TEXT_CHARS_MAX)
        require(len(long) <= TEXT_CHARS_MAX + 1, "what is kept is bounded")
    require(redact_url("http://[broken") == MASK, "an address that is none is hidden")
    stripped = strip_params("https://h/x?page=2&nonce=7&a%62c=1", ["nonce", "abc"])
    require(stripped == "https://h/x?page=2", "volatile parameters go", stripped=stripped)
    for name, secret_name in (("api_key", True), ("userToken", True), ("sig", True), ("keyword", False)):
        require(is_secret_name(name) == secret_name, "names of secrets are known", name=name)
    _templates(scene)


def _templates(scene: Scene) -> None:
    rng = scene.rng
    zone = rng.choice(("UTC", "America/Chicago", "Asia/Kathmandu"))
    start_ms = scene.now_ms - rng.randrange(10**11)
    window = Window(start_ms=start_ms, end_ms=start_ms + 86_400_000, spec="P1D")
    local = datetime.fromtimestamp(start_ms // 1000, ZoneInfo(zone))
    fields = Fields(
        window=window,
        time_zone=zone,
        source="s1",
        dataset="d1",
        partition="east",
        name="f.csv",
        relpath="sub/f.csv",
    )
    for template, text in (
        ("{window.start}", rfc3339(start_ms)),
        ("{window.end}", rfc3339(window.end_ms)),
        ("{window.start:date}/{name}", f"{local:%Y-%m-%d}/f.csv"),
        ("{window.start:%Y/%m/%d/%H%M%S}-{relpath}", f"{local:%Y/%m/%d/%H%M%S}-sub/f.csv"),
        ("{window.start:%j-%y-%%}", f"{local:%j-%y-%%}"),
        ("{{{source}}}-{dataset}-{partition}", "{s1}-d1-east"),
    ):
        require(render(template, fields) == text, "a template says what it should", template=template)
        require(template_problem(template, allowed=PATH_FIELDS) is None, "a good template has no problem")
    place = Fields(window=window, time_zone=zone, source="s1", dataset="d1")
    for wrong in rng.sample(NO_TEMPLATE, 5):
        refused(ConfigError, lambda text=wrong: render(text, place), "an unclear template is refused")
        require(template_problem(wrong) is not None, "the problem is told without rendering", template=wrong)
    refused(ConfigError, lambda: render("{partition}", place), "a field without a value is refused")
    for wrong in rng.sample(UNSAFE, 5):
        refused(ConfigError, lambda path=wrong: safe_path(path), "an unsafe path is refused", path=wrong[:40])
    require(safe_path("data/cafe\u0301.csv") == "data/café.csv", "one name, one spelling")
