"""`kfm nodd`: what announcements of NOAA's open data say, and which datasets are known."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kfm.cli.nodd_dead import dead
from kfm.cli.nodd_import import import_records
from kfm.cli.nodd_reconcile import reconcile
from kfm.cli.nodd_units import show, units, watermarks
from kfm.cli.options import session_options
from kfm.cli.output import encode
from kfm.cli.session import Session
from kfm.core.errors import UsageError
from kfm.core.object_schemes import PROVIDERS, SCHEMES

if TYPE_CHECKING:
    from kfm.ingest.grammar import Dataset
    from kfm.ingest.policy import Generic, IntakePolicy
    from kfm.ingest.reading import Outcome


@click.group(name="nodd")
def command() -> None:
    """Read announcements of NOAA's open data, and see what became of them."""


for each in (units, show, watermarks, dead, reconcile, import_records):
    command.add_command(each)


@command.command(name="parse")
@click.option(
    "--key", nargs=2, metavar="BUCKET KEY", help="Read this key instead of a message. It is taken as it is."
)
@click.option(
    "--provider", type=click.Choice(("aws", "gcp", "azure")), help="Whose bucket --key means.", default=None
)
@click.option(
    "--generic",
    multiple=True,
    metavar="BUCKET=DATASET",
    help="Take in objects of BUCKET that no known dataset claims, as plain items of DATASET. "
    "gs://BUCKET and az://ACCOUNT/CONTAINER name other providers.",
)
@click.option("--topic", "topics", multiple=True, metavar="ARN", help="Let this SNS topic speak, too.")
@session_options
def parse_message(
    session: Session,
    key: tuple[str, str] | None,
    provider: str | None,
    generic: tuple[str, ...],
    topics: tuple[str, ...],
) -> int:
    """Read a message from standard input and print one JSON line for each of its records.

    Understood are S3 events (raw, or within SNS, SQS, Lambda or EventBridge), notifications of NEXRAD chunks,
    Google Cloud Storage and Azure Event Grid. A line names the object's dataset, times, unit (wal_id) and
    catalogue item, or has `error_code` and `error`. Records that are rightly left alone (tests, removals,
    repeats) say `ignored: true`. Nothing is fetched and nothing is stored.

    \b
    kfm nodd parse < message.json
    kfm nodd parse --key noaa-mrms-pds CONUS/PrecipRate_00.00/20260615/MRMS_PrecipRate_00.00_20260615-000000.grib2.gz

    Exit code 0 if every record that is not ignored was understood, else 1.
    """  # noqa: E501 - an example is one line
    from kfm.ingest.reading import line, parse, parse_key
    from kfm.ingest.registry import load_registry
    from kfm.wiring import system_clock

    registry = load_registry(_policy(generic, topics))
    now_ms = system_clock().now_ms()
    outcomes: Sequence[Outcome]
    if key is not None:
        outcomes = (parse_key(*key, registry, now_ms, provider),)
    else:
        outcomes = parse(_body(session), registry, now_ms)
    rows = [msgspec.to_builtins(line(outcome)) for outcome in outcomes]
    code = int(any("error_code" in row and "ignored" not in row for row in rows))
    lines = [encode(row, "jsonl").rstrip("\n") for row in rows]
    session.emit({"records": rows, "exit_code": code}, lines, rows=rows)
    return code


@command.command(name="datasets")
@click.argument("names", nargs=-1, metavar="[DATASET]...")
@session_options
def datasets(session: Session, names: tuple[str, ...]) -> None:
    """List the datasets that are known: their buckets, the topics that announce them, their keys.

    Those of installed plugins (entry points in the group `kfm.datasets`) are among them.
    """
    from kfm.ingest.registry import load_registry

    registry = load_registry()
    known = [dataset.name for dataset in registry.datasets]
    for name in names:
        if name not in known:
            from kfm.configuration.shape import nearest

            raise UsageError(
                f"There is no dataset `{name[:64]}`{nearest(name, known)}",
                remedy="`kfm nodd datasets` lists them.",
            )
    rows = [_document(dataset) for dataset in registry.datasets if not names or dataset.name in names]
    session.emit({"datasets": rows}, [text for row in rows for text in _lines(row)], rows=rows)


# --- inside --------------------------------------------------------------------------


def _body(session: Session) -> bytes:
    """A little more than is ever read, so that too much is told from enough."""
    from kfm.ingest.bodies import BODY_BYTES_MAX

    if sys.stdin is None:  # closed by whoever called
        return b""
    if sys.stdin.isatty():
        session.note("reading a message from standard input; Ctrl-D ends it")
    return sys.stdin.buffer.read(BODY_BYTES_MAX + 1)


def _policy(generic: Sequence[str], topics: Sequence[str]) -> IntakePolicy:
    from kfm.ingest.policy import IntakePolicy
    from kfm.ingest.refusals import Refusal
    from kfm.ingest.topics import region_of

    for topic in topics:
        try:
            region_of(topic)
        except Refusal:
            raise UsageError(f"--topic takes the ARN of an SNS topic, not `{topic[:128]}`.") from None
    return IntakePolicy(generic=tuple(map(_generic, generic)), topics=tuple(topics))


def _generic(text: str) -> Generic:
    from kfm.ingest.object_keys import check_bucket
    from kfm.ingest.policy import Generic
    from kfm.ingest.refusals import Refusal

    bucket, equals, dataset = text.rpartition("=")
    scheme, separator, rest = bucket.partition("://")
    provider = PROVIDERS.get(scheme) if separator else "aws"
    try:
        if not equals or provider is None:
            raise Refusal("RECORD_INVALID")
        return Generic(dataset=dataset, bucket=check_bucket(rest if separator else bucket), provider=provider)
    except Refusal:
        raise UsageError(f"--generic takes BUCKET=DATASET, not `{text[:128]}`.") from None


def _document(dataset: Dataset) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "title": dataset.title,
        "stac_collection_id": dataset.collection,
        "media_type": dataset.media_type,
        "licence": dataset.licence,
        "buckets": [
            {
                "provider": place.provider,
                "uri": f"{SCHEMES[place.provider]}://{place.bucket}",
                "platform": place.platform,
            }
            for place in dataset.places
        ],
        "topics": list(dataset.topics),
        "keys": [rule.pattern.text for rule in dataset.rules],
        "sidecars": dict(dataset.sidecars),
    }


def _lines(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['name']}: {row['title']}",
        *(f"  bucket  {bucket['uri']}" for bucket in row["buckets"]),
        *(f"  topic   {topic}" for topic in row["topics"] or ("none is published",)),
    ]
