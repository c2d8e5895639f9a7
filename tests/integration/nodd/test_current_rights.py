"""Rights of announced datasets as they are configured now: a worker that runs for long sees changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.nodd.ingest import NoddIngest

CONFIG = """\
version: 1
datasets:
  - {id: %s, rights: {license: CC0-1.0, care: {label: Public, level: %s}}}
sources: []
"""


@pytest.mark.req("UPD-9")
def test_worker_asks_for_the_rights_of_now(tmp_path: Path) -> None:
    """Blocked, gone, or in a file that can't be read: nothing of the dataset is begun until it is mended."""
    path = tmp_path / "kfm.yml"
    path.write_text(CONFIG % ("nexrad-l2", "public"))
    with open_app(load(str(path))) as app:
        gate = NoddIngest(app).context().gate
        assert gate("nexrad-l2", False).allowed
        for text in (CONFIG % ("nexrad-l2", "blocked"), CONFIG % ("another", "public"), "datasets: ["):
            path.write_text(text)
            assert not gate("nexrad-l2", False).allowed, text
        assert not gate("goes16", False).allowed, "a dataset that needs no declaration waits, too"
        path.write_text(CONFIG % ("nexrad-l2", "public"))
        assert gate("nexrad-l2", False).allowed
