"""pytest's plugin `kfm`: the fixture `kfm_time`. It does nothing to tests that don't ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kfm.testing.driven_time import DrivenTime


@pytest.fixture
def kfm_time() -> Iterator[DrivenTime]:
    """`kfm.call` without waiting: time passes only where a call would sleep, or by `advance`.

    `delays` lists the waits in seconds, `tried` every failed try; circuits begin closed.
    """
    from kfm.testing.driven_time import driven_time

    with driven_time() as time:
        yield time
