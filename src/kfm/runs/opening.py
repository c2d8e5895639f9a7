"""From `flows/soil.py:pipeline` to the pipeline that the file declares."""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
from types import ModuleType

from kfm.core.errors import PipelineError
from kfm.runs.declare import Pipeline
from kfm.runs.graph import near

REMEDY = "Name a Python file that makes a kfm.Pipeline: `FILE`, or `FILE:NAME` where it makes several."


def load_pipeline(wanted: str) -> Pipeline:
    """The pipeline of a file: the one that is named, or the only one."""
    path, name = split(wanted)
    found = pipelines_of(path)
    if name is not None:
        if name in found:
            return found[name]
        known = f"it has {', '.join(found)}" if found else "it makes none"
        raise PipelineError(f"{path} has no pipeline {name}: {known}{near(name, found)}.", remedy=REMEDY)
    distinct = list({id(value): value for value in found.values()}.values())
    if len(distinct) == 1:
        return distinct[0]
    if not distinct:
        raise PipelineError(f"{path} makes no kfm.Pipeline.", remedy=REMEDY)
    raise PipelineError(
        f"{path} makes several pipelines: {', '.join(found)}.",
        remedy=f"Name one: `{path}:{next(iter(found))}`.",
    )


def pipelines_of(path: str) -> dict[str, Pipeline]:
    """All that a file makes, by the names that it gives them."""
    return {key: value for key, value in vars(_executed(path)).items() if isinstance(value, Pipeline)}


def split(wanted: str) -> tuple[str, str | None]:
    """A file may have a colon in its name: then it is there."""
    path, colon, name = wanted.rpartition(":")
    if colon and name.isidentifier() and not os.path.exists(wanted):
        return path, name
    return wanted, None


def _executed(path: str) -> ModuleType:
    try:
        # Not through the import system: that would leave bytecode beside the person's file.
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise PipelineError(f"{path} can't be read: {(why or str(error)).lower()}.", remedy=REMEDY) from None
    absolute = os.path.abspath(path)
    name = "kfm_pipeline_" + hashlib.sha256(absolute.encode()).hexdigest()[:12]
    module = ModuleType(name)
    module.__file__ = absolute
    sys.modules[name] = module
    linecache.checkcache(absolute)  # the code's hash is that of the text as it is now
    folder = os.path.dirname(absolute)
    if folder not in sys.path:
        sys.path.append(folder)  # last: its neighbours can be imported, and hide nothing
    try:
        exec(compile(text, absolute, "exec"), module.__dict__)  # noqa: S102 - a pipeline is code that its owner asked to run
    except PipelineError:
        raise
    except (Exception, SystemExit) as error:
        place = _line(error, absolute)
        raise PipelineError(
            f"{path}{place}: {type(error).__name__}: {error}", remedy="Mend the file; it did not load."
        ) from error
    return module


def _line(error: BaseException, path: str) -> str:
    """`:12`, the line of the file at which it went wrong."""
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        return f":{error.lineno}"
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""
