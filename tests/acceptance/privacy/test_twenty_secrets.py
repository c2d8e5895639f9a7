"""Twenty secrets, told to everybody who could give them away, are found in nothing that we say or write."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from kfm.model import redaction as redacting
from tests.acceptance.privacy.telltale import serve, told

pytestmark = pytest.mark.req("RS-13", "TRG-9")

# Where it stands in the configuration → the secret. Characters that encodings treat differently are in them.
SECRETS = {
    "param_token": "tok/9f+K~a=31&Zq%x",
    "param_plain": "appid-7c1e5b2a9d",
    "header_bearer": "Bearer hdr.Tq8~v+1/Yw==",
    "header_key": "x-key_5f0d<b>c2'e",
    "header_file": 'from-a-file\\with"quotes',
    "bucket_id": "AKBUCKETID0001",
    "bucket_key": "bucket/secret+key0001",
    "bucket_session": "session-token-of-bucket",
    "target_id": "AKTARGETID0002",
    "target_key": "target/secret+key0002",
    "lineage_token": "lineage~token-44",
    "telemetry_header": "otlp-header-55/+",
    "dsn": "postgresql://kfm:p%40ss%2Fdsn66word@127.0.0.1:1/kfm",
    "environment_token": "ghx_environment_77",
    "environment_password": "pass word with blanks 88",
    "webhook": "whsec-payload-99",
    "private_key": "-----BEGIN KEY-----\nMIIEvAIBADANBgkqhkiG9w0B\n-----END KEY-----",
    "json_key": '{"client": "kfm", "private_key": "json-inner-secret-12"}',
    "named_file": "object-name-secret-13",
    "rationale": "said-in-a-rationale-14",
}
# What of each must be nowhere.
INNER = {
    **SECRETS,
    "header_bearer": "hdr.Tq8~v+1/Yw==",
    "dsn": "p@ss/dsn66word",
    "private_key": "MIIEvAIBADANBgkqhkiG9w0B",
    "json_key": "json-inner-secret-12",
}
PIPELINE = """
import base64, os, sys
from urllib.parse import quote

NAMES = [name for name in os.environ if name.startswith("PLANTED_")]
SAID = " | ".join(
    text
    for name in NAMES
    for value in [os.environ[name]]
    for text in (value, base64.b64encode(b"u:" + value.encode()).decode(), value.encode().hex(),
                 quote(value, safe=""), repr(value), value.encode().hex().upper())
)

def talk(context):
    print(SAID, file=sys.stderr)
    context.log(SAID)
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)

def fail(context):
    raise ValueError("upstream says: " + SAID)

def event(context):
    context.publisher.emit_event("webhook", {"payload": {"nested": [SAID]}})

def state(context):
    context.publisher.update_state("cursor", SAID)

def write(context):
    context.publisher.write_file("x.txt", SAID.encode())

def name(context):
    context.publisher.write_file(os.environ["PLANTED_NAMED_FILE"] + ".txt", b"1")

def unexpected(context):
    context.publisher.write_file("../" + os.environ["PLANTED_NAMED_FILE"], b"1")
"""
PIPELINES = ("talk", "fail", "event", "state", "write", "name", "unexpected")


def references(*names: str) -> str:
    return json.dumps({name.replace("_", "-"): f"env:PLANTED_{name.upper()}" for name in names})


def configuration(url: str) -> str:
    secret = {name: f"env:PLANTED_{name.upper()}" for name in SECRETS}
    s3 = {
        "endpoint": url,
        "region": "us-east-1",
        "access_key_id": secret["bucket_id"],
        "secret_access_key": secret["bucket_key"],
        "token": secret["bucket_session"],
    }
    target = {**s3, "access_key_id": secret["target_id"], "secret_access_key": secret["target_key"]}
    headers = {
        "Authorization": secret["header_bearer"],
        "X-Key": secret["header_key"],
        "X-File": "file:secrets/header_file",
        "X-Webhook": secret["webhook"],
        "X-Name": secret["named_file"],
        "X-Rationale": secret["rationale"],
    }
    params = {"token": secret["param_token"], "appid": secret["param_plain"]}
    asked = {"dataset": "open", "kind": "http", "headers": headers, "params": params}
    sources = [
        *({**asked, "id": name, "url": f"{url}/{name}.csv"} for name in ("good", "denied", "moved", "leaky")),
        {**asked, "id": "paged", "url": f"{url}/paged.json", "pagination": {"style": "json-next"}},
        {"id": "blocked", "dataset": "blocked", "kind": "files", "folder": "incoming"},
        {
            "id": "bucket",
            "dataset": "open",
            "kind": "bucket",
            "bucket": "s3://upstream",
            "bucket_options": s3,
        },
        *(
            {"id": name, "dataset": "open", "kind": "files", "folder": "incoming", "pipeline": f"p.py:{name}"}
            for name in PIPELINES
        ),
        {"id": "named", "dataset": "open", "kind": "files", "folder": "named"},
    ]
    rights = {"license": "CC0-1.0", "care": {"label": "Public"}}
    return json.dumps(
        {
            "version": 1,
            "environment": "test",
            "datasets": [
                {"id": "open", "rights": rights},
                {"id": "blocked", "rights": {**rights, "care": {"label": "Blocked", "level": "blocked"}}},
            ],
            "sources": sources,
            "publish": [
                {"kind": "local", "path": "published"},
                {"kind": "s3", "name": "far", "url": "s3://target", "options": target},
            ],
            "lineage": {"export": "http", "url": f"{url}/lineage", "token": secret["lineage_token"]},
            "telemetry": {"otlp": url, "headers": {"X-Otlp": secret["telemetry_header"]}},
        }
    )


def forms(secret: str) -> Iterator[tuple[str, bytes]]:
    """How a secret could be spelt, worked out apart from the code that masks it."""
    data = secret.encode()
    yield "raw", data
    yield "hex", data.hex().encode()
    yield "HEX", data.hex().upper().encode()
    yield "quoted", quote(secret, safe="").encode()
    yield "quoted, slashes kept", quote(secret).encode()
    yield "json", json.dumps(secret)[1:-1].encode()
    yield "python", repr(secret)[1:-1].encode()
    for lead in range(3):
        # The first four and the last four characters may hold bits of what stands beside it.
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield f"base64 at {lead}", encode(b"\0" * lead + data + b"\0" * 3).rstrip(b"=")[4:-6]


NEEDLES = [(f"{name} ({form})", spelt) for name, secret in INNER.items() for form, spelt in forms(secret)]


def leaks(data: bytes) -> list[str]:
    return [name for name, spelt in NEEDLES if spelt in data]


class Watch:
    """Runs commands in a project and looks at every byte that they leave."""

    def __init__(self, folder: Path, run: Callable[..., bytes]) -> None:
        self.folder = folder
        self._run = run
        self.found: dict[str, list[str]] = {}

    def __call__(self, *command: str) -> bytes:
        said = self._run(*command)
        if found := leaks(said):
            self.found[f"kfm {' '.join(command)}"] = found
        return said

    def look(self) -> dict[str, list[str]]:
        """Everything that was said, and every file but those that the secrets were put into."""
        for path in sorted(self.folder.rglob("*")):
            place = str(path.relative_to(self.folder))
            if place.startswith(("secrets", "named")):
                continue
            data = os.fsencode(place) + (path.read_bytes() if path.is_file() else b"")
            if found := leaks(data):
                self.found[place] = found
        return self.found


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project that knows all of them, and an upstream that repeats them."""
    for name in list(os.environ):
        if name.startswith(("KFM_", "GITHUB_", "OTEL_", "OPENLINEAGE")):
            monkeypatch.delenv(name)
    for name, secret in SECRETS.items():
        monkeypatch.setenv(f"PLANTED_{name.upper()}", secret)
    # By their names alone: no configuration refers to them.
    monkeypatch.setenv("SOME_TOKEN", SECRETS["environment_token"])
    monkeypatch.setenv("DB_PASSWORD", SECRETS["environment_password"])
    monkeypatch.setenv("SERVICE_PRIVATE_KEY", SECRETS["private_key"])
    monkeypatch.setenv("GOOGLE_CREDENTIALS", SECRETS["json_key"])
    monkeypatch.setenv("BACKUP_CREDENTIALS", SECRETS["dsn"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "header_file").write_text(SECRETS["header_file"])
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / f"{SECRETS['named_file']}.csv").write_text("a,b\n1,2\n")
    (tmp_path / "p.py").write_text(PIPELINE)
    url, server = serve(tuple(INNER.values()))
    (tmp_path / "kfm.json").write_text(configuration(url))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    server.shutdown()
    server.server_close()


@pytest.fixture
def watch(planted: Path, capfd: pytest.CaptureFixture[str]) -> Watch:
    from kfm.cli import main

    def run(*command: str) -> bytes:
        capfd.readouterr()
        with pytest.raises(SystemExit):
            main(list(command))
        out, err = capfd.readouterr()
        return f"{out}\n{err}".encode()

    return Watch(planted, run)


FORMS = ((), ("--json",), ("--verbose",), ("--verbose", "--log-format", "json"), ("-o", "jsonl", "--verbose"))


def ids(watch: Watch) -> list[str]:
    out = watch("runs", "--json", "--limit", "100")
    return [run["run_id"] for run in json.loads(out.partition(b"\n}\n")[0] + b"}")["runs"]]


def live(watch: Watch) -> None:
    """Every command that exists, in every form, on sources that end in every way."""
    reasons = ("--rationale", f"because of {told(SECRETS['rationale'])}", "--ticket", SECRETS["rationale"])
    for form in FORMS:
        watch("run", *form)
        watch("run", "--dry-run", *form)
        watch("diff", *form)
    watch("run", "--source", "good", "--force", "--actor", SECRETS["rationale"], *reasons, "--verbose")
    watch("run", "--source", "good", "--correction", SECRETS["rationale"], *reasons)
    watch("switch", "set", "paused", "--dataset", "open", "--rationale", reasons[1])
    watch("run", "--source", "good", "--json")
    watch("switch", "set", "running", "--dataset", "open", "--rationale", reasons[1])
    runs = ids(watch)
    assert len(runs) >= 10
    commands = [
        *(["show", run] for run in runs),
        *(["explain", run] for run in runs),
        *(["explain", f"{run}/fetch"] for run in runs),
        *(["explain", source] for source in ("good", "denied", "open", "blocked", "talk")),
        *(["status"], ["runs"], ["config", "show", "--origin"], ["config", "check"], ["doctor"]),
        *(["switch", "list"], ["project"], ["gc"], ["audit", "verify"], ["audit", "list"], ["metrics"]),
        *(["lineage", "deliver"], ["lineage", "status"]),
        *(["lineage", "show", run] for run in runs[:3]),
    ]
    for command in commands:
        for form in FORMS[:4]:
            watch(*command, *form)
    watch("audit", "export", "audit-export", "--internal")
    watch("export", runs[0], "--to", "bundle")
    watch("release", "v1.0.0", "--json")
    watch("runs", "--export", "runs.jsonl")


def test_none_of_twenty_secrets_is_found(watch: Watch) -> None:
    """Nothing on a stream, in the database, artifacts, events or the published tree tells any of them."""
    assert len(SECRETS) == 20
    live(watch)
    assert (watch.folder / "published" / "open" / "current").exists()
    assert watch.look() == {}


def test_the_watch_would_find_them(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """With masking taken out the same commands give secrets away: the test above is able to fail."""
    monkeypatch.setattr(redacting.Redactor, "__call__", lambda _self, text: text)
    watch("run", "--source", "talk", "--source", "fail", "--verbose")
    found = " ".join(name for names in watch.look().values() for name in names)
    assert "(raw)" in found
    assert "(hex)" in found
    assert "(quoted)" in found
    assert "(base64" in found


@pytest.mark.parametrize("form", [("--json",), ("--verbose",), ("--verbose", "--log-format", "json")])
def test_a_store_that_refuses_us(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    """The password of a database's address is in no error about it."""
    monkeypatch.setenv("KFM_STORE", SECRETS["dsn"])
    for command in ("run", "status", "doctor"):
        watch(command, *form)
    assert watch.look() == {}


def test_in_a_process_of_its_own(planted: Path) -> None:
    """Also where Python itself prints an exception that no code caught."""

    def run(*command: str) -> bytes:
        done = subprocess.run(
            [sys.executable, "-m", "kfm", *command], capture_output=True, timeout=120, check=False
        )
        return done.stdout + b"\n" + done.stderr

    watch = Watch(planted, run)
    watch("run", "--source", "talk", "--source", "fail", "--source", "denied", "--verbose")
    watch("status")
    watch("run", "--source", "fail", "--verbose", "--log-format", "json")
    assert watch.look() == {}
