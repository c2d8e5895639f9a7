"""JPSS: granules of polar-orbiting satellites, raw (SDR) and derived (EDR)."""

from __future__ import annotations

from collections.abc import Callable

from kfm.nodd.grammar import Dataset, Place, Rule
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.patterns import Fields, Pattern, Template, need
from kfm.nodd.spans import HOUR_MS, Span, at, digits, shifted

_PLATFORMS = {
    "npp": "Suomi-NPP",
    "snpp": "Suomi-NPP",
    "j01": "NOAA-20",
    "n20": "NOAA-20",
    "j02": "NOAA-21",
    "n21": "NOAA-21",
    "NPP": "Suomi-NPP",
    "N20": "NOAA-20",
    "N21": "NOAA-21",
}
# No instrument measured before it was launched; a clock that was never set says 1958.
_LAUNCHED = {
    "Suomi-NPP": at("2011", "10", "28"),
    "NOAA-20": at("2017", "11", "18"),
    "NOAA-21": at("2022", "11", "10"),
}


def _after_launch(times: Callable[[Fields], Span]) -> Callable[[Fields], Span]:
    def checked(fields: Fields) -> Span:
        span = times(fields)
        launched = _LAUNCHED.get(_PLATFORMS.get(need(fields, "sat"), ""))
        if launched is not None and span.start_ms is not None and span.start_ms < launched:
            raise RecordRefusal("TIME_INVALID", "The satellite had not been launched.")
        return span

    return checked


def _granule(fields: Fields) -> Span:
    """The end has no date: one that seems earlier than the start is of the next day."""
    date = need(fields, "ymd")
    start, end = (digits(date + need(fields, name)) for name in ("start", "end"))
    return Span(start_ms=start, end_ms=end if end >= start else shifted(end, 24 * HOUR_MS))


def _derived(fields: Fields) -> Span:
    """Composites of days have dates without times; they last until the day is over."""
    end = need(fields, "end")
    return Span(
        start_ms=digits(need(fields, "start")), end_ms=digits(end if len(end) > 8 else f"{end}235959")
    )


def _begun(fields: Fields) -> Span:
    return Span(start_ms=digits(need(fields, "start")))


def _folders(fields: Fields, _span: Span) -> Fields:
    day = fields.get("ymd") or need(fields, "start")
    return {"d_year": day[:4], "d_month": day[4:6], "d_day": day[6:8]}


_FOLDERS = "[{folder:name}/[{d_year:yyyy}/{d_month:mm}/{d_day:dd}/]]"
_SAT = {"sat": r"[a-z]{1,4}\d{0,2}", "product": r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*?"}
DATASET = Dataset(
    name="jpss",
    title="Joint Polar Satellite System",
    places=(
        Place(bucket="noaa-nesdis-n20-pds", platform="NOAA-20"),
        Place(bucket="noaa-nesdis-n21-pds", platform="NOAA-21"),
        Place(bucket="noaa-nesdis-snpp-pds", platform="Suomi-NPP"),
        Place(bucket="noaa-jpss", home=False),
        Place(bucket="gcp-noaa-nesdis-n20", provider="gcp", platform="NOAA-20", home=False),
        Place(bucket="gcp-noaa-nesdis-n21", provider="gcp", platform="NOAA-21", home=False),
        Place(bucket="gcp-noaa-nesdis-snpp", provider="gcp", platform="Suomi-NPP", home=False),
    ),
    topics=(
        "arn:aws:sns:us-east-1:709902155096:NewNOAA20Object",
        "arn:aws:sns:us-east-1:709902155096:NewNOAA21Object",
        "arn:aws:sns:us-east-1:709902155096:NewSNPPObject",
        "arn:aws:sns:us-east-1:709902155096:NewJPSSObject",
    ),
    rules=(
        Rule(
            pattern=Pattern(
                _FOLDERS + "{product:product}_{sat:sat}_d{ymd:ymd}_t{start:hmst}_e{end:hmst}_b{orbit:digits}"
                "_c{created:digits}_{origin:word}_{domain:word}.{ext:name}",
                _SAT,
            ),
            product=Template("{product}"),
            platform=Template("{sat}"),
            platforms=_PLATFORMS,
            times=_after_launch(_granule),
            folders=_folders,
        ),
        Rule(
            pattern=Pattern(
                _FOLDERS + "{product:product}[_{version:version}]_{sat:sat}"
                "_s{start:stamp}_e{end:stamp}_c{created:digits}.{ext:name}",
                _SAT | {"version": r"v\d+r\d+(?:-\d+)?", "stamp": r"\d{8}(?:\d{6,7})?"},
            ),
            product=Template("{product}"),
            platform=Template("{sat}"),
            platforms=_PLATFORMS,
            times=_after_launch(_derived),
            folders=_folders,
        ),
        Rule(
            # Sea surface temperatures are named as GHRSST names them.
            pattern=Pattern(
                _FOLDERS + "{start:stamp}-{product:name}_{sat:NPP|N20|N21}-{rest:name}.nc",
                {"stamp": r"\d{14}"},
            ),
            product=Template("{product}"),
            platform=Template("{sat}"),
            platforms=_PLATFORMS,
            times=_after_launch(_begun),
            folders=_folders,
        ),
    ),
)
