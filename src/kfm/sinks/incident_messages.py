"""Hooks that people read: incidents by e-mail (SMTP), and in a chat (incoming webhooks of the Slack form)."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kfm.model.errors import BackendUnavailable, CollectorRefused, UpstreamUnavailable
from kfm.model.quantities import one_line
from kfm.model.redaction import redact
from kfm.sinks.incident_hooks import ANSWER_BYTES_MAX, ANSWER_CHARS_MAX, REFUSALS

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

    from kfm.ports import HttpSender

logger = logging.getLogger(__name__)

SUBJECT_CHARS_MAX = 200
LINE_CHARS_MAX = 300  # a subject is one line; some readers show where it was folded
TEXT_CHARS_MAX = 3_000  # what a block of a chat takes at most
PORTS = {"starttls": 587, "tls": 465, "none": 25}
CHANGE_WORDS = {
    "open": "opened",
    "worse": "worse",
    "resolved": "resolved",
    "reminded": "still open",
    "escalated": "escalated",
    "test": "test",
}


# --- the words ---------------------------------------------------------------------------


def headline(data: dict[str, Any]) -> str:
    """One line: what changed, how bad it is, and about what."""
    word = CHANGE_WORDS.get(data["change"], data["change"])
    return one_line(f"{word}, {data['severity']}: {data['summary']}")


def facts(data: dict[str, Any]) -> list[tuple[str, str]]:
    """What a reader needs, in the order in which it is needed. An earlier version's message has less."""
    step, owner, escalation = data.get("next_step"), data.get("owner"), data.get("escalation")
    found = [("What", data["message"])]
    if step:
        found.append(("Next step", f"{step['sentence']} ({step['who']}):\n    {step['command']}"))
    if owner:
        found.append(("Owner", f"{owner['name']}{', ' + owner['contact'] if owner['contact'] else ''}"))
    if escalation and escalation["at"]:
        found.append(
            ("Escalated", f"{escalation['at']}, since it was not acknowledged within {escalation['after']}")
        )
        found.append(("Acknowledge", f"kfm incident ack {data['incident_id']} --rationale TEXT"))
    span = f"since {data['opened_at']}"
    if data["resolved_at"]:
        span = f"from {data['opened_at']} to {data['resolved_at']}"
    found += [
        ("Error", f"{data['error_code']} ({data['error_class']}), {data['kind']}"),
        ("When", span),
        ("Environment", data["environment"]),
        ("Details", data["command"]),
    ]
    return found


# --- e-mail ------------------------------------------------------------------------------


class EmailNotifier:
    """Sends each change as one mail. Its Message-ID follows from the change, and all mails of one incident
    refer to one id: a mail that comes twice is one for mail programs, and an incident is one thread."""

    def __init__(
        self,
        host: str,
        *,
        port: int | None,
        security: str,
        user: str | None,
        password: str | None,
        sender: str,
        to: Sequence[str],
        timeout_ms: int,
        ca_file: str | None = None,
    ) -> None:
        self._host = host
        self._port = port or PORTS[security]
        self._security = security
        self._user = user
        self._password = password
        self._sender = sender
        self._to = list(to)
        self._timeout_s = timeout_ms / 1000
        self._ca_file = ca_file

    def notify(self, change_id: str, body: bytes) -> None:
        import smtplib

        mail = self.mail(change_id, json.loads(body))
        try:
            with self._connected() as server:
                refused = server.send_message(mail, self._sender, self._to)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _text in error.recipients.values()]
            text = f"{self._shown} refused every recipient ({', '.join(map(str, sorted(set(codes))))})."
            permanent = all(500 <= code < 600 for code in codes)
            raise (CollectorRefused(text) if permanent else BackendUnavailable(text)) from None
        except smtplib.SMTPAuthenticationError as error:
            # Its own words may repeat the user.
            text = f"{self._shown} refused user or password ({error.smtp_code})."
            raise BackendUnavailable(text) from None
        except smtplib.SMTPResponseException as error:
            raise self._failed(error) from None
        except (smtplib.SMTPException, OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise BackendUnavailable(f"{self._shown} can't be used: {redact(str(reason))}.") from None
        if refused:
            logger.warning("e-mail: %d of %d recipients were refused", len(refused), len(self._to))

    def probe(self) -> None:
        """Connect, and sign in; nothing is sent. Raises what would keep a mail from being sent."""
        import smtplib

        try:
            with self._connected():
                pass
        except smtplib.SMTPAuthenticationError as error:
            text = f"{self._shown} refused user or password ({error.smtp_code})."
            raise BackendUnavailable(text) from None
        except (smtplib.SMTPException, OSError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise BackendUnavailable(f"{self._shown} can't be used: {redact(str(reason))}.") from None

    def close(self) -> None:
        """Each mail has a connection of its own: incidents are rare."""

    def mail(self, change_id: str, change: dict[str, Any]) -> EmailMessage:
        """The same bytes each time: nothing in it depends on when or by which process it is sent."""
        from email import policy
        from email.message import EmailMessage
        from email.utils import formatdate

        from kfm.model.times import parse_rfc3339

        data = change["data"]
        domain = self._sender.rpartition("@")[2].rstrip("> ") or "kfm.invalid"
        mail = EmailMessage(policy.SMTP.clone(max_line_length=LINE_CHARS_MAX))
        mail["Subject"] = f"[kfm {data['environment']}] {headline(data)}"[:SUBJECT_CHARS_MAX]
        mail["From"] = self._sender
        mail["To"] = ", ".join(self._to)
        mail["Date"] = formatdate(parse_rfc3339(change["timestamp"]) / 1000, usegmt=True)
        mail["Message-ID"] = f"<{change_id}@{domain}>"
        thread = f"<{data['incident_id']}@{domain}>"
        mail["In-Reply-To"], mail["References"] = thread, thread
        mail["Auto-Submitted"] = "auto-generated"  # no holiday notices in answer
        mail["X-KFM-Incident"] = data["incident_id"]
        lines = [headline(data), "", *(f"{name}: {value}" for name, value in facts(data))]
        mail.set_content("\n".join(lines) + "\n")
        return mail

    @property
    def _shown(self) -> str:
        return f"The mail server {self._host}:{self._port}"

    def _connected(self) -> smtplib.SMTP:
        import smtplib
        import ssl

        server: smtplib.SMTP
        if self._security == "tls":
            trusted = ssl.create_default_context(cafile=self._ca_file)
            server = smtplib.SMTP_SSL(self._host, self._port, timeout=self._timeout_s, context=trusted)
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=self._timeout_s)
        try:
            if self._security == "starttls":
                server.starttls(context=ssl.create_default_context(cafile=self._ca_file))
            if self._user is not None:
                server.login(self._user, self._password or "")
        except BaseException:
            server.close()
            raise
        return server

    def _failed(self, error: smtplib.SMTPResponseException) -> Exception:
        said = error.smtp_error
        words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        for address in (*self._to, self._sender, self._user, self._password):
            words = words.replace(address, "…") if address else words
        words = redact(one_line(words))[:ANSWER_CHARS_MAX]
        text = f"{self._shown} answered {error.smtp_code}. {words}".strip()
        return CollectorRefused(text) if 500 <= error.smtp_code < 600 else BackendUnavailable(text)


# --- chat --------------------------------------------------------------------------------


class ChatNotifier:
    """Posts each change to an incoming webhook of the Slack form: `text`, and `blocks` for those that show
    them. The address is the secret: no message names it."""

    def __init__(self, url: str, client: HttpSender, *, timeout_ms: int) -> None:
        self._url = url
        self._client = client
        self._timeout_ms = timeout_ms

    def notify(self, change_id: str, body: bytes) -> None:  # noqa: ARG002 - a chat knows no ids
        status, answer = self._answer(chat_message(json.loads(body)["data"]))
        if 200 <= status < 300:
            return
        words = redact(one_line(answer.decode("utf-8", "replace").replace(self._url, "…"))[:ANSWER_CHARS_MAX])
        if 300 <= status < 400:
            words = "Redirects are not followed: name the final address."
        text = f"The chat answered {status}. {words}".strip()
        raise CollectorRefused(text) if status in REFUSALS else BackendUnavailable(text)

    def close(self) -> None:
        self._client.close()

    def _answer(self, message: dict[str, Any]) -> tuple[int, bytes]:
        body, received = json.dumps(message).encode(), b""
        headers = {"content-type": "application/json", "user-agent": "kfm"}
        try:
            with self._client.send(
                "POST", self._url, headers, body, self._timeout_ms, shown="the chat", secrets=(self._url,)
            ) as answer:
                for chunk in answer.chunks():
                    received += chunk
                    if len(received) >= ANSWER_BYTES_MAX:
                        break
                return answer.status, received[:ANSWER_BYTES_MAX]
        except UpstreamUnavailable as error:
            raise BackendUnavailable(error.detail) from None


def chat_message(data: dict[str, Any]) -> dict[str, Any]:
    """The change in the Slack form. Names and messages can't address people or make links."""
    title = _escaped(headline(data))
    lines = "\n".join(f"*{name}:* {_escaped(value)}" for name, value in facts(data))
    return {
        "text": title,
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": f"*{title}*"[:TEXT_CHARS_MAX]}},
            {"type": "section", "text": {"type": "mrkdwn", "text": lines[:TEXT_CHARS_MAX]}},
        ],
    }


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
