"""Loading a person's pipeline function from a file of the project."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from kfm.core.errors import PipelineError


def load_function(path: str, name: str) -> Callable[[Any], None]:
    """The function `name` of the Python file at `path`."""
    module_name = "kfm_pipeline_" + hashlib.sha256(path.encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError:
        raise PipelineError(f"There is no file {path}.") from None
    except Exception as error:
        raise PipelineError(f"{path}: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        known = sorted(
            key for key, value in vars(module).items() if callable(value) and not key.startswith("_")
        )
        raise PipelineError(f"{path} has no function {name}; it has {', '.join(known) or 'none'}.")
    loaded: Callable[[Any], None] = function
    return loaded
