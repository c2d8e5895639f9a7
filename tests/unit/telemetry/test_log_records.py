"""Log records: no secret passes the filter, and each record has the ids of its run."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.cli.logs import JsonFormatter, TextFormatter
from kfm.model.errors import LEDGER, BackendUnavailable, outage_of
from kfm.model.redaction import Discretion
from kfm.telemetry import log_records
from kfm.telemetry.log_records import (
    CorrelationFilter,
    LibraryHandler,
    OutageFilter,
    RedactionFilter,
    extra_of,
)

SECRET = "s3same/Open+ you=1234"
SPELLINGS = (
    SECRET,
    quote(SECRET),
    quote(SECRET, safe=""),
    base64.b64encode(SECRET.encode()).decode(),
    SECRET.encode().hex(),
)
NOW_MS = 1_767_225_600_125


class Kept(logging.Handler):
    """Every record in both forms."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.text: list[str] = []
        self.json: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.text.append(TextFormatter().format(record))
        self.json.append(JsonFormatter(lambda: NOW_MS).format(record))


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    """A logger of its own, whose only handler has both filters."""
    handler = Kept()
    handler.addFilter(CorrelationFilter())
    handler.addFilter(RedactionFilter(Discretion(lambda: [SECRET])))
    logger = logging.getLogger("kfm.tests.log_records")
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)


LOGGER = logging.getLogger("kfm.tests.log_records")


class Leaky:
    """What tells its secret when it is asked for its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"<{self.text}>"

    __repr__ = __str__


def raise_and_log(text: str) -> None:
    try:
        try:
            raise ValueError(text)
        except ValueError as error:
            raise RuntimeError("outer") from error
    except RuntimeError:
        LOGGER.exception("failed")


def stacked(text: str) -> logging.LogRecord:
    record = LOGGER.makeRecord(LOGGER.name, logging.INFO, __file__, 1, "m", (), None)
    record.stack_info = f"Stack (most recent call last):\n  {text}"
    return record


WAYS: dict[str, Callable[[str], None]] = {
    "message": lambda text: LOGGER.info(text.replace("%", "%%") if "%" not in text else f"m {text}"),
    "argument": lambda text: LOGGER.info("a %s b", text),
    "object": lambda text: LOGGER.info("a %r", Leaky(text)),
    "argument by name": lambda text: LOGGER.info("a %(x)s", {"x": text}),
    "arguments that do not fit": lambda text: LOGGER.info(f"{text} %d %d", "x"),
    "extra": lambda text: LOGGER.info("m", extra={"dataset": text}),
    "extra, inside": lambda text: LOGGER.info("m", extra={"facts": {"a": [{"b": (text,)}], text: 1}}),
    "extra, an object": lambda text: LOGGER.info("m", extra={"thing": Leaky(text)}),
    "exception": raise_and_log,
    "stack": lambda text: LOGGER.handle(stacked(text)),
}


@pytest.mark.req("TRG-9")
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("way", WAYS)
def test_no_secret_passes(kept: Kept, way: str, spelling: str) -> None:
    """Wherever a record holds a known secret, and however it is spelt, no form of the record shows it."""
    WAYS[way](f"x{spelling}y" if "%" not in spelling or way != "message" else spelling)
    record = kept.records[-1]
    assert (record.args, record.exc_info) == (None, None), "a handler may look at objects"
    for shown in (kept.text[-1], kept.json[-1], repr(vars(record)), repr(record.args), repr(record.exc_info)):
        assert spelling not in shown
        assert SECRET not in shown


@pytest.mark.parametrize(
    ("name", "value"), [("password", "abc"), ("api_token", "abc"), ("facts", {"secret": "abc"})]
)
def test_a_field_with_a_secret_name_is_masked(kept: Kept, name: str, value: Any) -> None:
    """A value that is not declared is still kept back where its name tells what it is."""
    LOGGER.info("m", extra={name: value})
    assert "abc" not in repr(vars(kept.records[-1]))
    assert "abc" not in kept.json[-1]


def test_what_looks_like_a_secret_is_masked(kept: Kept) -> None:
    """Without any configuration, headers, passwords in addresses and known shapes go."""
    LOGGER.warning(
        "%s", "Authorization: Bearer abcdefgh12345678 at https://u:hidden@host/ AKIAABCDEFGHIJKLMNOP"
    )
    for part in ("abcdefgh12345678", "hidden", "AKIAABCDEFGHIJKLMNOP"):
        assert part not in kept.text[-1]


@given(
    st.text(max_size=80), st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=20), max_size=3)
)
def test_json_is_one_object_a_line(kept: Kept, message: str, facts: dict[str, str]) -> None:
    """Whatever a message and its fields hold, the line is one object of ASCII without a line break."""
    LOGGER.error("%s", message, extra={"facts": facts})
    line = kept.json[-1]
    assert line.isascii()
    assert len(line.splitlines()) == 1
    told = json.loads(line)
    assert (told["level"], told["logger"], told["time"]) == ("error", LOGGER.name, "2026-01-01T00:00:00.125Z")


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_the_level_is_the_records(kept: Kept, level: str) -> None:
    """Not what its first word says."""
    getattr(LOGGER, level)("error: warning: x")
    assert json.loads(kept.json[-1])["level"] == level
    assert kept.text[-1] == "error: warning: x"


def test_fields_keep_their_types(kept: Kept) -> None:
    """Known fields stand beside the message, others below `fields`; numbers stay numbers."""
    LOGGER.info(
        "m", extra={"run_id": "r", "attempt": 2, "delay_ms": 5, "share": 0.5, "odd": float("nan"), "no": None}
    )
    told = json.loads(kept.json[-1])
    assert (told["run_id"], told["attempt"]) == ("r", 2)
    assert told["fields"] == {"delay_ms": 5, "share": 0.5, "odd": "nan"}


@pytest.mark.req("TRG-9")
def test_threads_have_the_ids_of_their_own_runs(kept: Kept) -> None:
    """Two runs at once do not take each other's ids; a thread that copies the context keeps its run's."""
    barrier = threading.Barrier(2)

    def work(run_id: str) -> None:
        log_records.begin(log_records.Correlation(run_id=run_id, attempt=1))
        barrier.wait(10)
        LOGGER.info("of %s", run_id)
        helper = threading.Thread(target=copy_context().run, args=(LOGGER.info, "of %s", run_id))
        helper.start()
        helper.join()
        log_records.end()
        LOGGER.info("of None")

    before = len(kept.records)
    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = kept.records[before:]
    assert len(told) == 6
    for record in told:
        assert f"of {extra_of(record).get('run_id')}" == record.getMessage()


def test_a_record_that_names_a_run_keeps_it(kept: Kept) -> None:
    """What was given outright is not replaced by the run that is under way."""
    with log_records.correlated(run_id="mine", dataset="levels"):
        LOGGER.info("m", extra={"run_id": "another"})
    assert extra_of(kept.records[-1])["run_id"] == "another"
    assert extra_of(kept.records[-1])["dataset"] == "levels"


def test_handlers_of_an_application_get_masked_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once kfm is opened, handlers on `kfm` and on the root see neither secrets nor objects that hold them,
    also those that were there before."""
    monkeypatch.setattr(log_records, "LIBRARY", LibraryHandler())
    discretion, root, early = Discretion(lambda: [SECRET]), Kept(), Kept()
    own = logging.getLogger("kfm.tests.library")
    monkeypatch.setattr(logging.getLogger("kfm"), "handlers", [early])
    logging.getLogger().addHandler(root)
    try:
        log_records.install(discretion)
        log_records.install(discretion)
        own.warning("told %s", SECRET, extra={"provider": SECRET})
        assert logging.getLogger("kfm").handlers == [log_records.LIBRARY, early]
    finally:
        logging.getLogger().removeHandler(root)
    assert SECRET not in repr(vars(root.records[0]))
    assert SECRET not in f"{early.text}{early.json}"
    assert root.text[0].startswith("told ")


def test_secrets_of_a_configuration_that_is_gone_are_forgotten() -> None:
    """Masking costs as much as there are configurations in use, not as many as there were."""
    handler = LibraryHandler()
    for number in range(50):
        handler.know(Discretion(lambda number=number: [f"secret-number-{number}"]))
    assert len(handler._known) <= 2


@pytest.mark.req("CLI-1")
def test_an_outage_is_one_line_for_all_threads_and_tries() -> None:
    """However many meet it, and however often, the first says so; the first of a later outage says how many
    lines were left out; what is not about an outage is always shown."""
    now, shown = [0.0], []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.append(record.getMessage())

    handler, logger = Kept(), logging.Logger("kfm.test")
    handler.addFilter(OutageFilter(lambda: now[0]))
    logger.addHandler(handler)
    error = BackendUnavailable("kfm.db: disk I/O error.", backend=LEDGER)

    def meet(part: int) -> None:
        for _ in range(20):
            logger.warning("part-%d: %s", part, error.detail, extra=outage_of(error))

    threads = [threading.Thread(target=meet, args=(part,)) for part in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shown) == 1
    assert shown[0].endswith(": kfm.db: disk I/O error.")
    logger.warning("a target is behind", extra=outage_of(BackendUnavailable("x")))
    now[0] += 61
    meet(8)
    assert shown[1:] == [
        "a target is behind",
        "part-8: kfm.db: disk I/O error. (139 such lines were left out before)",
    ]
