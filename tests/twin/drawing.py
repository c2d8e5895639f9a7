"""Random configurations, inputs and histories, from a seed: what the two languages must answer alike."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.twin.drawing_inputs import NAMES, contract, inputs

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000
LICENCES = (
    "CC0-1.0",
    "CC-BY-4.0",
    "cc-by-4.0",
    "CC-BY-NC-4.0",
    "Proprietary",
    "https://creativecommons.org/licenses/by/4.0/",
)
WINDOWS = ("P1D", "PT6H", "P1M", "P1W", "P1Y", "PT15M", "2026-01-01/P1D", "2026-03-08T00:00/PT36H")
ZONES = ("UTC", "America/Chicago", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Apia")
TEXTS = (
    "plain",
    "Ünïcødé",
    "line\nbreak",
    "quote ' and \"",
    "emoji 🌽",
    "tab\there",
    "token=abcdef123456",
    "null \x00 inside"[:4],
)


def draw_case(seed: int, folder: str) -> dict[str, Any]:
    if seed % 3 == 0:
        return draw_restarts(seed, folder)
    random = Random(seed)
    written = config(random)
    asks_a_second = any(word in written for word in ("restricted", *LICENCES[3:]))
    steps: list[dict[str, Any]] = [
        {"write": {"kfm.yml": written, "contract.yaml": contract(random), **inputs(random)}}
    ]
    now_ms = NOW_MS + random.randrange(0, 400) * DAY_MS + random.randrange(DAY_MS)
    for _ in range(random.randint(1, 4)):
        drawn = step(random, now_ms)
        steps.append(by_a_machine(drawn) if asks_a_second else drawn)
        now_ms += random.choice((0, 1, 1_000, 30_000, 60_000, DAY_MS, 8 * 3_600_000))
    return {"folder": folder, "steps": steps}


def by_a_machine(drawn: dict[str, Any]) -> dict[str, Any]:
    """Where a second person has to agree, a person's run requests that in Python and is refused by Node.js;
    a machine's is refused by both."""
    words, kept = iter(drawn["args"]), []
    for word in words:
        if word in ("--rationale", "--ticket", "--correction"):
            next(words)
        elif word not in ("--now", "--force"):
            kept.append(word)
    return {**drawn, "args": kept, "terminal": False}


def step(random: Random, now_ms: int) -> dict[str, Any]:
    drawn: dict[str, Any] = {"args": arguments(random), "now_ms": now_ms}
    if random.random() < 0.3:
        drawn["write"] = inputs(random)
    if random.random() < 0.1:
        drawn["remove"] = [f"in/{random.choice(NAMES)}"]
    if random.random() < 0.2:
        drawn["terminal"] = True
    if random.random() < 0.15:
        position = random.choice(("paused", "stopped", "running"))
        scope = random.choice(("all", "dataset:d1", "domain:general"))
        drawn["sql"] = [
            "INSERT OR REPLACE INTO switches "
            f"VALUES ('{scope}', '{position}', 'drawn', 'operator', {now_ms - 1})",
            "UPDATE counters SET value = value + 1 WHERE name = 'policy_epoch'",
        ]
    return drawn


# --- work that failed and is asked for again ---------------------------------------------

WINDOW = "2026-01-01/P1D"
GOOD, BAD = "id,v\n1,1\n", "id,v\n1,much too long for the limit\n"
NUMBERS = {
    "kind": "DataContract",
    "apiVersion": "v3.1.0",
    "id": "c",
    "version": "1",
    "status": "active",
    "schema": [{"name": "t", "properties": [{"name": "id"}, {"name": "v", "logicalType": "integer"}]}],
}
FATES = (
    "fate = 'retry', reason = 'retry'",
    "fate = 'retry', reason = 'retry-after'",
    "fate = 'retry', reason = 'granted'",
    "fate = 'spent', reason = 'attempts-spent', grant_attempts = 6",
    "fate = 'spent', reason = 'budget-spent'",
    "fate = 'spent', reason = 'stopped'",
    "fate = 'quarantine', reason = 'attempts-spent', grants = 5, grant_attempts = 6",
    "fate = 'quarantine', reason = 'non-retryable'",
)


def draw_restarts(seed: int, folder: str) -> dict[str, Any]:
    """One piece of work that fails, with a past of its own, asked for again and again."""
    random = Random(seed)
    source: dict[str, Any] = {
        "id": "s1",
        "dataset": "d1",
        "kind": "files",
        "folder": "in",
        "window": WINDOW,
    }
    if random.random() < 0.2:
        source["idempotent"] = False
    document: dict[str, Any] = {
        "version": 1,
        "environment": "t",
        "datasets": [
            {"id": "d1", "rights": {"license": "CC0-1.0", "care": {"label": "Public", "level": "public"}}}
        ],
        "sources": [source],
        "publish": [],
    }
    if random.random() < 0.3:  # it fails before upstream is known
        document["limits"] = {"object_bytes_max": 20}
    else:
        source["contract"] = "contract.yaml"
    now_ms = NOW_MS + random.randrange(DAY_MS)
    files = {"kfm.yml": json.dumps(document), "contract.yaml": json.dumps(NUMBERS), "in/a.csv": BAD}
    steps: list[dict[str, Any]] = [{"write": files, "args": ["run"], "now_ms": now_ms}]
    for _ in range(random.randint(3, 6)):
        now_ms += random.choice((1, 1_000, 30_000, 60_000, 8 * 3_600_000, DAY_MS))
        drawn = {"args": again(random), "now_ms": now_ms, "sql": past(random, now_ms)}
        if random.random() < 0.3:
            drawn["terminal"] = True
        if random.random() < 0.4:
            drawn["write"] = {"in/a.csv": random.choice((GOOD, BAD, BAD + BAD))}
        steps.append(drawn)
    return {"folder": folder, "steps": steps}


def again(random: Random) -> list[str]:
    reasons = ["--rationale", random.choice(TEXTS), "--ticket", "T-1"]
    drawn = random.choice(
        (
            *([],) * 4,
            ["--now", *reasons[:2]],
            ["--now", *reasons],
            reasons,
            ["--now"],
            ["--force", *reasons],
            ["--plan", "art/plan.jsonl"],
            ["--plan", "art/plan.jsonl", "--now", *reasons[:2]],
        )
    )
    shown = random.choice(([], [], ["--dry-run", "--artifacts", "art"], ["--json"], ["-v"], ["--no-input"]))
    return ["run", *drawn, *shown]


def past(random: Random, now_ms: int) -> list[str]:
    """What has happened to the failed run since."""
    due_ms = now_ms + random.choice((-1, 0, 1, 20_000))
    granted_ms = now_ms - random.choice((0, 60_000, 7 * 3_600_000, DAY_MS))
    wrought = [
        f"UPDATE retry_states SET {random.choice(FATES)}, not_before_ms = {due_ms}",
        f"UPDATE retry_states SET granted_at_ms = {granted_ms}, day_grants = {random.choice((0, 1, 12))}",
        "UPDATE retry_states SET fingerprint = 'sha256:other'",
        # Its process died, and nothing was decided about it.
        "UPDATE runs SET error_code = 'WORKER_DIED' WHERE status = 'failed';"
        "UPDATE retry_states SET attempt = attempt - 1",
        "UPDATE runs SET error_code = 'LEASE_EXPIRED' WHERE status = 'failed'; DELETE FROM retry_states",
        # It was abandoned after a stop.
        "UPDATE runs SET error_code = 'CANCELLED' WHERE status = 'failed'; DELETE FROM retry_states",
        # It may have acted outside.
        "INSERT OR IGNORE INTO acts SELECT run_id, attempts, 'send', 1 FROM runs WHERE status = 'failed'",
        # A request for it waits, is bound to a plan, or was cancelled while its process was away.
        "UPDATE requests SET kind = 'webhook', state = 'open', outcome = NULL WHERE outcome IS NOT 'success'",
        "UPDATE requests SET is_bound = 1, plan_digest = 'sha256:other' WHERE outcome IS NOT 'success'",
        "UPDATE requests SET state = 'running', outcome = NULL, cancel = 'not wanted' "
        "WHERE outcome IS NOT 'success'",
    ]
    drawn = random.sample(range(len(wrought)), random.choice((0, 1, 1, 2, 3)))
    return [wrought[number] for number in sorted(drawn)]


def arguments(random: Random) -> list[str]:
    drawn = ["run"]
    if random.random() < 0.25:
        drawn += ["--dry-run"]
    if random.random() < 0.5:
        drawn += ["--artifacts", "art"]
    if random.random() < 0.3:
        drawn += ["--window", random.choice(WINDOWS)]
    reasons = ["--rationale", random.choice(TEXTS), "--ticket", "T-1"]
    if random.random() < 0.2:
        drawn += ["--force", *(reasons if random.random() < 0.9 else [])]
    elif random.random() < 0.3:
        drawn += reasons
    if random.random() < 0.15:
        drawn += ["--now", *(reasons if random.random() < 0.9 else [])]
    if random.random() < 0.15:
        drawn += [
            "--correction",
            random.choice(("c-1", "c-ü")),
            *(reasons if random.random() < 0.9 else []),
        ]
    if random.random() < 0.2:
        drawn += ["--actor", random.choice(TEXTS)]
    drawn += random.choice(([], [], ["-v"], ["--json"], ["-o", "jsonl"], ["--json", "-v"]))
    if random.random() < 0.08:
        drawn += random.choice(
            (
                ["--windov", "P1D"],
                ["--window", "yesterday"],
                ["--output", "xml"],
                ["--frce"],
                ["--source", "s9"],
            )
        )
    return drawn


DEFAULTS: tuple[dict[str, Any], ...] = (
    *({},) * 12,
    {
        "source_defaults": {
            "time_zone": "America/Chicago",
            "headers": {"Accept": "text/csv"},
            "idempotent": True,
        }
    },
    {"source_defaults": {"window": "PT6H", "retry": None, "pattern": "**/*.csv", "provider": "gauges"}},
    {"source_defaults": {"windw": "P1D"}},
)


def config(random: Random) -> str:
    governed = random.random() < 0.3  # else no gate blocks a run
    levels = ("public",) * 3 + ("review", "restricted", "blocked") if governed else ("public",)
    rights: dict[str, Any] = {
        "license": random.choice(LICENCES if governed else LICENCES[:3]),
        "care": {"label": random.choice(("Public", "Ours · Öffentlich")), "level": random.choice(levels)},
    }
    if random.random() < (0.3 if governed else 0.1):
        rights["sovereignty"] = {
            "authority": "Nation",
            "consent": random.choice(("granted", "pending", "withdrawn")) if governed else "granted",
            "agreement": random.choice((None, "https://example.org/a"))
            if governed
            else "https://example.org/a",
        }
    if random.random() < 0.2:
        rights["attribution"] = random.choice(TEXTS)
    if random.random() < 0.2:
        rights["local_contexts"] = "https://localcontextshub.org/projects/1"
    dataset: dict[str, Any] = {
        "id": "d1",
        "rights": rights if not governed or random.random() < 0.9 else None,
    }
    for field, values in (("title", TEXTS), ("description", TEXTS), ("domain", ("general", "hydrology"))):
        if random.random() < 0.4:
            dataset[field] = random.choice(values)
    if random.random() < 0.3:
        dataset["keywords"] = ["corn", "mais 🌽"]
    if random.random() < 0.3:
        dataset["bbox"] = random.choice(
            ([-102.06, 36.99, -94.58, 40.01], [170, -10.5, -170, 1e-7], [0, 0, 0.5, 0.25])
        )
    if random.random() < 0.2:
        dataset["lock"] = "domain"
    sources = [source(random, "s1")]
    if random.random() < 0.2:
        sources.append({"id": "s2", "dataset": "d1", "kind": "files", "folder": "in2", "path": "two/{name}"})
        if random.random() < 0.5:
            sources[0].pop("pipeline", None)
            sources.append(
                {
                    "id": "all",
                    "dataset": "d1",
                    "kind": "sync",
                    "members": ["s1", "s2"],
                    "time_zone": "America/Chicago",
                }
            )
    document: dict[str, Any] = {
        "version": 1,
        "environment": random.choice(("t", "prod.eu")),
        "datasets": [dataset],
        "sources": sources,
    }
    document.update(random.choice(DEFAULTS))
    document["publish"] = random.choice(
        (
            [{"kind": "local", "path": "pub"}],
            [{"kind": "local", "path": "pub", "options": {"link": "objects"}}, {"kind": "noop"}],
            [{"kind": "github-actions"}],
            [
                {"kind": "local", "path": "pub", "care": ["public", "restricted"]},
                {"kind": "local", "name": "b", "path": "pub-b", "datasets": ["d*"], "care": ["review"]},
            ],
            [],
        )
    )
    if random.random() < 0.15:
        document["freezes"] = [
            {
                "start": "2026-09-01",
                "end": random.choice(("2027-09-01", "2026-08-01")),
                "reason": random.choice(TEXTS),
            }
        ]
    if random.random() < 0.1:
        document["limits"] = {"object_bytes_max": 20}
    if random.random() < 0.1:
        document["energy"] = {"watts_per_core": 7.5, "overhead": 1.2, "carbon_g_per_kwh": 0.1}
    if random.random() < 0.05:
        document["lineage"] = {"export": "none"}
    if random.random() < 0.06:
        spoil(random, document)
    return json.dumps(document, ensure_ascii=False, indent=1)  # JSON is YAML, too


def spoil(random: Random, document: dict[str, Any]) -> None:
    """A mistake that both must name in the same words."""
    first = document["sources"][0]
    random.choice(
        (
            lambda: first.update(dataset="d2"),
            lambda: first.update(windo="P1D"),
            lambda: first.update(window="P1X"),
            lambda: first.update(time_zone="Mars/Olympus"),
            lambda: first.update(mode="merg"),
            lambda: first.update(kind="file"),
            lambda: first.update(folder=7),
            lambda: first.update(path="{nam}"),
            lambda: first.update(id="ö"),
            lambda: document.update(lease={"seconds": 0}),
            lambda: document.update(version=2),
            lambda: document["datasets"].append(dict(document["datasets"][0])),
        )
    )()


def source(random: Random, name: str) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "id": name,
        "dataset": "d1",
        "kind": "files",
        "folder": random.choice(("in",) * 19 + ("gone",)),
    }
    if random.random() < 0.4:
        drawn["pattern"] = random.choice(("*.csv", "**/*.csv", "*", "[ab].csv", "*.geojson", "nothing-*"))
    if random.random() < 0.3:
        drawn["path"] = random.choice(
            (
                "{name}",
                "{window.start:date}/{name}",
                "{window.start:%Y/%j/%H}/{relpath}",
                "same.csv",
                "{source}/{dataset}-{name}",
                "{partition}/{name}",
            )
        )
    for field, values, chance in (
        ("mode", ("merge", "replace"), 0.4),
        ("window", WINDOWS, 0.5),
        ("time_zone", ZONES, 0.5),
        ("partition", ("p1", "ü"), 0.2),
        ("output_version", ("v1", "v-ü"), 0.3),
        ("idempotent", (False,), 0.1),
    ):
        if random.random() < chance:
            drawn[field] = random.choice(values)
    if random.random() < 0.35:
        drawn["contract"] = "contract.yaml"
    return drawn
