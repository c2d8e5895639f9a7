"""Loading a person's pipeline function from a file of the project."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kfm.core.errors import PipelineError
from kfm.runs.declare import Pipeline


def load_function(path: str, name: str) -> Callable[[Any], None] | Pipeline:
    """The function, or the pipeline of nodes, `name` of the Python file at `path`."""
    if path.endswith(".mjs"):
        raise PipelineError(
            f"{path} is an ES module, which Python does not run.",
            remedy="Run its source with Node.js: `node node/runner.mjs run …`, with the same flags.",
        )
    module_name = "kfm_pipeline_" + hashlib.sha256(path.encode()).hexdigest()[:12]
    module = ModuleType(module_name)
    module.__file__ = path
    sys.modules[module_name] = module
    try:
        # Not through the import system: that would leave bytecode beside the person's file.
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), module.__dict__)  # noqa: S102 - a pipeline is code that its owner asked to run
    except FileNotFoundError:
        raise PipelineError(f"There is no file {path}.") from None
    except (Exception, SystemExit) as error:
        raise PipelineError(f"{path}: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function) and not isinstance(function, Pipeline):
        known = sorted(
            key for key, value in vars(module).items() if callable(value) and not key.startswith("_")
        )
        raise PipelineError(f"{path} has no function {name}; it has {', '.join(known) or 'none'}.")
    loaded: Callable[[Any], None] | Pipeline = function
    return loaded
