"""From a real ledger to Prometheus' text, read back with Prometheus' own client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from kfm.db.ledger import Ledger
from kfm.model import audit
from kfm.model.breaker import on_failure
from kfm.model.energy import Energy
from kfm.model.records import Run
from kfm.model.redaction import mask
from kfm.model.runs import Attempt, AttemptRecord, CallRetry, ChainLink, Step
from kfm.model.settings import Care, DatasetSettings, Rights, Settings, SourceSettings
from kfm.telemetry.exporter import PublicNames
from kfm.telemetry.exposition import documents, exposition, told_by_ledger
from kfm.telemetry.ledger_metrics import Chain, Folding
from kfm.telemetry.metric_catalogue import metrics
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import Desk
from tests.stand_ins import FakeClock

DATASET = "ks-streamflow"
ENERGY = Energy(cpu_us=1_500_000, energy_uwh=250, co2_ug=83, assumption="test")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(ledgers.START_MS)


@pytest.fixture
def store(clock: FakeClock) -> Iterator[Ledger]:
    opened = ledgers.memory_store(clock)
    yield opened
    opened.close()


def samples(folding: Folding, store: Ledger, public: Any = str) -> dict[tuple[str, tuple[Any, ...]], float]:
    """(name, labels) → value, as Prometheus would read it."""
    text = exposition(folding.fold(store, public, [DATASET], "1.2"))
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, "one series twice"
            found[key] = sample.value
    return found


def series(name: str, **labels: str) -> tuple[str, tuple[Any, ...]]:
    return name, tuple(sorted(labels.items()))


def end(run: Run, ending: Any, duration_ms: int, **changes: Any) -> AttemptRecord:
    attempt = Attempt(
        run_id=run.run_id,
        attempt=run.attempts,
        node="",
        lineage_id="x",
        invocation_id="x",
        started_at_ms=ledgers.START_MS,
        ended_at_ms=ledgers.START_MS + duration_ms,
        ending=ending,
        energy=ENERGY,
    )
    return AttemptRecord(attempt=replace(attempt, **changes))


RUNS = {"dataset": DATASET, "trigger": "manual"}


@pytest.mark.req("UPD-15", "RS-11")
def test_attempts_nodes_and_retries_are_counted(store: Ledger, clock: FakeClock) -> None:
    """Each attempt, node and retry counts once, with its duration, energy and ending."""
    desk, folding = Desk(store), Folding()
    run = desk.admitted("one")
    fetch = replace(end(run, None, 0).attempt, node="fetch", ended_at_ms=None, energy=None)
    assert store.step(Step(run=run, opens=AttemptRecord(attempt=fetch)))
    under_way = samples(folding, store)
    assert under_way[series("kfm_updater_runs_open", dataset=DATASET)] == 1
    assert series("kfm_updater_runs_total", **RUNS, outcome="complete") not in under_way

    retry = CallRetry(
        run_id=run.run_id, attempt=1, node="fetch", call=1, number=1, delay_ms=400, error_class="http-5xx",
        retryable=True, outcome="retried", circuit_open=False, at_ms=ledgers.START_MS,
    )  # fmt: skip
    ended = replace(
        fetch, ended_at_ms=ledgers.START_MS + 70, ending="complete", outcome="success", energy=ENERGY
    )
    last = replace(retry, number=2, outcome="gave-up")
    assert store.step(Step(run=run, closes=AttemptRecord(attempt=ended), retries=(retry, last)))
    clock.passed_ms += 1500
    assert desk.promote(run, closes=(end(run, "complete", 1500),)).answer == "promoted"
    for _ in range(2):  # what was counted is not counted again
        after = samples(folding, store)
        assert after[series("kfm_updater_runs_open", dataset=DATASET)] == 0
        assert after[series("kfm_updater_runs_total", **RUNS, outcome="complete")] == 1
        assert after[series("kfm_updater_runs_total", **RUNS, outcome="fail")] == 0
        labels = {"dataset": DATASET, "outcome": "complete"}
        assert after[series("kfm_updater_run_duration_seconds_sum", **labels)] == 1.5
        assert after[series("kfm_updater_run_duration_seconds_bucket", **labels, le="1")] == 0
        assert after[series("kfm_updater_run_duration_seconds_bucket", **labels, le="2.5")] == 1
        assert after[series("kfm_updater_cpu_seconds_total", dataset=DATASET, retry="false")] == 1.5
        assert after[series("kfm_updater_energy_wh_total", dataset=DATASET, retry="false")] == 0.00025
        written = series("kfm_pattern_node_writes_total", dataset=DATASET, node="fetch", outcome="success")
        assert after[written] == 1
        assert after[series("kfm_pattern_node_co2_g_total", dataset=DATASET, node="fetch")] == 0.000083
        error = {"node": "fetch", "error_class": "http-5xx"}
        assert after[series("kfm_call_retries_total", **error)] == 1
        assert after[series("kfm_call_gave_up_total", **error)] == 1
        assert after[series("kfm_call_wait_seconds_total", node="fetch")] == 0.4
        assert after[series("kfm_updater_invocations_total", **RUNS, outcome="success")] == 1
        assert after[series("kfm_dataset_head_sequence", dataset=DATASET)] == 1
    assert samples(Folding(), store) == after, "read at once or bit by bit, it is the same"


def test_reading_on_is_what_reading_at_once_is(store: Ledger) -> None:
    """However often a collector scrapes in between, the totals are those of one reading at the end."""
    desk, often, rarely = Desk(store), Folding(), Folding()
    run = desk.admitted("one")
    samples(often, store)
    assert desk.fail(run)
    samples(often, store)
    answer = desk.again(store.run(run.run_id) or run)
    assert answer.run is not None
    samples(often, store)
    assert desk.promote(answer.run).answer == "promoted"
    store.record_invocation(ledgers.invocation(9, None, outcome="refused"))
    store.record_invocation(ledgers.invocation(10, run, outcome="noop"))
    found = samples(often, store)
    assert found == samples(rarely, store)
    assert found[series("kfm_updater_retries_total", **RUNS)] == 1
    for outcome in ("success", "failed", "refused", "noop"):
        assert found[series("kfm_updater_invocations_total", **RUNS, outcome=outcome)] == 1


def test_how_things_stand(store: Ledger, clock: FakeClock) -> None:
    """Switches, backlog, freshness and the ledger's length are read as they are now."""
    store.set_switch(ledgers.switch("paused", f"dataset:{DATASET}"), ledgers.entry("switch"))
    run = Desk(store).admitted("one")
    clock.passed_ms += 90_000
    found = samples(Folding(), store)
    assert found[series("kfm_switch_position", scope=f"dataset:{DATASET}")] == 1
    assert found[series("kfm_switch_set_timestamp_seconds", scope=f"dataset:{DATASET}")] == 1_767_225_600
    assert found[series("kfm_outbox_waiting", topic="openlineage")] == 1
    assert found[series("kfm_outbox_oldest_age_seconds", topic="openlineage")] == 90
    assert found[series("kfm_audit_chain_length")] == 1
    assert found[series("kfm_audit_chain_broken")] == 0
    assert found[series("kfm_build_info", version="1.2")] == 1
    assert series("kfm_dataset_last_success_timestamp_seconds", dataset=DATASET) not in found
    store.record_invocation(
        ledgers.invocation(7, run, outcome="noop", requested_at_ms=ledgers.START_MS + 5_500)
    )
    found = samples(Folding(), store)
    last = series("kfm_dataset_last_success_timestamp_seconds", dataset=DATASET)
    assert found[last] == 1_767_225_605.5


@pytest.mark.req("RS-13")
def test_datasets_that_must_not_be_named_are_masked(store: Ledger) -> None:
    """A restricted dataset, and one that no configuration describes, appear by their masks only."""
    store.ensure_mark("mask_key", "key")
    store.set_switch(ledgers.switch("paused", f"dataset:{DATASET}"), ledgers.entry("switch"))
    desk = Desk(store)
    assert desk.fail(desk.admitted("one"))
    restricted = Rights(license="CC0-1.0", care=Care(label="x", level="restricted"))
    for settings in (
        Settings(datasets=(DatasetSettings(id=DATASET, rights=restricted),)),
        Settings(datasets=(DatasetSettings(id=DATASET),)),
        Settings(),
    ):
        text = exposition(Folding().fold(store, PublicNames(settings, store), [DATASET], "1"))
        assert DATASET not in text
        assert f'dataset="{mask(DATASET, "key")}"' in text
        assert f'scope="dataset:{mask(DATASET, "key")}"' in text
    public = Rights(license="CC0-1.0", care=Care(label="x"))
    names = PublicNames(Settings(datasets=(DatasetSettings(id=DATASET, rights=public),)), store)
    assert names(DATASET) == DATASET


@pytest.mark.req("RET-7", "RS-13")
def test_breakers_are_told_and_providers_of_hidden_datasets_are_masked(store: Ledger) -> None:
    """The state of each provider, by its name only where a public dataset comes from it."""
    for provider in ("open.example.org", "hidden.example.org", "from-code"):
        for _ in range(3):
            store.change_breaker(provider, on_failure)
    store.ensure_mark("mask_key", "key")
    public = DatasetSettings(id="shown", rights=Rights(license="CC0-1.0", care=Care(label="x")))
    sources = (
        SourceSettings(id="a", dataset="shown", kind="http", url="https://open.example.org/"),
        SourceSettings(id="b", dataset=DATASET, kind="http", url="https://hidden.example.org/"),
    )
    names = PublicNames(Settings(datasets=(public, DatasetSettings(id=DATASET)), sources=sources), store)
    text = exposition(Folding().fold(store, names, [DATASET], "1", names.provider))
    assert 'kfm_breaker_state{provider="open.example.org"} 2' in text
    assert "hidden.example.org" not in text
    assert "from-code" not in text
    assert f'kfm_breaker_state{{provider="{mask("hidden.example.org", "key")}"}} 2' in text


def test_a_dataset_that_is_gone_keeps_its_last_rights(store: Ledger) -> None:
    """What was published as public may still be named once the configuration has forgotten it."""
    assert PublicNames(Settings(), store)(DATASET) == "masked"
    desk = Desk(store)
    assert desk.promote(desk.admitted("one")).answer == "promoted"
    assert PublicNames(Settings(), store)(DATASET) == DATASET


def test_text_is_the_same_each_time_and_survives_any_label(store: Ledger) -> None:
    """Order is fixed, and a name with quotes, line feeds or half a character breaks nothing."""
    desk = Desk(store)
    assert desk.promote(desk.admitted("one")).answer == "promoted"
    hostile = 'a"b\\c\nd\ud800e{}# HELP'
    texts = {exposition(Folding().fold(store, lambda _: hostile, [DATASET], "1")) for _ in range(3)}
    assert len(texts) == 1
    found = samples(Folding(), store, lambda _: hostile)
    assert found[series("kfm_dataset_head_sequence", dataset=hostile.replace("\ud800", "?"))] == 1


def test_every_metric_of_the_ledger_has_help_and_type(store: Ledger) -> None:
    """Also an empty ledger tells which metrics there are, and of what kind."""
    families = {
        family.name: family for family in text_string_to_metric_families(
            exposition(Folding().fold(store, str, [], "1"))
        )
    }  # fmt: skip
    for metric in told_by_ledger():
        counted = metric.kind == "counter"
        family = families[metric.exposed.removesuffix("_total") if counted else metric.exposed]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
    assert len(families) == len([metric for metric in metrics().values() if "ledger" in metric.origins])


def test_documents_say_the_same(store: Ledger) -> None:
    """The JSON form has every series of the text form."""
    desk = Desk(store)
    assert desk.promote(desk.admitted("one")).answer == "promoted"
    tallies = Folding().fold(store, str, [DATASET], "1")
    rows = {row["name"]: row for row in documents(tallies)}
    assert rows["kfm.dataset.head_sequence"]["series"] == [{"labels": {"dataset": DATASET}, "value": 1}]
    (duration,) = rows["kfm.updater.run_duration_seconds"]["series"]
    assert duration["count"] == duration["buckets"][-1]["count"] == 1


# --- the chain -----------------------------------------------------------------------


class Links:
    """A audit log that anybody may write to."""

    def __init__(self, count: int) -> None:
        self.links: list[ChainLink] = list(
            audit.chained([ledgers.entry(f"kind-{each}") for each in range(count)])
        )
        self.head = self._end()

    def _end(self) -> tuple[int, str]:
        return (self.links[-1].number, self.links[-1].hash) if self.links else (0, audit.ZEROS)

    def append(self) -> None:
        number, previous = self._end()
        self.links.append(audit.link(previous, number + 1, ledgers.entry("later")))
        self.head = self._end()

    def chain_head(self) -> tuple[int, str]:
        return self.head

    def chain(self, after: int, limit: int) -> list[ChainLink]:
        return [link for link in self.links if link.number > after][:limit]


@pytest.mark.parametrize("count", [0, 1, 1000, 2001])
def test_a_sound_chain_is_followed(count: int) -> None:
    """However long it is and while it grows, a chain that no person changed is sound."""
    links, chain = Links(count), Chain()
    assert chain.follow(links) == (count, False)  # type: ignore[arg-type]
    links.append()
    assert chain.follow(links) == (count + 1, False)  # type: ignore[arg-type]
    assert chain.follow(links) == (count + 1, False)  # type: ignore[arg-type]


@pytest.mark.req("GOV-2")
@pytest.mark.parametrize("harm", ["edit", "delete", "swap", "truncate", "rewrite-head", "no-hash"])
def test_a_broken_chain_is_seen_and_stays_broken(harm: str) -> None:
    """Edits, deletions, swaps and cuts show at the next scrape, also if they are undone later."""
    links, chain = Links(10), Chain()
    whole, head = list(links.links), links.head
    if harm == "edit":
        links.links[4] = replace(whole[4], entry=ledgers.entry("another"))
    elif harm == "delete":
        del links.links[4]
    elif harm == "swap":
        links.links[4], links.links[5] = replace(whole[5], number=5), replace(whole[4], number=6)
    elif harm == "truncate":
        del links.links[7:]
    elif harm == "rewrite-head":
        links.head = (10, "0" * 64)
    else:
        links.links[4] = replace(whole[4], hash="")
    assert chain.follow(links)[1]  # type: ignore[arg-type]
    links.links, links.head = whole, head
    assert chain.follow(links)[1]  # type: ignore[arg-type]


def test_a_chain_that_became_shorter_is_broken() -> None:
    """An end that was there at the last scrape and is gone at this one is seen, head and all."""
    links, chain = Links(10), Chain()
    assert chain.follow(links) == (10, False)  # type: ignore[arg-type]
    links.links = links.links[:7]
    links.head = (7, links.links[-1].hash)
    assert chain.follow(links) == (7, True)  # type: ignore[arg-type]
