"""Amazon SQS, or an emulator of it, through boto3.

The library's own retries are off: a poll that failed is followed by the next one, and a message that could
not be acknowledged comes again. Credentials are found as boto3 finds them everywhere else.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kfm.model.errors import BackendUnavailable, ConfigError, ExtraMissing
from kfm.model.redaction import redact, redact_url
from kfm.ports import QueueMessage

BATCH_MAX = 10  # SQS hands out, deletes and gives back no more in one call
WAIT_MS_MAX = 20_000
CONNECT_MS = 5_000
READ_MS = 15_000  # beside the wait for messages
VISIBILITY_MS_MAX = 12 * 3_600_000
_REGION = re.compile(r"https://(?:sqs\.([a-z0-9-]+)|([a-z0-9-]+)\.queue)\.amazonaws\.com(?:\.cn)?/")
_REFUSED = frozenset({401, 403, 404})
_THROTTLED = re.compile(r"throttl|slowdown|limitexceeded|overlimit", re.IGNORECASE)
_ABSENT = re.compile(r"NonExistentQueue|QueueDoesNotExist")
_EXPIRED = re.compile(
    r"Token|Credential|AuthFailure|Signature|AccessDenied|InvalidClientTokenId|OptInRequired"
)
_RIGHTS = (
    "Give kfm credentials as for any program of AWS; it needs sqs:ReceiveMessage, sqs:DeleteMessage and "
    "sqs:ChangeMessageVisibility on the queue."
)
_ADDRESS = "Check the queue's url, region and, for an emulator, its endpoint."
_LATER = "Nothing is lost: messages stay in the queue until they are acknowledged."


def open_sqs(
    url: str,
    *,
    name: str,
    region: str | None = None,
    endpoint_url: str | None = None,
    visibility_ms: int | None = None,
) -> SqsQueue:
    """The queue at this url. `visibility_ms` overrides how long others do not see what was received.

    Nothing is sent yet: whether the queue is there is known with the first poll.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise ExtraMissing("SQS needs boto3: install kfm-kernel[aws].") from None
    if visibility_ms is not None and not 1_000 <= visibility_ms <= VISIBILITY_MS_MAX:
        raise ConfigError(f"The queue {name} would hide messages for a time that SQS does not know.")
    found = _REGION.match(url)
    config = Config(
        connect_timeout=CONNECT_MS / 1000,
        read_timeout=(WAIT_MS_MAX + READ_MS) / 1000,
        retries={"total_max_attempts": 1, "mode": "standard"},
        user_agent_extra="kfm",
    )
    try:
        client = boto3.session.Session().client(
            "sqs",
            region_name=region or (found and (found[1] or found[2])) or None,
            endpoint_url=endpoint_url,
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        reason = redact(str(error))[:300]
        raise ConfigError(f"The queue {name} can't be used: {reason}", remedy=_ADDRESS) from None
    return SqsQueue(client, url, name=name, visibility_ms=visibility_ms)


class SqsQueue:
    """One queue. Its dead-letter queue is another one of these, with that queue's url."""

    def __init__(self, client: Any, url: str, *, name: str, visibility_ms: int | None = None) -> None:
        self._client = client
        self._url = url
        self._name = name
        self._options: dict[str, Any] = {
            "QueueUrl": url,
            "MessageSystemAttributeNames": ["ApproximateReceiveCount"],
        }
        if visibility_ms is not None:
            self._options["VisibilityTimeout"] = visibility_ms // 1000

    @property
    def name(self) -> str:
        return self._name

    @property
    def ended(self) -> bool:
        return True

    def receive(self, limit: int, wait_ms: int) -> list[QueueMessage]:
        """Waits in the first call only, and makes no more calls than full answers would need."""
        messages: list[QueueMessage] = []
        for _ in range(-(-limit // BATCH_MAX)):
            count = min(BATCH_MAX, limit - len(messages))
            wait_s = 0 if messages else -(-min(max(wait_ms, 0), WAIT_MS_MAX) // 1000)
            try:
                with self._explained():
                    answer = self._client.receive_message(
                        **self._options, MaxNumberOfMessages=count, WaitTimeSeconds=wait_s
                    )
            except BackendUnavailable:
                if messages:
                    break  # what is there is not left to time out; the next poll meets the same trouble
                raise
            found = answer.get("Messages") or ()
            messages += [_message(each) for each in found]
            if not found or len(messages) >= limit:
                break
        return messages

    def acknowledge(self, receipts: Sequence[str]) -> list[str]:
        """Messages come again after transient errors; lasting ones are raised."""
        left: list[str] = []
        for batch in _batches(receipts):
            entries = [{"Id": str(at), "ReceiptHandle": receipt} for at, receipt in enumerate(batch)]
            try:
                with self._explained():
                    answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            except BackendUnavailable as error:
                if not error.facts.get("transient"):
                    raise
                left += batch
                continue
            # Only what is named as deleted is: an emulator may forget to name what is not.
            deleted = {entry.get("Id") for entry in answer.get("Successful") or ()}
            left += [receipt for at, receipt in enumerate(batch) if str(at) not in deleted]
        return left

    def put_back(self, receipts: Sequence[str]) -> None:
        """Where it does not work, the messages come back when their time is over."""
        for batch in _batches(receipts):
            entries = [
                {"Id": str(at), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
                for at, receipt in enumerate(batch)
            ]
            with contextlib.suppress(BackendUnavailable), self._explained():
                self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)

    def probe(self) -> None:
        """Is it there? Nothing is received for that."""
        with self._explained():
            self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])

    def close(self) -> None:
        self._client.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of the library, in our words, without secrets."""
        from botocore import exceptions

        try:
            yield
        except exceptions.ClientError as error:
            raise self._answered(error) from None
        except (exceptions.NoCredentialsError, exceptions.CredentialRetrievalError) as error:
            raise self._trouble(str(error), remedy=_RIGHTS, transient=False) from None
        except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
            trusted = not isinstance(error, exceptions.SSLError)
            raise self._trouble(str(error), remedy=_LATER, transient=trusted, cause="network") from None
        except exceptions.BotoCoreError as error:
            # Answers that can't be read, among others: a proxy's page, an address that is no queue's.
            raise self._trouble(str(error), remedy=_ADDRESS, transient=False) from None

    def _answered(self, error: Any) -> BackendUnavailable:
        detail = error.response.get("Error") or {}
        code = str(detail.get("Code") or "")
        status = (error.response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
        text = f"{code}: {detail.get('Message') or 'no reason given'}"
        if _THROTTLED.search(code):
            return self._trouble(text, remedy=_LATER, status=429, transient=True, cause="throttled")
        if _ABSENT.search(code):
            return self._trouble(text, remedy=_ADDRESS, status=404, transient=False, cause="missing")
        if _EXPIRED.search(code) or status in _REFUSED:
            return self._trouble(text, remedy=_RIGHTS, status=status, transient=False, cause="access")
        passing = status >= 500 or not status
        remedy = _LATER if passing else _ADDRESS
        return self._trouble(text, remedy=remedy, status=status, transient=passing, cause="unavailable")

    def _trouble(self, reason: str, **facts: Any) -> BackendUnavailable:
        reason = redact(reason.split("\n")[0])[:300]
        return BackendUnavailable(f"The queue {self._name} at {redact_url(self._url)}: {reason}", **facts)


def _message(found: dict[str, Any]) -> QueueMessage:
    receives = str((found.get("Attributes") or {}).get("ApproximateReceiveCount", ""))
    return QueueMessage(
        receipt=found["ReceiptHandle"],
        # Half a surrogate pair can't be encoded; passed on as it is, it is refused as no UTF-8.
        body=str(found.get("Body") or "").encode("utf-8", "surrogatepass"),
        message_id=str(found.get("MessageId") or ""),
        receives=int(receives) if receives.isdecimal() else 1,
    )


def _batches(receipts: Iterable[str]) -> Iterator[list[str]]:
    given = list(dict.fromkeys(receipts))
    for start in range(0, len(given), BATCH_MAX):
        yield given[start : start + BATCH_MAX]
