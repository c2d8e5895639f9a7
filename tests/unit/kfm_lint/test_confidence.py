"""What is sure and what is only likely is told by what the code shows."""

from __future__ import annotations

import pytest

from kfm_lint.checker import check
from kfm_lint.confidence import is_test
from tests.unit.kfm_lint.test_rules import SEEDED

pytestmark = pytest.mark.req("RET-10")

# (rule, code): the rule fires, and can't be sure.
DOUBTFUL = {
    "the work takes what the turn made": (
        "KFM103",
        """
def join(ring):
    for attempt in range(5):
        peer = ring.neighbour()
        try:
            return dial(peer)
        except OSError:
            time.sleep(1)
""",
    ),
    "a counter of nothing, and a way out with nothing": (
        "KFM103",
        """
def come_in(door):
    for _ in range(9):
        try:
            door.open()
            break
        except OSError:
            time.sleep(1)
""",
    ),
    "an answer that no caller takes": (
        "KFM103",
        """
def start(url):
    for attempt in range(9):
        try:
            requests.get(url)
            return
        except OSError:
            time.sleep(1)
""",
    ),
    "a look before the write": (
        "KFM102",
        """
def save(store, key, change):
    for attempt in range(3):
        try:
            seen = store.version(key)
            return store.swap(key, change, seen)
        except StoreError:
            pass
""",
    ),
    "one cause alone": (
        "KFM102",
        """
def send(part):
    for attempt in range(3):
        try:
            return transmit(part)
        except TransferError as error:
            if error.reason != "moved":
                raise
""",
    ),
    "a state that is called a failure": (
        "KFM103",
        """
from tenacity import retry, stop_after_delay, wait_fixed

@retry(stop=stop_after_delay(60), wait=wait_fixed(2))
def shipped(order):
    if order.state != "shipped":
        raise Unshipped(order)
""",
    ),
    "a lost race by a library": (
        "KFM102",
        """
from tenacity import retry, retry_if_exception_type, stop_after_attempt

@retry(stop=stop_after_attempt(4), retry=retry_if_exception_type(UpdateConflict))
def join(group, member):
    group.add(member)
""",
    ),
    "a question by POST": (
        "KFM104",
        """
from tenacity import retry, stop_after_attempt, wait_random

@retry(stop=stop_after_attempt(5), wait=wait_random(1, 4))
def plan(session, url, body):
    return session.post(url, json=body).json()
""",
    ),
    "a policy of a function that fetches": (
        "KFM104",
        """
from urllib3.util import Retry

def fetch_records(ids):
    return Retry(total=5, backoff_factor=1, allowed_methods=["GET", "POST"])
""",
    ),
    "only what was not done": (
        "KFM104",
        """
from urllib3.util import Retry

policy = Retry(
    total=5, connect=0, read=0, backoff_factor=1, status_forcelist=[429], allowed_methods=["POST"]
)
""",
    ),
    "the exception may know": (
        "KFM105",
        """
def page(api):
    for attempt in range(5):
        try:
            return api.read()
        except TooManyRequests as error:
            time.sleep(2**attempt + error.more)
""",
    ),
    "work by its name alone": (
        "KFM108",
        """
def begin(client):
    try:
        client.load_defaults()
    except Exception:
        pass
""",
    ),
    "a write under a condition": (
        "KFM108",
        """
def keep(row, store):
    try:
        if store.wants(row):
            store.write(row)
    except Exception:
        pass
""",
    ),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_doubt_is_told_on_request(name: str) -> None:
    """It is silent by default, and marked as likely with everything."""
    code, text = DOUBTFUL[name]
    only = frozenset({code})
    assert check(text.encode(), "case.py", only).findings == []
    assert {each.confidence for each in check(text.encode(), "case.py", only, every=True).findings} == {
        "likely"
    }


@pytest.mark.parametrize("case", SEEDED[:: len(SEEDED) // 12], ids=lambda case: f"{case.code}-{case.name}")
def test_tests_are_never_sure(case: object) -> None:
    """The same code in a test is only likely."""
    data = case.text.encode()  # type: ignore[attr-defined]
    found = check(data, "pipe/tests/test_load.py", every=True).findings
    assert found
    assert {each.confidence for each in found} == {"likely"}
    assert check(data, "pipe/tests/test_load.py").findings == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/unit/load.py", True),
        ("src/pipe/conftest.py", True),
        ("src/pipe/load_test.py", True),
        ("src/pipe/testing_tools.py", True),
        ("C:\\code\\pipe\\tests\\load.py", True),
        ("src/pipe/load.py", False),
        ("src/pipe/latest.py", False),
        ("src/attestation/load.py", False),
        ("/home/tests/work/pipe/src/pipe/load.py", False),
    ],
)
def test_what_is_a_test(path: str, expected: bool) -> None:
    """By the names that test runners look for; where a checkout is kept says nothing."""
    assert is_test(path) is expected
