from kfm.calls.deadlines import deadline as deadline
from kfm.calls.deadlines import within as within
from kfm.calls.declare import call as call
from kfm.calls.tried import handed_up as handed_up
from kfm.core.errors import CallTimedOut as CallTimedOut
from kfm.core.errors import CircuitOpen as CircuitOpen
from kfm.runs.declare import Pipeline as Pipeline
from kfm.runs.wrapping import run_state as run_state

__version__: str
