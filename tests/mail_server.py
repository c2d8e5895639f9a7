"""A real mail server for tests: aiosmtpd with STARTTLS and sign-in, that keeps what it is sent."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from ipaddress import ip_address
from pathlib import Path
from typing import Any

USER, PASSWORD = "kfm-desk", "a-password-of-the-mail-server"
HOST = "127.0.0.1"


class MailServer:
    """Keeps the mails; `answers` are given to RCPT and DATA in place of the usual ones."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.encrypted: list[bool] = []
        self.users: list[str] = []
        self.recipient_answer: str | None = None
        self.data_answer = "250 OK"
        self.port = 0

    async def handle_RCPT(  # noqa: N802 - its name
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if self.recipient_answer is not None:
            return self.recipient_answer.format(address=address)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - its name
        if self.data_answer.startswith("250"):
            mail = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(mail, EmailMessage)
            self.mails.append(mail)
            self.encrypted.append(server.transport.get_extra_info("sslcontext") is not None)
        return self.data_answer.format(address=envelope.rcpt_tos[0])


def certificate(folder: Path, host: str = HOST) -> tuple[Path, Path]:
    """A certificate that certifies itself for an address, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    places = folder / "mail.crt", folder / "mail.key"
    places[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    places[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return places


@contextmanager
def serving_mail(
    places: tuple[Path, Path] | None = None, *, sign_in: bool = False, implicit: bool = False
) -> Iterator[MailServer]:
    """`places`: certificate and key; None: no encryption. `implicit`: TLS from the first byte."""
    from aiosmtpd.controller import Controller
    from aiosmtpd.smtp import AuthResult, LoginPassword

    kept = MailServer()

    def signed_in(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
        assert isinstance(given, LoginPassword)
        well = (given.login, given.password) == (USER.encode(), PASSWORD.encode())
        kept.users.append(given.login.decode())
        return AuthResult(success=well, handled=False)

    trusted = None
    if places is not None:
        trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trusted.load_cert_chain(*map(str, places))
    options: dict[str, Any] = {}
    if sign_in:
        options |= {"authenticator": signed_in, "auth_required": True, "auth_require_tls": not implicit}
    if implicit:
        options["ssl_context"] = trusted
    elif trusted is not None:
        options |= {"tls_context": trusted, "require_starttls": True}

    class AnyPort(Controller):
        def _trigger_server(self) -> None:
            """It looks at its own port, which the system has chosen."""
            self.port = kept.port = self.server.sockets[0].getsockname()[1]
            super()._trigger_server()

    controller = AnyPort(kept, hostname=HOST, port=0, **options)
    controller.start()
    try:
        yield kept
    finally:
        controller.stop()
