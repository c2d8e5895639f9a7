"""SQS: what the emulators can't be made to do is done by a stand-in for the client."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable, ConfigError
from kfm.nodd.dataset_registry import IntakePolicy, load_registry
from kfm.nodd.dead_letters import DrainCounts, drain
from kfm.nodd.messages.record_outcomes import Arrival, parse_message
from kfm.nodd.queues.sqs import SqsQueue, open_sqs
from kfm.ports import QueueMessage
from tests import services
from tests.conformance.queues.senders import Fanned, all_of, bodies, credentials, receipts, s3_event, texts

REGION = services.S3_REGION
NOW_MS = 1_790_000_000_000


@pytest.mark.req("WAL-20")
def test_announcements_fan_out_and_dead_letters_are_drained(emulator: str) -> None:
    """Topic → queue → two failed tries → dead-letter queue → drained: every object arrives, none twice."""
    fanned = Fanned(emulator)
    registry = load_registry(IntakePolicy(topics=(fanned.topic,)))
    for number in range(12):
        fanned.publish(s3_event(number))
    queue, dead = fanned.open(fanned.url), fanned.open(fanned.dead_url)
    seen: set[str] = set()

    def take_in(messages: list[QueueMessage]) -> list[str]:
        for message in messages:
            (outcome,) = parse_message(message.body, registry, NOW_MS)
            assert isinstance(outcome, Arrival)
            assert outcome.announced.topic == fanned.topic
            assert outcome.reading.object_uri not in seen
            seen.add(outcome.reading.object_uri)
        return receipts(messages)

    first = all_of(queue, 12, 2_000)
    assert queue.acknowledge(take_in(first[:5])) == []
    queue.put_back(receipts(first[5:]))
    second = all_of(queue, 7, 2_000)
    assert {message.receives for message in second} == {2}
    queue.put_back(receipts(second))
    assert queue.receive(10, 0) == []  # a third time they go elsewhere
    drained = drain(dead, take_in, messages_max=1_000)
    assert drained == DrainCounts(received=7, durable=7, left=0)
    assert len(seen) == 12
    assert (queue.receive(10, 0), dead.receive(10, 0)) == ([], [])
    queue.close()
    dead.close()


@pytest.mark.req("WAL-20")
def test_a_queue_that_is_not_there_is_named(emulator: str) -> None:
    """The error names queue and way out, and does not ask to be tried again."""
    address = f"{emulator}/123456789012/nowhere"
    queue = open_sqs(address, name="mrms", region=REGION, endpoint_url=emulator)
    with pytest.raises(BackendUnavailable, match="mrms") as caught:
        queue.receive(1, 0)
    assert caught.value.facts["transient"] is False
    assert "url" in caught.value.way_out


# --- drained -------------------------------------------------------------------------


class FakeQueue:
    """A queue in memory that forgets nothing."""

    name = "dead"

    def __init__(self, count: int) -> None:
        self.waiting = [
            QueueMessage(receipt=text, body=text.encode(), message_id=text) for text in bodies(count)
        ]
        self.gone: list[str] = []

    def receive(self, limit: int, wait_ms: int) -> list[QueueMessage]:
        found, self.waiting = self.waiting[:limit], self.waiting[limit:]
        self.out = {message.receipt: message for message in found}
        return found

    def acknowledge(self, given: Any) -> list[str]:
        self.gone += given
        return []

    def put_back(self, given: Any) -> None:
        self.waiting += [self.out[receipt] for receipt in given]

    def close(self) -> None: ...


def test_drained_messages_leave_only_when_durable() -> None:
    """What could not be handed on is put back, and a drain that gets nowhere ends."""
    queue = FakeQueue(250)
    drained = drain(queue, lambda found: receipts(found)[:60], messages_max=230)
    assert drained == DrainCounts(received=230, durable=150, left=80)
    assert len(queue.gone) == 150
    assert len(queue.waiting) == 100
    assert drain(queue, lambda _found: [], messages_max=10_000) == DrainCounts(received=100, left=100)
    assert len(queue.waiting) == 100
    with pytest.raises(ZeroDivisionError):
        drain(queue, lambda found: [str(1 // (len(found) - 100))], messages_max=100)
    assert len(queue.waiting) == 100


# --- a client that misbehaves --------------------------------------------------------


class Client:
    """Answers as it is told."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []

    def _answer(self, **call: Any) -> Any:
        self.calls.append(call)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    receive_message = delete_message_batch = change_message_visibility_batch = _answer


def refusal(code: str, status: int) -> Exception:
    from botocore.exceptions import ClientError

    said = {"Code": code, "Message": "because of AKIAIOSFODNN7EXAMPLE"}
    response: Any = {"Error": said, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "ReceiveMessage")


def queue_of(*answers: Any) -> tuple[SqsQueue, Client]:
    client = Client(*answers)
    return SqsQueue(client, "https://sqs.us-east-1.amazonaws.com/1/q", name="q"), client


def handed(*numbers: int) -> dict[str, Any]:
    return {"Messages": [{"MessageId": f"m{n}", "ReceiptHandle": f"r{n}", "Body": f"{n}"} for n in numbers]}


def test_partial_failures_come_back() -> None:
    """Of each batch of ten those that were not deleted are returned, whether the answer names them or not."""
    failed = {"Failed": [{"Id": "9", "Code": "InternalError"}], "Successful": [{"Id": "0"}, {"Id": "2"}]}
    queue, client = queue_of(failed, {"Successful": [{"Id": "0"}]}, {})
    given = [f"r{number}" for number in range(13)]
    assert queue.acknowledge([*given, "r0"]) == ["r1", *given[3:10], "r11", "r12"]
    assert [len(call["Entries"]) for call in client.calls] == [10, 3]


def test_passing_trouble_leaves_messages_to_come_again() -> None:
    """A batch that could not be sent is returned; the next one is sent nevertheless."""
    from botocore.exceptions import ReadTimeoutError

    whole = {"Successful": [{"Id": "0"}, {"Id": "1"}]}
    queue, _ = queue_of(refusal("InternalFailure", 500), whole, ReadTimeoutError(endpoint_url="x"), whole)
    given = [f"r{number}" for number in range(12)]
    assert queue.acknowledge(given) == given[:10]
    queue.put_back(["r1"])  # and this is no more than an attempt


@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException", "ExpiredToken"])
def test_being_refused_to_delete_is_said(code: str) -> None:
    """Without the right to delete the same messages would come for ever, in silence."""
    queue, _ = queue_of(refusal(code, 403))
    with pytest.raises(BackendUnavailable) as caught:
        queue.acknowledge(["r1"])
    assert "sqs:DeleteMessage" in caught.value.way_out
    assert "AKIA" not in str(caught.value)


def test_trouble_after_some_were_received_loses_none() -> None:
    """What the first call brought is handed on at once, not left to time out."""
    queue, client = queue_of(handed(*range(10)), refusal("ServiceUnavailable", 503))
    assert len(queue.receive(30, 5_000)) == 10
    assert [call["WaitTimeSeconds"] for call in client.calls] == [5, 0]


def test_calls_are_bounded() -> None:
    """A queue that hands out single messages is not asked more often than one that hands out ten."""
    queue, client = queue_of(*(handed(number) for number in range(9)))
    assert texts(queue.receive(30, 999_999)) == ["0", "1", "2"]
    assert [call["WaitTimeSeconds"] for call in client.calls] == [20, 0, 0]
    assert [call["MaxNumberOfMessages"] for call in client.calls] == [10, 10, 10]


@pytest.mark.parametrize("attributes", [None, {}, {"ApproximateReceiveCount": "x"}])
def test_counts_may_be_missing(attributes: Any) -> None:
    """Emulators forget attributes; half a surrogate pair is refused later as no UTF-8, not here."""
    found = {"ReceiptHandle": "r", "Body": "\ud800", "Attributes": attributes}
    queue, _ = queue_of({"Messages": [found]})
    (message,) = queue.receive(1, 0)
    assert (message.receives, message.message_id) == (1, "")
    (outcome,) = parse_message(message.body, load_registry(), NOW_MS)
    assert getattr(outcome, "error_code", None) == "BODY_NOT_UTF8"


@pytest.mark.parametrize(
    ("code", "status", "transient", "cause"),
    [
        ("ThrottlingException", 400, True, "throttled"),
        ("RequestThrottled", 403, True, "throttled"),
        ("OverLimit", 403, True, "throttled"),
        ("InternalError", 500, True, "unavailable"),
        ("", 503, True, "unavailable"),
        ("AWS.SimpleQueueService.NonExistentQueue", 400, False, "missing"),
        ("InvalidClientTokenId", 403, False, "access"),
        ("SignatureDoesNotMatch", 403, False, "access"),
        ("InvalidParameterValue", 400, False, "unavailable"),
    ],
)
def test_answers_are_told_apart(code: str, status: int, transient: bool, cause: str) -> None:
    """What passes is tried again, what does not is said with the way out."""
    queue, _ = queue_of(refusal(code, status))
    with pytest.raises(BackendUnavailable) as caught:
        queue.receive(1, 0)
    assert (caught.value.facts["transient"], caught.value.facts["cause"]) == (transient, cause)
    assert caught.value.way_out != BackendUnavailable.remedy


# --- the library, set up as we want it -----------------------------------------------


@pytest.fixture
def broken_server() -> Iterator[tuple[str, list[str]]]:
    """A server that answers 500 to everything, and what it was asked."""
    asked: list[str] = []

    class Broken(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.headers.get("x-amz-target", ""))
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(500)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_library_does_not_retry(
    monkeypatch: pytest.MonkeyPatch, broken_server: tuple[str, list[str]]
) -> None:
    """One call is one request: retries have one place, and it is not here."""
    credentials(monkeypatch)
    address, asked = broken_server
    queue = open_sqs(f"{address}/1/q", name="q", region=REGION, endpoint_url=address)
    with pytest.raises(BackendUnavailable) as caught:
        queue.receive(1, 0)
    assert caught.value.facts["transient"] is True
    assert asked == ["AmazonSQS.ReceiveMessage"]


def test_a_server_that_is_away_is_passing_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection may be accepted next time."""
    credentials(monkeypatch)
    address = f"http://127.0.0.1:{services.free_port()}"
    queue = open_sqs(f"{address}/1/q", name="q", region=REGION, endpoint_url=address)
    with pytest.raises(BackendUnavailable) as caught:
        queue.receive(1, 0)
    assert caught.value.facts["transient"] is True
    assert queue.acknowledge(["r"]) == ["r"]
    queue.put_back(["r"])


def test_without_credentials_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch, broken_server: tuple[str, list[str]]
) -> None:
    """And the error says what is needed."""
    credentials(monkeypatch)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    address, asked = broken_server
    queue = open_sqs(f"{address}/1/q", name="q", region=REGION, endpoint_url=address)
    with pytest.raises(BackendUnavailable) as caught:
        queue.receive(1, 0)
    assert caught.value.facts["transient"] is False
    assert "sqs:ReceiveMessage" in caught.value.way_out
    assert asked == []


def test_regions_are_in_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of Amazon's needs no region beside its url; others do, and say so."""
    credentials(monkeypatch)
    for url in ("https://sqs.eu-central-1.amazonaws.com/1/q", "https://eu-central-1.queue.amazonaws.com/1/q"):
        assert open_sqs(url, name="q")._client.meta.region_name == "eu-central-1"
    with pytest.raises(ConfigError, match="region"):
        open_sqs("http://127.0.0.1:9/1/q", name="q", endpoint_url="http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="hide"):
        open_sqs("https://sqs.eu-central-1.amazonaws.com/1/q", name="q", visibility_ms=10)
