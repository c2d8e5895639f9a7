"""`kfm replay drain` against SQS: what was received in vain becomes units, and the queue is empty."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from tests import services
from tests.conformance.queues.senders import Fanned, all_of, receipts, s3_event

CONFIG = """\
version: 1
environment: test
ingest:
  topics: ["{topic}"]
  queues:
    - name: mrms
      url: "{url}"
      options: {{region: {region}, endpoint_url: "{endpoint}"}}
"""


@pytest.mark.req("WAL-13", "WAL-20")
def test_dead_letters_of_sqs_become_units(
    emulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Topic → queue → two tries in vain → dead letters → drained, worked off, in the catalogue."""
    from kfm.cli import main

    fanned = Fanned(emulator)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kfm.yml").write_text(
        CONFIG.format(topic=fanned.topic, url=fanned.url, region=services.S3_REGION, endpoint=emulator)
    )
    for number in range(4):
        fanned.publish(s3_event(number))
    queue = fanned.open(fanned.url)
    for _ in range(2):
        queue.put_back(receipts(all_of(queue, 4, 2_000)))
    assert queue.receive(10, 0) == []

    def call(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        return out

    why = ("--rationale", "the ledger is back")
    drained = json.loads(call("replay", "drain", "mrms", "--url", fanned.dead_url, *why, "--json"))
    assert drained["drained"] == {"received": 4, "durable": 4, "left": 0}
    assert drained["report"]["created"] == 4
    again = json.loads(call("replay", "drain", "mrms", "--url", fanned.dead_url, *why, "--json"))
    assert again["drained"]["received"] == 0
    call("worker", "--until-idle", "--no-intake")
    with open_app(load(None, {})) as app:
        counts = app.ledger.unit_reader().unit_counts()
    assert counts["mrms", "succeeded"] == 4
    queue.close()
