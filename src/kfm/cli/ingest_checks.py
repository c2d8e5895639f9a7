"""What `kfm doctor` says of queues, mirrors and replicas. Nothing is received, nothing is sent to them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from kfm.cli.health import ADDRESS_TIMEOUT_S, Finding
from kfm.core.errors import BackendUnavailable, KfmError


def examine_ingest(loaded: Any) -> Iterator[Finding]:
    from kfm import wiring
    from kfm.wiring.known_datasets import require_known_datasets

    ingest = loaded.settings.ingest
    try:
        require_known_datasets(loaded)
    except KfmError as error:
        yield Finding("ingest", "fail", error.message, error.way_out)
    with wiring.open_app(loaded, read_only=True) as app:
        for queue in ingest.queues:
            try:
                yield _queue(app, queue)
            except KfmError as error:
                yield Finding("queues", "fail", f"{queue.name}: {error.message}", error.way_out, backend=True)
    for bucket, path in ingest.mirrors.items():
        yield _folder("mirrors", bucket, loaded.resolve(path), os.R_OK | os.X_OK, "read")
    for replica in ingest.replicas:
        try:
            yield _replica(loaded, replica)
        except KfmError as error:
            yield Finding("replicas", "fail", f"{replica.name}: {error.message}", error.way_out)


def _queue(app: Any, queue: Any) -> Finding:
    if queue.kind == "folder":
        # What was taken in is removed, so reading alone does not do.
        return _folder(
            "queues", queue.name, app.loaded.resolve(queue.path), os.R_OK | os.W_OK | os.X_OK, "emptied"
        )
    from kfm.wiring.ingest import IngestPlace

    place = IngestPlace(app)
    opened: Any = place.queue(queue)
    try:
        opened.probe()
    except BackendUnavailable as error:
        if error.facts.get("cause") != "access":
            raise
        said = f"{queue.name}: it answers, but not whether we may use it (no sqs:GetQueueAttributes)"
        return Finding("queues", "warn", said, "Allow that action too, or see what `kfm worker --once` says.")
    finally:
        opened.close()
        place.close()
    return Finding("queues", "ok", f"{queue.name}: the queue answers")


def _folder(group: str, name: str, path: str, mode: int, deed: str) -> Finding:
    if not os.path.isdir(path):
        return Finding(group, "fail", f"{name}: there is no folder {path}", "Create or mount it.", True)
    if not os.access(path, mode):
        return Finding(group, "fail", f"{name}: {path} can't be {deed}", "Change its owner or mode.", True)
    return Finding(group, "ok", f"{name}: {path} can be {deed}")


def _replica(loaded: Any, replica: Any) -> Finding:
    """Its landing page. A replica that is away for a while loses nothing: deliveries wait."""
    import httpx

    from kfm.core.redact import redact_url

    url = loaded.secret(replica.url)
    headers = {"Authorization": f"Bearer {loaded.secret(replica.token)}"} if replica.token else {}
    shown = f"{replica.name}: {redact_url(url)}"
    try:
        answer = httpx.get(url, headers=headers, timeout=ADDRESS_TIMEOUT_S, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = loaded.hide(str(error)) or type(error).__name__
        fix = "Check the address and the network; deliveries wait meanwhile."
        return Finding("replicas", "fail", f"{shown}: {why}", fix, backend=True)
    if answer.status_code in (401, 403):
        return Finding(
            "replicas", "fail", f"{shown} refuses us ({answer.status_code})", "Check `token`.", True
        )
    if answer.status_code != 200:
        return Finding(
            "replicas", "fail", f"{shown} answers {answer.status_code}", "Check the address.", True
        )
    return Finding("replicas", "ok", f"{shown} answers")
