"""The rules: what each forbids, why, and the way out. `kfm explain` prints this; the docs add examples."""

from __future__ import annotations

from typing import Any, NamedTuple


class Rule(NamedTuple):
    code: str
    name: str
    message: str
    page: str
    remedy: str

    @property
    def docs(self) -> str:
        return f"docs/reference/lint/{self.code.lower()}.md"


RULES = (
    Rule(
        "KFM100",
        "bad-waiver",
        "A waiver gives no reason, names no known rule, or lifts nothing.",
        "`# kfm: allow KFM103 reason` on the line of a finding, or on a line of its own above it,\n"
        "lifts that finding. The reason is for the next reader, so it can't be left out. A waiver\n"
        "whose finding is gone is reported too: it would hide the next one.",
        "Write the reason behind the code, correct the code, or remove the comment.",
    ),
    Rule(
        "KFM101",
        "unbounded-retry",
        "A retry has no limit in attempts or time.",
        "Work that fails for good is tried for ever: it holds its worker, its lock and its place in\n"
        "the queue, without a notice. Found in loops whose failures lead to another turn and in the\n"
        "settings of tenacity, backoff, stamina, retrying, urllib3, botocore, aiohttp_retry and\n"
        "Celery. A number of 100 or more attempts counts as no limit. Loops that serve, consume or\n"
        "poll are not retries.",
        "Count the attempts or keep a deadline, and raise when it is reached.",
    ),
    Rule(
        "KFM102",
        "retry-without-backoff",
        "A retry follows at once, without any wait.",
        "Whatever was wrong a moment ago is still wrong, and all attempts are spent within it; what\n"
        "is overloaded gets more load. A failure branch that repairs something before the next\n"
        "attempt (reconnects, refreshes a token) is not reported.",
        "Wait between attempts, longer each time, with jitter.",
    ),
    Rule(
        "KFM103",
        "fixed-sleep",
        "Every retry waits the same time.",
        "Clients that fail together wait together and return together, for as long as the trouble\n"
        "lasts. Only waits on the way from a failure to the next attempt are meant: the interval of a\n"
        "poller or a scheduler is its own business.",
        "Let the wait grow with each attempt, with a cap, and draw it at random (full jitter).",
    ),
    Rule(
        "KFM104",
        "retry-without-idempotency",
        "Work whose repetition shows is retried, and nothing says that this is harmless.",
        "A call that timed out may have been carried out. Sending a POST, a message or an INSERT\n"
        "again can then charge, publish or store twice. An idempotency key, a deduplication id, a\n"
        "conditional write, an upsert, or the word `idempotent` in code or comment of the same\n"
        "function counts as the declaration.",
        "Send an idempotency key, write conditionally, or say in a comment why it is idempotent.",
    ),
    Rule(
        "KFM105",
        "retry-after-ignored",
        "A refusal for load is retried without asking when to come back.",
        "Answers 429 and 503 may carry Retry-After. Coming back earlier is refused again, and often\n"
        "punished. Found where code singles out 429, 503 or a throttling exception, retries, and\n"
        "never looks at the header; and where a library is told not to.",
        "Read Retry-After (seconds or a date) and wait at least that long; give up if it does not fit.",
    ),
    Rule(
        "KFM106",
        "permanent-error-retried",
        "An error in the data, or a refusal, is retried.",
        "Data that breaks its schema breaks it again; a CARE, consent or licence refusal is a\n"
        "decision, not an outage. Retrying hides it for a while and costs the same each time. Found\n"
        "for exceptions whose name says so, for answers such as 400, 403 and 422, and for validation\n"
        "inside a block that is retried on any exception.",
        "Catch it first and raise it on, or move the validation out of what is retried.",
    ),
    Rule(
        "KFM107",
        "concurrency-grows",
        "A failure is answered with more concurrency.",
        "More workers, a larger pool or several new calls for one that failed multiply the load\n"
        "exactly when the other side can't bear it.",
        "Keep the concurrency, or lower it, until calls succeed again.",
    ),
    Rule(
        "KFM108",
        "swallowed-exception",
        "Any error is dropped without a trace.",
        "A handler for every exception that does nothing hides defects, refusals and cancelled work\n"
        "alike; the run looks successful. Meant is work by its name (save, load, send, refresh), an item\n"
        "left out of a result, or a fetched answer. Tidying up, optional imports, values with a default,\n"
        "telemetry, and a handler whose comment says why in four words or more are not reported.",
        "Name the exception that is expected, or log it, or raise it on.",
    ),
    Rule(
        "KFM109",
        "unreadable",
        "A file can't be checked.",
        "It is no valid Python for the interpreter that runs kfm, holds null bytes or an unknown\n"
        "encoding, is nested too deeply, or is larger than 4 MiB. What can't be read can't be vouched\n"
        "for, so this counts.",
        "Correct the file, or exclude it with --exclude.",
    ),
)
BY_CODE = {rule.code: rule for rule in RULES}
CODES = frozenset(BY_CODE)


def page(code: str) -> dict[str, Any] | None:
    """The page of a rule in the shape of `kfm explain`; None if there is no such rule."""
    rule = BY_CODE.get(code.upper())
    if rule is None:
        return None
    return {
        "kind": "rule",
        "code": rule.code,
        "name": rule.name,
        "message": rule.message,
        "page": rule.page,
        "remedy": rule.remedy,
        "exit_code": 1,
        "docs": rule.docs,
    }
