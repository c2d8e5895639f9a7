"""`kfm explain` on the real kernel: true, checkable, and without a trace."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
CSV = "station,observed_at,level_m\nnorth,2026-01-01T00:00:00Z,{}\n"


@pytest.fixture
def begun(kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as `kfm init` makes it."""
    folder = project / "new"
    assert kfm("init", str(folder)).code == 0
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def lived(kfm: Kfm, begun: Path) -> Path:
    """It published twice, did nothing, was forced; was refused by a rule, by a contract, by a switch."""
    readings, config = begun / "incoming" / "readings.csv", begun / "kfm.yml"
    said = config.read_text()
    reasons = ("--rationale", "flood", "--ticket", "T-9")
    kfm("run")
    readings.write_text(CSV.format(2))
    kfm("run")
    kfm("run")
    kfm("run", "--force", *reasons)
    config.write_text(said.replace("level: public", "level: blocked"))
    assert kfm("run").code == 3
    config.write_text(said)
    readings.write_text(CSV.format("wet"))
    assert kfm("run").code == 3
    kfm("switch", "set", "paused", "--dataset", "example-readings", "--rationale", "checking")
    assert kfm("run").code == 3
    return begun


@contextmanager
def opened() -> Iterator[Any]:
    from kfm.app import open_app
    from kfm.config.loader import load

    with open_app(load(), read_only=True) as app:
        yield app.ledger


def ids() -> list[str]:
    """Everything that can be asked for."""
    with opened() as ledger:
        runs, calls = ledger.runs(limit=100), ledger.invocations(limit=100)
    tried = [f"{run.run_id}#{number}" for run in runs for number in range(1, run.attempts + 1)]
    return [
        *(run.run_id for run in runs),
        *tried,
        *(f"{place}/fetch" for place in tried),
        *(call.invocation_id for call in calls),
        *("example-readings", "readings"),
    ]


def tree_of(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file with its time and its bytes, the database's among them."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.req("RS-12")
def test_explaining_leaves_no_trace(kfm: Kfm, lived: Path) -> None:
    """Database bytes, files and folders are the same before and after, whatever is explained."""
    wanted = [*ids(), "KFM301", "nothing-like-it"]
    before = tree_of(lived)
    for each in wanted:
        kfm("explain", each)
        kfm("explain", each, "--json")
    assert tree_of(lived) == before


@pytest.mark.req("RS-12")
def test_every_sentence_can_be_checked(kfm: Kfm, lived: Path, valid: Valid) -> None:
    """Each names a record, and each of these records is there."""
    documents = [kfm("explain", each, "--json").document for each in ids()]
    with opened() as ledger:
        for document in documents:
            valid("explain", document)
            for sentence in (document["reason"], *document["chain"]):
                assert is_there(ledger, **sentence["record"]), sentence
    told = {sentence["record"]["type"] for document in documents for sentence in document["chain"]}
    assert told >= {"run", "invocation", "attempt", "governance", "promotion", "policy", "inputs", "letter"}


def is_there(ledger: Any, type: str, id: str) -> bool:
    """Is the record in the ledger?"""
    if type == "attempt":
        run_id, _, place = id.partition("#")
        number, _, node = place.partition("/")
        return any((row.attempt, row.node) == (int(number), node) for row in ledger.attempts(run_id))
    if type == "policy":
        bundle, _, name = id.rpartition("/")
        return name in (ledger.policy_texts(bundle) or {})
    if type == "promotion":
        dataset, _, sequence = id.rpartition("/")
        return ledger.promotion(dataset, int(sequence)) is not None
    if type == "governance":
        return any(link.number == int(id) for link in ledger.chain())
    if type == "letter":
        runs = ledger.runs(limit=100)
        return any(
            message.number == int(id) for run in runs for message in ledger.outbox_messages(run.run_id)
        )
    found = {"run": ledger.run, "invocation": ledger.invocation, "inputs": ledger.inputs}
    return type in ("dataset", "source") or found[type](id) is not None


@pytest.mark.req("RS-12", "CLI-1")
def test_the_first_line_is_the_reason(kfm: Kfm, begun: Path) -> None:
    """Ran because an input changed; skipped because none did; refused by a rule, with its text."""
    readings, config = begun / "incoming" / "readings.csv", begun / "kfm.yml"
    kfm("run")
    first, *_ = kfm("explain", "readings").out.splitlines()
    assert "published version 1 of example-readings because this work had not been done before." in first
    readings.write_text(CSV.format(2))
    kfm("run")
    changed, *_ = kfm("explain", "readings").out.splitlines()
    assert (
        "published version 2 of example-readings because input readings.csv changed: checksum from" in changed
    )
    kfm("run")
    run_id = kfm("runs", "--json").document["runs"][0]["run_id"]
    same, *_ = kfm("explain", "example-readings").out.splitlines()
    assert f"left it unchanged: its inputs equal those of run {run_id}, both are sha256:" in same
    config.write_text(config.read_text().replace("level: public", "level: blocked"))
    kfm("run")
    refused, *chain = kfm("explain", "example-readings").out.splitlines()
    assert "was refused: Rule care.blocked: The dataset" in refused
    assert "To unblock: No command lifts it" in refused
    assert any(
        line.startswith('Policy care.blocked says: @id("care.blocked")') and "[policy:" in line
        for line in chain
    )


@pytest.mark.req("RS-12")
def test_records_are_dimmed_on_a_terminal(kfm: Kfm, begun: Path) -> None:
    """They stand at the end of the line, and do not shout."""
    kfm("run")
    line = kfm("explain", "readings", "--color", "always").out.splitlines()[0]
    assert line.endswith("\x1b[2m[promotion:example-readings/1]\x1b[0m")
    assert "\x1b" not in kfm("explain", "readings").out


@pytest.mark.parametrize("what", ["example-readings", "readings", "RUN"])
def test_the_ledger_is_opened_once(kfm: Kfm, lived: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Whatever is explained, one connection reads all of it."""
    from kfm.config import state_folder

    with opened() as ledger:
        run_id = ledger.runs(limit=1)[0].run_id
    count: list[str] = []
    for name in ("open_ledger", "open_store"):
        real = getattr(state_folder, name)

        def counted(*given: Any, _real: Any = real, **named: Any) -> Any:
            count.append(_real.__name__)
            return _real(*given, **named)

        monkeypatch.setattr(state_folder, name, counted)
    assert kfm("explain", run_id if what == "RUN" else what).code == 0
    assert count == ["open_ledger"]


def test_a_dataset_of_another_folder_is_explained_there(
    kfm: Kfm, lived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--directory` names the ledger that is asked, also for a dataset."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    here = kfm("explain", "example-readings").out
    monkeypatch.chdir(elsewhere)
    assert kfm("explain", "example-readings", "--directory", str(lived)).out == here


@pytest.mark.req("RS-12")
def test_every_call_has_the_code_of_its_reason(kfm: Kfm, lived: Path) -> None:
    """Programs read why from a code: of the table that both languages have, or of the error."""
    from kfm.model.errors import all_errors
    from kfm.model.records import REASON_CODES

    with opened() as ledger:
        calls = ledger.invocations(limit=100)
    codes = {call.reason_code for call in calls}
    assert codes <= REASON_CODES.keys() | {error.code for error in all_errors()}
    assert codes >= {"first-time", "upstream-changed", "unchanged", "forced", "KFM301", "KFM303"}
    refused = {gate.code for call in calls for gate in call.gates if not gate.allowed}
    assert refused == {"rule", "contract-violated", "switch-thrown"}
