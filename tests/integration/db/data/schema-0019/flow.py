"""Two nodes."""

import kfm

flow = kfm.Pipeline("flow")


@flow.node("flow.gauges")
def gauges() -> int:
    return 1


@flow.node("flow.total")
def total(gauges: int) -> int:
    return gauges + 1
