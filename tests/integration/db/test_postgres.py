"""What only a server can do to us."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kfm.cli.doctor import _server
from kfm.db import admission, governance, promotion
from kfm.db.connection import open_ledger, open_store
from kfm.db.ledger_reader import LedgerReader
from kfm.db.postgres import PostgresDatabase
from kfm.db.postgres_pool import weaker_setting
from kfm.db.queries import applied, check, migrate, migration_files
from kfm.model.errors import (
    BackendUnavailable,
    ConfigError,
    ExtraMissing,
    LedgerBehind,
    StoreBusy,
    StoreUnsafe,
)
from kfm.system import SystemClock
from tests import services
from tests.conformance.db.ledgers import MINUTE_MS, Desk, alive, entry, new_run, postgres_store, switch


def _settings(database: PostgresDatabase, *names: str) -> list[str]:
    return [database.execute(f"SHOW {name}")[0][0] for name in names]


@pytest.mark.parametrize("setting", ["fsync", "synchronous_commit", "full_page_writes"])
def test_a_server_that_may_lose_commits_is_refused(setting: str) -> None:
    """The setting is named."""
    sound = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
    assert weaker_setting(sound | {setting: "off"}) == f"{setting}=off"
    assert weaker_setting(sound) is None


def test_a_role_that_may_lose_commits_is_refused(postgres_dsn: str) -> None:
    """Also where only this database, role or connection is set so; tests may, by name."""
    weak = f"{postgres_dsn}?options=-csynchronous_commit%3Doff"
    with pytest.raises(StoreUnsafe, match="synchronous_commit=off"):
        PostgresDatabase(weak)
    PostgresDatabase(weak, unsafe_for_tests=True).close()
    PostgresDatabase(weak, read_only=True).close()  # reading loses nothing


@pytest.mark.req("FLT-3")
def test_a_weaker_promise_is_told_by_the_doctor(postgres_dsn: str) -> None:
    """What a failover may lose is a warning; how full the server is, is told in any case."""
    for setting, states in (("on", ["ok"]), ("remote_write", ["warn", "ok"]), ("local", ["warn", "ok"])):
        address = f"{postgres_dsn}?options=-csynchronous_commit%3D{setting}"
        with closing(PostgresDatabase(address, read_only=True)) as database:
            found = list(_server(database))
        assert [one.state for one in found] == states
        assert re.search(
            r"PostgreSQL \d+.*: \d+ of 150 connections in use, \d+ by kfm here", found[-1].message
        )
        if setting != "on":
            assert f"synchronous_commit={setting}: a failover may lose" in found[0].message


def test_a_database_in_another_encoding_is_refused(postgres_dsn: str) -> None:
    """Names of places would not survive."""
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE kfm_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(StoreUnsafe, match="UTF8 is needed"):
                PostgresDatabase(postgres_dsn.rsplit("/", 1)[0] + "/kfm_latin")
        finally:
            admin.execute("DROP DATABASE kfm_latin WITH (FORCE)")


def test_a_connection_bounds_every_wait(postgres_dsn: str) -> None:
    """Locks, stalled transactions and isolation are set by us, whatever the server's defaults are."""
    database = PostgresDatabase(f"{postgres_dsn}?options=-cdefault_transaction_isolation%3Dserializable")
    names = "lock_timeout", "idle_in_transaction_session_timeout", "transaction_isolation"
    assert _settings(database, *names) == ["30s", "30s", "read committed"]
    database.close()


def test_a_reader_can_not_write(postgres_database: str) -> None:
    """The server itself refuses; a reader sees what is there."""
    reader = PostgresDatabase(postgres_database, read_only=True)
    assert reader.is_empty()
    with pytest.raises(BackendUnavailable, match="read-only"):
        migrate(reader, "postgresql", 1)
    assert reader.is_empty()
    store = postgres_store(postgres_database)
    Desk(store).admitted("a")
    assert not reader.is_empty()
    check(applied(reader.session))
    ledger = LedgerReader(reader)
    assert ledger.runs() == store.runs()
    with pytest.raises(BackendUnavailable, match="read-only"):
        reader.session.all("policy.advance")
    ledger.close()
    store.close()


def test_a_reader_of_an_older_database_is_told_what_to_do(postgres_database: str, tmp_path: Path) -> None:
    """What only a writer may change is named, and what none does by itself; afterwards it can be read."""
    old = PostgresDatabase(postgres_database)
    migrate(old, "postgresql", 0, migration_files()[:1])
    with pytest.raises(BackendUnavailable) as refused:
        open_ledger(postgres_database, str(tmp_path), SystemClock())
    assert "older kfm" in refused.value.message
    assert "kfm run" in refused.value.way_out
    with pytest.raises(LedgerBehind, match="lacks migration 2") as refused:
        open_store(postgres_database, str(tmp_path), SystemClock())
    assert "kfm migrate" in refused.value.way_out
    migrate(old, "postgresql", 0)
    old.close()
    assert open_ledger(postgres_database, str(tmp_path), SystemClock()).backlog("openlineage").waiting == 0


def test_a_server_that_is_not_there_is_said_without_its_password() -> None:
    """The message names the place and no secret."""
    dsn = f"postgresql://ada:hunter2@127.0.0.1:{services.free_port()}/kfm"
    with pytest.raises(BackendUnavailable) as refused:
        PostgresDatabase(dsn)
    assert "hunter2" not in refused.value.message
    assert "127.0.0.1" in refused.value.message


def test_a_malformed_address_is_said() -> None:
    """What no driver understands is a matter of the configuration, and is not quoted."""
    with pytest.raises(ConfigError, match="can't be read") as raised:
        PostgresDatabase("postgresql://localhost/kfm?no_such_option=1")
    assert "no_such_option" not in str(raised.value)


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is one installation."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ExtraMissing, match=r"kfm-kernel\[postgres\]"):
        PostgresDatabase("postgresql://localhost/kfm")


def test_a_row_that_is_held_for_too_long_is_said_in_our_words(postgres_database: str) -> None:
    """After the deadline our sentence, and the next try works."""
    postgres_store(postgres_database).close()
    store = postgres_store(postgres_database, wait_max_ms=250)
    run = Desk(store).admitted("a")
    with psycopg.connect(postgres_database) as other:
        other.execute("SELECT * FROM locks FOR UPDATE")
        with pytest.raises(StoreBusy, match="did not become free in time"):
            store.renew("dataset:ks-streamflow", run.fence, MINUTE_MS)
    assert store.renew("dataset:ks-streamflow", run.fence, MINUTE_MS) is not None
    store.close()


def test_a_stalled_transaction_does_not_hold_the_others_up(postgres_database: str) -> None:
    """A process that stops in the middle of a transaction loses it, and the rows it held are free again."""
    store = postgres_store(postgres_database)
    stalled = postgres_store(postgres_database, wait_max_ms=150)
    Desk(store).admitted("a")
    said: list[str] = []

    def stop(session: Any) -> None:
        session.one("locks.get_for_update", scope="dataset:ks-streamflow")
        said.append("holding")
        time.sleep(0.5)
        session.all("policy.advance")

    def stall() -> None:
        try:
            stalled._database.write(stop)
        except BackendUnavailable:
            said.append("lost")

    before = store.policy_epoch()
    thread = threading.Thread(target=stall)
    thread.start()
    while not said:
        time.sleep(0.005)
    assert store.renew("dataset:ks-streamflow", 1, MINUTE_MS) == (before, None)
    thread.join()
    assert said == ["holding", "lost"]
    assert store.policy_epoch() == before
    assert stalled.policy_epoch() == before  # connects again by itself
    stalled.close()
    store.close()


def test_a_restarted_server_is_found_again(postgres_database: str) -> None:
    """Between two calls no process notices; in the middle of one it fails, and the next one connects again,
    with the same settings."""
    store = postgres_store(postgres_database, wait_max_ms=1_234)
    with psycopg.connect(postgres_database, autocommit=True) as admin:
        cut = (
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name LIKE 'kfm %' AND datname = current_database()"
        )
        assert admin.execute(cut).fetchall() == [(True,)]
        store.append_governance([entry("kept")])

        def interrupted(session: Any) -> None:
            governance.append(session, [entry("lost")])
            admin.execute(cut)

        with pytest.raises(BackendUnavailable):
            store._database.write(interrupted)
    store.policy_epoch()
    assert [found.kind for found in store.governance()] == ["kept"]
    assert _settings(store._database, "lock_timeout") == ["1234ms"]  # type: ignore[arg-type]
    store.close()


def test_what_a_lost_transaction_expected_is_no_answer_of_a_later_one(postgres_database: str) -> None:
    """A transaction that ends while statements are on their way takes them with it: who reads the same
    thing afterwards, in no transaction of its own, asks the server."""
    with closing(postgres_store(postgres_database)) as store:
        before = store.policy_epoch()

        def cut_off(session: Any) -> None:
            session.expect("policy.epoch")
            raise ConnectionError("the host is away")

        with pytest.raises(ConnectionError):
            store.database.write(cut_off)
        assert store.policy_epoch() == before


def test_a_lost_race_is_run_again(postgres_database: str) -> None:
    """The victim of a deadlock tries again and lands; entries given as an iterator land once."""
    store = postgres_store(postgres_database)
    tries: list[int] = []

    class Lost(psycopg.errors.DeadlockDetected):
        sqlstate = "40P01"

    def change(session: Any) -> str:
        session.all("policy.advance")
        tries.append(1)
        if len(tries) < 3:
            raise Lost("chosen as the victim")
        return "landed"

    before = store.policy_epoch()
    assert store._database.write(change) == "landed"
    assert store.policy_epoch() == before + 1
    store.close()


def _together(*tasks: Callable[[], Any]) -> list[Any]:
    answers: list[Any] = [None] * len(tasks)
    start = threading.Barrier(len(tasks))

    def run(index: int) -> None:
        start.wait()
        try:
            answers[index] = tasks[index]()
        except Exception as error:
            answers[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not [answer for answer in answers if isinstance(answer, Exception)], answers
    return answers


@pytest.mark.req("UPD-8")
def test_collection_and_admission_never_both_get_in(postgres_database: str) -> None:
    """However they meet, either the collector waits for the run or the run for the collector."""
    first, second = Desk(postgres_store(postgres_database)), postgres_store(postgres_database)
    for number in range(30):
        admitted, collecting = _together(
            partial(first.admit, new_run(f"r{number}")),
            lambda: second.begin_collection("sweeper", MINUTE_MS, alive),
        )
        assert (admitted.answer == "admitted") != isinstance(collecting, int)
        if isinstance(collecting, int):
            second.end_collection(collecting, entry("gc"))
        else:
            assert first.fail(admitted.run)
    first.store.close()
    second.close()


@pytest.mark.req("GOV-1")
def test_a_switch_and_a_promotion_never_pass_each_other(postgres_database: str) -> None:
    """A promotion that lands was committed before the switch was, or has asked the gates after it."""
    first, second = Desk(postgres_store(postgres_database)), postgres_store(postgres_database)
    for number in range(30):
        run = first.admitted(f"r{number}")
        before = first.store.policy_epoch()
        promoted, epoch = _together(
            partial(first.promote, run, policy_epoch=before),
            lambda: second.set_switch(switch(), entry("switch")),
        )
        assert epoch == before + 1
        assert promoted.answer in {"promoted", "epoch-moved"}
        if promoted.answer == "promoted":
            head = first.store.head("ks-streamflow")
            assert head is not None
            assert head[0].policy_epoch == before
        else:
            assert first.fail(run)
    first.store.close()
    second.close()


@pytest.mark.req("GOV-1")
@pytest.mark.parametrize("compare", [admission.admit, promotion.promote])
def test_a_switch_waits_for_those_who_compared_the_epoch(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch, compare: Callable[..., Any]
) -> None:
    """Once a switch is thrown, nothing that was decided before it can still land."""
    first, second = Desk(postgres_store(postgres_database)), postgres_store(postgres_database)
    if compare is promotion.promote:
        run = first.admitted("a")
        task: Callable[[], Any] = partial(first.promote, run)
    else:
        task = partial(first.admit, new_run("a"))
    compared = threading.Event()
    thrown: list[float] = []
    real = governance.held_epoch

    def slowly(session: Any) -> int:
        epoch = real(session)
        compared.set()
        time.sleep(0.2)
        assert not thrown, "the switch was thrown between the comparison and the commit"
        return epoch

    def throw() -> None:
        compared.wait()
        second.set_switch(switch(), entry("switch"))
        thrown.append(time.monotonic())

    monkeypatch.setattr(governance, "held_epoch", slowly)
    answer, _ = _together(task, throw)
    assert answer.answer in {"admitted", "promoted"}
    first.store.close()
    second.close()


def test_two_locks_on_one_dataset_promote_one_after_the_other(postgres_database: str) -> None:
    """With locks of different scopes the head decides: one lands, the other has to build again."""
    desks = [Desk(postgres_store(postgres_database)) for _ in range(2)]
    desks[1].calls = 1_000
    scopes = ["dataset:ks-streamflow", "domain:hydrology"]
    sequence = 0
    for number in range(15):
        runs = [
            desk.admitted(f"{scope} {number}", scope=scope) for desk, scope in zip(desks, scopes, strict=True)
        ]
        answers = _together(
            *(
                partial(desk.promote, run, run.run_id, scope=scope, base_sequence=sequence)
                for desk, run, scope in zip(desks, runs, scopes, strict=True)
            )
        )
        assert sorted(answer.answer for answer in answers) == ["head-moved", "promoted"]
        sequence += 1
        for desk, run, scope, answer in zip(desks, runs, scopes, answers, strict=True):
            if answer.answer == "head-moved":
                assert desk.store.run(run.run_id).status == "running"  # type: ignore[union-attr]
                assert desk.promote(run, run.run_id, scope=scope).sequence == sequence + 1
        sequence += 1
    for desk in desks:
        desk.store.close()


def test_reapers_and_admissions_meet_without_harm(postgres_database: str) -> None:
    """Many who sweep, admit and collect at once: no process gets an error that is not an answer."""
    desks = [Desk(postgres_store(postgres_database)) for _ in range(4)]
    for index, desk in enumerate(desks):
        desk.calls = index * 1_000
    for number in range(10):
        for scope in ("dataset:a", "dataset:b"):
            desks[0].admit(new_run(f"{scope} {number}"), scope=scope, lease_ms=0)
        _together(
            lambda: desks[0].store.reap(alive),
            lambda: desks[1].store.reap(alive),
            partial(desks[2].admit, new_run(f"next {number}"), scope="dataset:b", lease_ms=0),
            lambda: desks[3].store.begin_collection("sweeper", 0, alive),
        )
        desks[0].store.reap(alive)
    assert desks[0].store.runs(status="running") == []
    for desk in desks:
        desk.store.close()
