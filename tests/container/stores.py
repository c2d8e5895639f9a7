"""What pods talk to, on a host of its own: PostgreSQL, buckets, a queue, and an upstream that can be held."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests import services
from tests.conformance.queues.senders import KEY, s3_event, sqs_client
from tests.container.network import Host

BUCKETS = ("kfm-objects", "kfm-published", "noaa-mrms-pds")
DATASET = "mrms"  # of what the queue announces


@dataclass
class Upstream:
    """A provider of one file; its first reader waits until it is let go."""

    address: str = ""
    asked: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def serving(self, host: str) -> Iterator[None]:
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._head()

            def do_GET(self) -> None:
                first = not upstream.asked.is_set()
                upstream.asked.set()
                self._head()
                if first:
                    upstream.let_go.wait(60)
                self.wfile.write(b"site,flow\nks,1\n")

            def _head(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "15")
                self.send_header("Content-Type", "text/csv")
                self.send_header("ETag", '"one"')
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer((host, 0), Handler)
        self.address = f"http://{host}:{server.server_port}/streamflow.csv"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.let_go.set()
            server.shutdown()
            server.server_close()


class Stores:
    """All of them; opened on their host."""

    def __init__(self, host: Host, dsn: str, endpoint: str, upstream: Upstream) -> None:
        self.host, self.endpoint, self.upstream = host, endpoint, upstream
        self.dsn = dsn.replace("127.0.0.1", host.address)
        self._s3, self._sqs = services.s3_client(endpoint), sqs_client(endpoint)
        for bucket in BUCKETS:
            self._s3.create_bucket(Bucket=bucket)
        self.queue = self._sqs.create_queue(QueueName="nodd")["QueueUrl"]

    def announce(self, count: int) -> None:
        """So many objects, which are there."""
        with self.host.entered():
            times = [_time_of_day(number) for number in range(count)]
            for each in times:
                self._s3.put_object(Bucket="noaa-mrms-pds", Key=KEY.format(each), Body=b"twelve bytes")
            for at in range(0, count, 10):
                entries = [{"Id": str(each), "MessageBody": s3_event(each)} for each in times[at : at + 10]]
                self._sqs.send_message_batch(QueueUrl=self.queue, Entries=entries)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with self.host.entered(), psycopg.connect(self.dsn, autocommit=True) as link:
            return link.execute(statement).fetchall()  # type: ignore[arg-type]

    def published(self) -> list[str]:
        with self.host.entered():
            found = self._s3.list_objects_v2(Bucket="kfm-published").get("Contents", ())
        return [each["Key"] for each in found]

    def secrets(self, webhook: str) -> dict[str, str]:
        key, secret = services.S3_ACCESS_KEY, services.S3_SECRET_KEY
        return {
            "store": self.dsn,
            "webhook": webhook,
            "access-key-id": key,
            "secret-access-key": secret,
            "aws-credentials": f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n",
        }

    def config(self, text: str, tokens: dict[str, str]) -> str:
        """The configuration of the manifests, with what its users have to replace: addresses and tokens."""
        from io import StringIO

        from ruamel.yaml import YAML

        yaml = YAML(typ="safe", pure=True)
        document = yaml.load(text)
        document["objects_options"]["endpoint"] = self.endpoint
        for target in document["publish"]:
            target["options"]["endpoint"] = self.endpoint
        document["sources"][0]["url"] = self.upstream.address
        (queue,) = document["ingest"]["queues"]
        queue |= {"url": self.queue, "options": {"region": services.S3_REGION, "endpoint_url": self.endpoint}}
        document["ingest"]["policies"] = [{"integrity": "head"}]
        read = {"endpoint": self.endpoint, "region": services.S3_REGION}
        read |= {name: document["objects_options"][name] for name in ("access_key_id", "secret_access_key")}
        document["ingest"]["object_options"] = {"s3://*": read}
        for person in document["people"]:
            if "tokens" in person:
                person["tokens"] = [tokens[person["subject"]]]
        written = StringIO()
        yaml.dump(json.loads(json.dumps(document)), written)
        return written.getvalue()


def _time_of_day(seconds: int) -> int:
    """As keys have it: 61 is 101, a minute and a second."""
    return seconds // 3600 * 10_000 + seconds // 60 % 60 * 100 + seconds % 60


@contextlib.contextmanager
def stores(host: Host, scratch: Path) -> Iterator[Stores]:
    access = scratch / "pg_hba.conf"
    access.write_text("host all all 0.0.0.0/0 scram-sha-256\n")
    settings = [f"hba_file={access}", "listen_addresses=*", "max_connections=60"]
    os.chmod(scratch, 0o755)
    with contextlib.ExitStack() as stack:
        with host.entered():
            dsn = stack.enter_context(services.postgres_server(services.postgres_install, settings))
            dsn = stack.enter_context(services.postgres_database(dsn))
            endpoint = stack.enter_context(services.s3(host.address))
            upstream = Upstream()
            stack.enter_context(upstream.serving(host.address))
            made = Stores(host, dsn, endpoint, upstream)
        yield made
