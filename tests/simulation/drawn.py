"""The configuration of one world, drawn from its seed."""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from kfm.model.settings import (
    Care,
    DatasetSettings,
    Freeze,
    Lease,
    Limits,
    Pagination,
    Rights,
    Settings,
    SourceSettings,
    Sovereignty,
    Target,
)
from kfm.model.times import rfc3339

SPECS = ("P1D", "P1D", "PT6H", "PT1H", "P1W", "P1M", "2026-09-20/P1D", "2026-09-20T00:00Z/2026-09-21T12:00Z")
ZONES = ("UTC", "America/Chicago", "Asia/Kathmandu")
LICENCES = ("CC0-1.0", "https://example.org/licence", "For study only")


EVERY_LEVEL = ("public", "review", "restricted")


def settings_of(rng: random.Random, now_ms: int, *, slow: bool) -> Settings:
    lock = rng.choice(("dataset", "domain"))
    datasets = [_flow(rng, lock), _counties(rng, lock)]
    spec, zone = rng.choice(SPECS), rng.choice(ZONES)
    sources = [
        SourceSettings(
            id="gauges",
            dataset="flow",
            kind="sim",
            contract="gauges.odcs.yaml",
            path="{relpath}",
            output_version="1",
            window=spec,
            time_zone=zone,
            partition=rng.choice((None, None, "east/1")),
        ),
        SourceSettings(
            id="models",
            dataset="flow",
            kind="sim",
            pagination=Pagination(style="link-header"),
            pipeline="p.py:f",
            window=spec,
            time_zone=zone,
        ),
        SourceSettings(
            id="counties",
            dataset="counties",
            kind="sim",
            contract="counties.odcs.yaml",
            mode="replace",
            window=rng.choice(SPECS),
        ),
    ]
    if rng.random() < 0.25:
        both = ("gauges", "models")
        sources.append(
            SourceSettings(id="mix", dataset="flow", kind="sync", members=both, window=spec, time_zone=zone)
        )
    if rng.random() < 0.2:
        datasets.append(DatasetSettings(id="orphan", domain="water", rights=_no_rights(rng)))
        sources.append(SourceSettings(id="orphan", dataset="orphan", kind="sim"))
    lease = (
        Lease(seconds=600.0, heartbeat_seconds=240.0) if slow else Lease(seconds=3.0, heartbeat_seconds=1.0)
    )
    return Settings(
        environment="sim",
        datasets=tuple(datasets),
        sources=tuple(sources),
        publish=_targets(rng),
        freezes=_freezes(rng, now_ms, slow=slow),
        limits=Limits(versions_kept=rng.choice((1, 2, 3))),
        lease=lease,
    )


def with_few_sources(settings: Settings, seed: int) -> Settings:
    """One or two of them; a sync source needs its members, so it stays away."""
    dice = random.Random(f"few {seed}")
    names = dice.sample(("gauges", "models", "counties"), dice.choice((1, 1, 2)))
    kept = tuple(source for source in settings.sources if source.id in (*names, "orphan"))
    return replace(settings, sources=kept)


def _flow(rng: random.Random, lock: Any) -> DatasetSettings:
    rights = Rights(
        license=rng.choice(LICENCES),
        care=Care(label="Public", level="public"),
        local_contexts=rng.choice((None, "https://example.org/project", "project 7")),
    )
    words = rng.choice(((), ("water", "rivers")))
    return DatasetSettings(id="flow", title="Flow", domain="water", rights=rights, lock=lock, keywords=words)


def _counties(rng: random.Random, lock: Any) -> DatasetSettings:
    return DatasetSettings(
        id="counties",
        title="Sacred places",
        domain="water",
        rights=Rights(
            license="CC-BY-4.0",
            care=Care(label="Review", level=rng.choice(("review", "restricted"))),
            sovereignty=Sovereignty(
                authority="A Nation",
                consent="granted",
                agreement=rng.choice((None, "https://example.org/a")),
            ),
            attribution="A Nation",
        ),
        lock=lock,
        bbox=rng.choice((None, (-102.1, 36.9, -94.5, 40.1), (170.0, -20.0, -170.0, -10.0))),
    )


def _no_rights(rng: random.Random) -> Rights | None:
    return rng.choice(
        (
            None,
            Rights(license=" ", care=Care(label="Public")),
            Rights(license="CC0-1.0", care=Care(label="")),
        )
    )


def _targets(rng: random.Random) -> tuple[Target, ...]:
    """The folder takes everything; the bucket takes restricted data where its prefix is named."""
    link = rng.choice((None, "versions", "objects", "never"))
    url = rng.choice(("s3://shelf", "s3://shelf/some/prefix"))
    targets = [
        Target(kind="local", path="published", care=EVERY_LEVEL, options={"link": link} if link else {}),
        Target(kind="s3", url=url, care=EVERY_LEVEL if url.endswith("prefix") else None),
    ]
    if rng.random() < 0.2:
        targets.append(Target(kind="github-actions", name="job", care=EVERY_LEVEL))
    if rng.random() < 0.2:
        targets.append(Target(kind="noop", name="nowhere"))
    return tuple(targets)


def _freezes(rng: random.Random, now_ms: int, *, slow: bool) -> tuple[Freeze, ...]:
    past = Freeze(start="2020-01-01", end="2020-01-02", reason="long ago")
    if rng.random() < 0.7:
        return (past,)
    unit_ms = 600_000 if slow else 3_000
    start_ms = now_ms + rng.randrange(0, 4 * unit_ms)
    now = Freeze(
        start=rfc3339(start_ms // 1000 * 1000),
        end=rfc3339((start_ms + rng.randrange(2 * unit_ms, 8 * unit_ms)) // 1000 * 1000),
        reason=rng.choice(("holidays", "Audit.")),
        datasets=rng.choice((("*",), ("flow",), ("count*",))),
        domains=rng.choice((("*",), ("water",), ("air",))),
    )
    return (past, now)
