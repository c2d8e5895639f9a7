"""Mails and chat messages against real servers: their form, what they never say, and how servers fail."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.model.errors import BackendUnavailable, CollectorRefused, KfmError
from kfm.model.incidents import Incident, IncidentEscalation, IncidentOwner, IncidentRenderer
from kfm.objects.http_client import HttpxClient
from kfm.sinks.incident_hooks import NotifierCollector
from kfm.sinks.incident_messages import ChatNotifier, EmailNotifier, chat_message
from tests.acceptance.runs.hooked import Hooked, serving_hooks
from tests.mail_server import HOST, PASSWORD, USER, MailServer, certificate, serving_mail

pytestmark = pytest.mark.req("DAT-10")

START_MS = 1_767_225_600_000
TO = ("water@example.org", "desk@example.org")


def changed(change: Any = "open", **fields: Any) -> tuple[str, bytes]:
    """The id and the body of a change, as they are posted."""
    incident = Incident(
        cause="sha256:c",
        incident_id="8d0e6f0a-4b7b-5f39-9c55-2f6c0c2f4d11",
        about="dataset",
        name="levels",
        kind="quarantine",
        error_class="schema",
        error_code="KFM303",
        message="Column <level> & more is missing. Grüße",
        subject="run-1",
        state="resolved" if change == "resolved" else "open",
        occurrence=1,
        changes=2 if change == "resolved" else 1,
        affected=1,
        opened_at_ms=START_MS,
        last_at_ms=START_MS,
        resolved_at_ms=START_MS + 60_000 if change == "resolved" else None,
        **fields,
    )
    renderer = IncidentRenderer(
        environment="prod",
        masked=lambda _about, _name: False,
        responsible=lambda _name: (
            IncidentOwner(name="Water desk", contact="room 4"),
            IncidentEscalation(after="PT4H", to=("mail",), at=None),
        ),
    )
    made = renderer.change(incident, change, 0)
    return made.id, msgspec.json.encode(made)


def mailer(server: MailServer, **changes: Any) -> EmailNotifier:
    options: dict[str, Any] = {
        "port": server.port,
        "security": "none",
        "user": None,
        "password": None,
        "sender": "kfm <kfm@example.org>",
        "to": TO,
        "timeout_ms": 5_000,
    }
    return EmailNotifier(HOST, **(options | changes))


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with serving_mail() as served:
        yield served


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("certificate"))


def text_of(mail: EmailMessage) -> str:
    return str(mail.get_content()).replace("\r\n", "\n")


# --- e-mail ------------------------------------------------------------------------------


def test_a_mail_says_what_happened_and_what_to_do(mail: MailServer) -> None:
    """A useful subject; plain text with the cause, the next step, who can do it, and the owner."""
    mailer(mail).notify(*changed())
    (got,) = mail.mails
    assert got["Subject"] == "[kfm prod] opened, error: dataset levels: KFM303 (schema), 1 run quarantined"
    assert (got["From"], got["To"]) == ("kfm <kfm@example.org>", ", ".join(TO))
    assert got["Auto-Submitted"] == "auto-generated"
    assert got.get_content_type() == "text/plain"
    text = text_of(got)
    assert "Column <level> & more is missing. Grüße" in text
    assert "See why, and correct the cause (an operator):\n    kfm explain run-1" in text
    assert "Owner: Water desk, room 4" in text
    assert "kfm incident show 8d0e6f0a-4b7b-5f39-9c55-2f6c0c2f4d11" in text


def test_a_mail_that_comes_twice_is_the_same(mail: MailServer) -> None:
    """Sent again it has the same id and bytes; mails of one incident are one thread, each with its own id."""
    for change in ("open", "open", "resolved"):
        mailer(mail).notify(*changed(change))
    first, again, last = mail.mails
    del first["X-Peer"], again["X-Peer"]
    assert first.as_bytes() == again.as_bytes()
    assert first["Message-ID"] == f"<{changed()[0]}@example.org>"
    assert last["Message-ID"] != first["Message-ID"]
    assert last["References"] == first["References"] == last["In-Reply-To"]
    assert "resolved, error: dataset levels: KFM303 (schema) is over" in last["Subject"]
    assert "Next step" not in text_of(last)


def test_an_escalated_mail_says_how_to_acknowledge(mail: MailServer) -> None:
    """Its reader was not asked before: why it came, and the command that ends it."""
    mailer(mail).notify(*changed("escalated", escalated_at_ms=START_MS + 5))
    text = text_of(mail.mails[0])
    assert "since it was not acknowledged within PT4H" in text
    assert "kfm incident ack 8d0e6f0a-4b7b-5f39-9c55-2f6c0c2f4d11 --rationale TEXT" in text


@pytest.mark.filterwarnings("ignore:Requiring AUTH:UserWarning")
@pytest.mark.parametrize("implicit", [False, True])
def test_mails_are_encrypted_and_signed_in(places: tuple[Path, Path], *, implicit: bool) -> None:
    """STARTTLS, or TLS from the first byte; the certificate is checked before the password is sent."""
    security = "tls" if implicit else "starttls"
    with serving_mail(places, sign_in=True, implicit=implicit) as server:
        options = {"security": security, "user": USER, "password": PASSWORD, "ca_file": str(places[0])}
        made = mailer(server, **options)
        made.probe()
        assert server.mails == []
        made.notify(*changed())
        assert (len(server.mails), server.encrypted) == (1, [True])
        signed_in = list(server.users)
        with pytest.raises(BackendUnavailable):
            mailer(server, **(options | {"ca_file": None})).notify(*changed())
        assert server.users == signed_in, "an unknown certificate is not shown the password"
        with pytest.raises(BackendUnavailable, match=r"refused user or password \(535\)") as refused:
            mailer(server, **(options | {"password": "wrong-one"})).notify(*changed())
        assert USER not in str(refused.value)
        assert "wrong-one" not in str(refused.value)


def test_a_server_without_starttls_gets_nothing(mail: MailServer) -> None:
    """What is to be encrypted is not sent in the clear because a server can't."""
    with pytest.raises(BackendUnavailable):
        mailer(mail, security="starttls").notify(*changed())
    assert mail.mails == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("451 try again, {address}", BackendUnavailable),
        ("552 too much for {address}", CollectorRefused),
    ],
)
def test_a_server_that_refuses_the_mail(mail: MailServer, answer: str, error: type[KfmError]) -> None:
    """4xx is tried again; 5xx is parked until a person has looked; no address is told."""
    mail.data_answer = answer
    with pytest.raises(error, match=answer[:3]) as raised:
        mailer(mail).notify(*changed())
    assert type(raised.value) is error
    assert "@example.org" not in str(raised.value)


@pytest.mark.parametrize(("code", "error"), [(450, BackendUnavailable), (550, CollectorRefused)])
def test_a_server_that_refuses_every_recipient(mail: MailServer, code: int, error: type[KfmError]) -> None:
    """The code is told, the addresses are not."""
    mail.recipient_answer = f"{code} no {{address}} here"
    with pytest.raises(error, match=f"refused every recipient \\({code}\\)") as raised:
        mailer(mail).notify(*changed())
    assert type(raised.value) is error
    assert "@" not in str(raised.value)


def test_a_silent_server_costs_the_timeout() -> None:
    """A port that accepts and says nothing, and one where nothing listens, are errors that pass."""
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        made = EmailNotifier(
            HOST, port=port, security="none", user=None, password=None, sender="a@b", to=TO, timeout_ms=200
        )
        with pytest.raises(BackendUnavailable, match=f"{HOST}:{port}"):
            NotifierCollector(made, timeout_ms=200).deliver([message()])
    with pytest.raises(BackendUnavailable, match="refused"):
        made.notify(*changed())


def message() -> Any:
    from kfm.model.runs import OutboxMessage

    change_id, body = changed()
    return OutboxMessage(
        number=1, event_id=change_id, topic="incident", subject="c", body=body.decode(), recorded_at_ms=0
    )


def test_a_header_holds_one_line(mail: MailServer) -> None:
    """Names with line ends make no headers of their own."""
    change_id, body = changed()
    change = json.loads(body)
    change["data"]["summary"] = "dataset levels\r\nBcc: all@example.org"
    mailer(mail).notify(change_id, json.dumps(change).encode())
    assert mail.mails[0]["Bcc"] is None


# --- chat --------------------------------------------------------------------------------


@pytest.fixture
def chat() -> Iterator[Hooked]:
    with serving_hooks() as served:
        served.status = 200
        yield served


def chatter(url: str, timeout_ms: int = 5_000) -> ChatNotifier:
    return ChatNotifier(url, HttpxClient(), timeout_ms=timeout_ms)


def test_a_chat_gets_text_and_blocks(chat: Hooked) -> None:
    """The Slack form: `text` for previews, `blocks` to read; nothing in it addresses people or links."""
    chatter(chat.url).notify(*changed())
    ((headers, _),) = chat.got
    (got,) = chat.bodies()
    assert headers["content-type"] == "application/json"
    assert got["text"] == "opened, error: dataset levels: KFM303 (schema), 1 run quarantined"
    assert [block["type"] for block in got["blocks"]] == ["section", "section"]
    shown = got["blocks"][1]["text"]["text"]
    assert "Column &lt;level&gt; &amp; more is missing." in shown
    assert "kfm explain run-1" in shown
    assert "*Owner:* Water desk, room 4" in shown


def test_a_long_message_fits_into_a_block() -> None:
    """A chat takes 3,000 characters in a block."""
    data = json.loads(changed()[1])["data"] | {"message": "<" * 5_000}
    assert all(len(block["text"]["text"]) <= 3_000 for block in chat_message(data)["blocks"])


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, CollectorRefused),
        (302, BackendUnavailable),
        (429, BackendUnavailable),
        (500, BackendUnavailable),
    ],
)
def test_a_chat_that_refuses(chat: Hooked, status: int, error: type[KfmError]) -> None:
    """What it will not have as it is waits for a person; the rest is tried again; its address is not told."""
    chat.status = status
    with pytest.raises(error, match=f"answered {status}") as raised:
        chatter(chat.url).notify(*changed())
    assert type(raised.value) is error
    assert "/hook" not in str(raised.value)


def test_a_chat_that_is_away_or_hangs(chat: Hooked) -> None:
    """Neither tells the address, which is the secret."""
    chat.hang.clear()
    with pytest.raises(BackendUnavailable) as slow:
        chatter(chat.url, 200).notify(*changed())
    chat.hang.set()
    with pytest.raises(BackendUnavailable) as away:
        chatter("http://127.0.0.1:9/services/T0/B0/token").notify(*changed())
    for raised in (slow, away):
        assert "127.0.0.1" not in str(raised.value)
        assert "token" not in str(raised.value)
