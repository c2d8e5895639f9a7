from kfm.calls.call import call as call
from kfm.calls.runtime import deadline as deadline
from kfm.calls.runtime import handed_up as handed_up
from kfm.calls.runtime import within as within
from kfm.model.errors import CallTimedOut as CallTimedOut
from kfm.model.errors import CircuitOpen as CircuitOpen
from kfm.pipelines.declaration import Pipeline as Pipeline
from kfm.pipelines.run_state import run_state as run_state

__version__: str
