"""Which files a function would import when it is called, told without importing anything."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from opcode import EXTENDED_ARG, opmap
from types import CodeType

_IMPORT_NAME = opmap["IMPORT_NAME"]


def imports(code: CodeType) -> list[str]:
    """Names of the modules that it imports, in order."""
    found, high, steps = [], 0, code.co_code
    for at in range(0, len(steps), 2):
        number = high | steps[at + 1]
        if steps[at] == _IMPORT_NAME:
            found.append(code.co_names[number])
        high = number << 8 if steps[at] == EXTENDED_ARG else 0
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return [*found, *(name for each in inner for name in imports(each))]


def files_of(name: str, package: str, names: Collection[str]) -> Iterator[str]:
    """Files of the module `name`, seen from `package`, and of those of `names` that are modules in it."""
    top, *below = name.split(".")
    start = _origin(top) if top else None
    if start is None and package:  # a relative import
        start, below = _origin(package), name.split(".") if name else []
    if start is None:
        return
    yield start
    folder = os.path.dirname(start) if os.path.basename(start) == "__init__.py" else None
    for each in below:
        if folder is None:
            return
        start = _module_in(folder, each)
        if start is None:
            return
        yield start
        folder = os.path.dirname(start) if os.path.basename(start) == "__init__.py" else None
    for each in sorted(names) if folder is not None else ():
        inside = _module_in(folder or "", each)
        if inside is not None:
            yield inside


def _origin(name: str) -> str | None:
    loaded = sys.modules.get(name)
    if loaded is not None:
        return getattr(loaded, "__file__", None)
    from importlib.util import find_spec

    try:
        found = find_spec(name)
    except (ImportError, ValueError):
        return None
    return found.origin if found is not None and found.has_location else None


def _module_in(folder: str, name: str) -> str | None:
    for path in (os.path.join(folder, f"{name}.py"), os.path.join(folder, name, "__init__.py")):
        if os.path.isfile(path):
            return path
    return None
