"""What a schedule's next run means for the retries of its last one."""

from __future__ import annotations

from kfm.core.records import Run
from kfm.engine.kernel import Kernel


def next_run_ms(kernel: Kernel, run: Run) -> int | None:
    """When the next run of the same schedule begins; None for whatever was not started by one.

    What a failed run leaves is tried with that one: its retries never overlap it.
    """
    return kernel.next_scheduled_ms(run) if run.trigger_type == "cron" else None
