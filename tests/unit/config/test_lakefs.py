"""What a configuration may say about lakeFS."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.config.loader import load
from kfm.model.errors import ConfigError

pytestmark = pytest.mark.req("RS-5")

RIGHT = """\
version: 1
run_state: {store: lakefs}
lakefs:
  endpoint: https://lakefs.example.org
  repository: example
  access_key: env:LAKEFS_ACCESS_KEY
  secret_key: env:LAKEFS_SECRET_KEY
"""


def loaded(folder: Path, text: str) -> None:
    (folder / "kfm.yml").write_text(text)
    load(str(folder / "kfm.yml"), {}, {})


def test_a_right_one(tmp_path: Path) -> None:
    """Keys are references; nothing is read while it is loaded."""
    loaded(tmp_path, RIGHT)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("run_state: {store: lakefs}\n", "", "`run_state.store` is `relational`"),
        ("store: lakefs", "store: branch", "`run_state.store` is `branch`"),
        (RIGHT[RIGHT.index("lakefs:\n") :], "", "`lakefs` names no server"),
        ("https://lakefs", "lakefs", "`endpoint` must be"),
        ("repository: example", "repository: Ex_ample", "`repository` must have"),
        ("env:LAKEFS_SECRET_KEY", "s3cr3t-s3cr3t-s3cr3t", "`secret_key` holds a secret"),
        ("env:LAKEFS_ACCESS_KEY", "AKIA-s3cr3t", "`access_key` holds a secret"),
        ("https://lakefs", "https://ada:s3cr3t-s3cr3t@lakefs", "`endpoint` holds credentials"),
    ],
)
def test_a_wrong_one_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    """By the field, and without any secret."""
    assert old in RIGHT
    with pytest.raises(ConfigError, match=said) as caught:
        loaded(tmp_path, RIGHT.replace(old, new))
    assert "s3cr3t" not in str(caught.value)
