"""Free text: what is taken out of a message, and messages that stay as they are."""

from __future__ import annotations

from kfm.model.redaction import COORDINATES, PERSONAL_NUMBER, PHONE, PROSE_CHARS_MAX, free_text
from tools.vector_cases.shape import Case, Family

MAIL = "[mail address removed]"
REMOVED = [
    ("John <john.smith@example.com> at 38.123456, -97.654321", f"John <{MAIL}> at {COORDINATES}"),
    ("ssn 123-45-6789 of a person", f"ssn {PERSONAL_NUMBER} of a person"),
    ("row 7: 123-45-6789.", f"row 7: {PERSONAL_NUMBER}."),
    ("point [-97.654321, 38.123456] is outside", f"point [{COORDINATES}] is outside"),
    ("POLYGON((-97.1 38.1, -97.2 38.2, -97.1 38.1)) crosses itself", f"{COORDINATES} crosses itself"),
    ("near POINT (-97.65 38.12)", f"near {COORDINATES}"),
    ("lat=38.12 lon=-97.65", f"lat={COORDINATES} lon={COORDINATES}"),
    (
        '{"latitude": 38.1, "longitude": -97.6}',
        f'{{"latitude": {COORDINATES}, "longitude": {COORDINATES}}}',
    ),
    ("at 38°07'24\"N 97°39'15\"W", f"at {COORDINATES} {COORDINATES}"),
    ("at 38.1235N, 97.6543W", f"at {COORDINATES}, {COORDINATES}"),
    ("bbox -97.654,38.123,-97.111,38.999 is empty", f"bbox {COORDINATES} is empty"),
    ("[[-97.654, 38.123], [-97.111, 38.999]]", f"[[{COORDINATES}]]"),
    ("call (785) 555-0123 or +1 785 555 0123", f"call {PHONE} or {PHONE}"),
    ("call 785-555-0123, +17855550123", f"call {PHONE}, {PHONE}"),
    ("phone: 555 0123 is wrong", f"phone: {PERSONAL_NUMBER} is wrong"),
    ("passport no. C01X00T47", f"passport no. {PERSONAL_NUMBER}"),
    ("tribal enrollment number 12-3456", f"tribal enrollment number {PERSONAL_NUMBER}"),
    ("date of birth: 1950-02-03", f"date of birth: {PERSONAL_NUMBER}"),
]
STAYS = [
    "Python 3.11.4 and 3.12.1 were tried; kfm 0.4.0, 0.5.0.",
    "2026-11-17T08:46:20.123Z to 2026-11-17T09:00:00.456Z",
    "took 12.345 s, 13.456 s and 0.250 s; 1.234, 5.678 MB",
    "12:34:56.789 13:00:00.123 retry",
    "127.0.0.1:8377 and 10.123.45.6, 192.168.100.200 refused",
    "run 6e7bb923-3521-8697-ac9f-177eb0e0044d, attempt 3 of 5",
    "sha256:82cc8c560a7282cc8c560a7282cc8c560a7282cc8c560a7282cc8c560a728212",
    "wal 0199a8b212345-0123456789abcdef0123",
    "size 1,234,567 bytes of 2,000,000; 68,122 rows",
    "p50 0.123, p99 0.456; ratio 0.12345 0.23456",
    "exit code 137, errno 28, port 5432, pid 123456",
    "window 2026-01-01/P1D, offset +05:00, +0500, 20260101T000000Z",
    "column `lat` is missing; `lon` is a text; late by 3.5 s",
    "ValueError: could not convert string to float: '1.5e-3'",
    "s3://noaa-hrrr-bdp-pds/hrrr.20260101/conus/hrrr.t00z.wrfsfcf00.grib2",
    "epoch 1763369180123 ms, 1763369180",
    "retry 3-5 of 10-20; 100-200-300 are ranges",
    "20.5 °C at 45° of turn",
    "pkg@1.2.3 and user@host were found",
    "https://example.org/a/b?x=1&y=2",
    "price 12.50, 13.75",
    "HTTP 503 after 30.000 s",
    "the phone book has no entry; the passport office is closed",
    "Expected 3 columns, got 4: a,b,c,d (line 12345678)",
    "KFM400 The ledger can't be used at present.",
]
_HAND = "worked out by hand"

FAMILIES = [
    Family(
        "free_text",
        "Prose that is kept: coordinates, mail addresses and numbers of persons are taken out, and named.",
        lambda given: free_text(given["text"]),
        [
            *(
                Case(f"removed {number}", {"text": text}, kept, _HAND)
                for number, (text, kept) in enumerate(REMOVED)
            ),
            *(Case(f"stays {number}", {"text": text}, text, _HAND) for number, text in enumerate(STAYS)),
            Case(
                "too long, in code points",
                {"text": "\U0001f33e" * 9 + "x" * (PROSE_CHARS_MAX + 1225)},
                "\U0001f33e" * 9 + "x" * (PROSE_CHARS_MAX - 9) + "\u2026 [1,234 characters removed]",
                _HAND,
            ),
        ],
    )
]
