"""The code hash of a node: its own text, and the project code and constants that it reaches."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import sha256
from opcode import EXTENDED_ARG, opmap
from types import CodeType, FrameType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfm.pipelines.declaration import NodeSpec


_ATOMS = (bool, int, float, complex, str, bytes, bytearray, range, slice, type(Ellipsis))
_TELLING = ("datetime", "decimal", "fractions", "pathlib", "pathlib._local", "re", "uuid", "zoneinfo")
_OF_DATA = ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__", "__members__")
_NO_NAMES: frozenset[str] = frozenset()


class CodeHashes:
    """Code hashes, cached: many nodes are made by the same few functions."""

    def __init__(self) -> None:
        self._texts: dict[CodeType, str] = {}
        self._digests: dict[CodeType, str] = {}

    def of(self, function: Callable[..., Any]) -> str:
        """`code:<16 hex digits>`."""
        bare = isinstance(function, FunctionType) and not (
            function.__defaults__ or function.__kwdefaults__ or function.__closure__ or function.__dict__
        )
        code = function.__code__ if isinstance(function, FunctionType) else None
        if bare and code in self._digests:
            return self._digests[code]
        text = "\n".join(_Walk(self._texts).through(function))
        digest = "code:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        if bare and code is not None:
            self._digests[code] = digest
        return digest

    def of_spec(self, spec: NodeSpec) -> str:
        return f"version:{spec.version}" if spec.version is not None else self.of(spec.function)


class _Walk:
    """From a function to all that it uses, one after the other; each thing counts once."""

    def __init__(self, texts: dict[CodeType, str]) -> None:
        self._parts: list[str] = []
        self._texts = texts
        self._numbers: dict[int, int] = {}  # by identity
        self._queue: list[Any] = []  # what is in it stays alive, so identities stay apart
        self._read: set[Any] = set()
        self._around: set[int] = set()  # the containers that we are in

    def through(self, value: Any) -> list[str]:
        self._tell(value)
        for each in self._queue:  # grows meanwhile
            if isinstance(each, FunctionType):
                self._function(each)
            elif isinstance(each, type):
                self._class(each)
            else:
                self._object(each)
        return self._parts

    def around(self, frame: FrameType) -> list[str]:
        """The same from a place in a running function; of a file's top level, where values come and go,
        only functions, classes and modules count beside the text."""
        code, there = frame.f_code, frame.f_globals
        if there is frame.f_locals:
            there = {name: each for name, each in there.items() if isinstance(each, _CODE)}
        self._parts.append(self._text(code))
        names = _names(code)
        for name in code.co_freevars:
            if name in frame.f_locals:
                self._parts.append(name)
                self._tell(frame.f_locals[name], names)
        self._mentioned(there, names)
        self._imported(code, frame.f_globals.get("__package__") or "")
        return self.through(None)

    def _tell(self, value: Any, names: Iterable[str] = _NO_NAMES) -> None:
        """`names` are those that the user of the value mentions: of a module, only these count."""
        kind = type(value)
        if value is None or kind in _ATOMS or kind.__module__ in _TELLING:
            self._parts.append(f"{kind.__name__}:{value!r}")
        elif isinstance(value, ModuleType):
            self._module(value, names)
        elif isinstance(value, dict | MappingProxyType):
            self._items(value, value.items())
        elif isinstance(value, list | tuple):
            self._items(value, enumerate(value))
        elif isinstance(value, set | frozenset):
            # Sorted: the order of a set differs from process to process.
            texts = sorted(" ".join(_Walk(self._texts).through(each)) for each in value)
            self._parts += ["{", *texts, "}"]
        else:
            number = self._numbers.setdefault(id(value), len(self._queue))
            if number == len(self._queue):
                self._queue.append(value)
            self._parts.append(f"#{number}")

    def _items(self, held: Any, items: Iterable[tuple[Any, Any]]) -> None:
        """In their order: it shows in whatever is made from them."""
        if id(held) in self._around:
            self._parts.append("itself")
            return
        self._around.add(id(held))
        self._parts.append(f"{type(held).__qualname__}(")
        for key, value in items:
            self._tell(key)
            self._tell(value)
        self._parts.append(")")
        self._around.discard(id(held))

    # --- code ----------------------------------------------------------------------------

    def _function(self, function: FunctionType) -> None:
        code = function.__code__
        own = _is_own(code.co_filename)
        self._parts.append(self._text(code) if own else f"{function.__module__}.{function.__qualname__}")
        for more in (function.__defaults__, function.__kwdefaults__, function.__dict__):
            if more:
                self._tell(more)
        names = _names(code)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                value = cell.cell_contents
            except ValueError:  # not bound yet
                continue
            self._parts.append(name)
            self._tell(value, names)
        if own:
            self._mentioned(function.__globals__, names)
            self._imported(code, function.__globals__.get("__package__") or "")

    def _mentioned(self, there: dict[str, Any], names: Iterable[str]) -> None:
        for name in sorted(names):
            if name in there and not name.startswith("__"):
                self._parts.append(name)
                self._tell(there[name], names)

    def _module(self, module: ModuleType, names: Iterable[str]) -> None:
        self._parts.append(module.__name__)
        file = getattr(module, "__file__", None)
        key = (id(module), frozenset(names))
        if file is None or not _is_own(file) or key in self._read:
            return
        self._read.add(key)
        if any(name in vars(module) and not name.startswith("__") for name in names):
            self._mentioned(vars(module), names)
        else:  # handed around, or asked by getattr: any part of it may count
            self._file(file)

    def _imported(self, code: CodeType, package: str) -> None:
        """Modules that are imported at a call count whole, since they may not be loaded yet."""
        for name in imports(code):
            for file in files_of(name, package, code.co_names):
                self._file(file)

    def _file(self, file: str) -> None:
        if file in self._read or not _is_own(file):
            return
        self._read.add(file)
        text = "".join(linecache.getlines(file))
        self._parts.append(text)
        try:
            code = compile(text, file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):  # an error where it is imported
            return
        self._imported(code, "")

    def _text(self, code: CodeType) -> str:
        if code not in self._texts:
            first = max(0, code.co_firstlineno - 1)
            lines = linecache.getlines(code.co_filename)[first : _last_line(code)]
            self._texts[code] = "".join(_undecorated(lines)) or _bytecode(code)
        return self._texts[code]

    def _class(self, kind: type) -> None:
        if not _is_own_class(kind):
            self._parts.append(f"{kind.__module__}.{kind.__qualname__}")
            return
        self._parts.append(kind.__qualname__)
        self._parts += [f"{name}: {_annotation(hint)}" for name, hint in _annotations(kind).items()]
        for base in kind.__bases__:
            self._tell(base)
        for name, value in sorted(vars(kind).items()):
            made_up = isinstance(value, FunctionType) and value.__code__.co_filename.startswith("<")
            if not made_up and (not name.startswith("__") or isinstance(value, FunctionType)):
                self._parts.append(name)
                self._tell(value)

    # --- things ----------------------------------------------------------------------------

    def _object(self, value: Any) -> None:
        """Of a thing of the project: its class and what it holds. Of others: the functions that they wrap."""
        kind = type(value)
        if isinstance(value, functools.partial):
            self._items(value, (("", value.func), ("", value.args), ("", value.keywords)))
        elif isinstance(value, MethodType):
            self._items(value, (("", value.__func__), ("", value.__self__)))
        elif isinstance(value, staticmethod | classmethod):
            self._tell(value.__func__)
        elif isinstance(value, property):
            self._items(value, (("", value.fget), ("", value.fset), ("", value.fdel)))
        elif _is_own_class(kind):
            self._tell(kind)
            self._state(value, kind)
        else:
            held = sorted(getattr(value, "__dict__", {}).items()) if hasattr(kind, "__dict__") else ()
            self._parts.append(f"{kind.__module__}.{kind.__qualname__}")
            self._items(value, [(name, each) for name, each in held if isinstance(each, _WRAPPED)])

    def _state(self, value: Any, kind: type) -> None:
        """All of a thing that is data; of others only plain values: what they gather is no code."""
        slots = [name for each in kind.__mro__ for name in _slots(each) if hasattr(value, name)]
        held = {name: getattr(value, name) for name in slots} | getattr(value, "__dict__", {})
        if not any(hasattr(kind, mark) for mark in _OF_DATA):
            held = {name: each for name, each in held.items() if type(each) in _ATOMS}
        self._items(value, sorted(held.items()))


_WRAPPED = (FunctionType, MethodType, functools.partial, type(functools.lru_cache(len)))
_CODE = (*_WRAPPED, type, ModuleType)


def enclosing_code(depth: int) -> str:
    """The hash of the whole function, or file, that a block is in, and of what it uses.

    `depth` is the number of frames out from here.
    """
    text = "\n".join(_Walk({}).around(sys._getframe(depth)))
    return "code:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- whose code it is -----------------------------------------------------------------------


@functools.cache
def _installed() -> tuple[str, ...]:
    """Folders of Python's library, and our own; packages are known by the name of their folder."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return tuple(os.path.join(each, "") for each in (os.path.dirname(os.__file__), ours))


@functools.cache
def _is_own(file: str) -> bool:
    """Neither installed nor Python's: the code of the project itself."""
    parts = file.split(os.sep)
    return not (
        file.startswith(("<frozen", *_installed())) or "site-packages" in parts or "dist-packages" in parts
    )


def _is_own_class(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return _is_own(file) if file is not None else kind.__module__ == "__main__"


# --- reading code -----------------------------------------------------------------------------


def _undecorated(lines: list[str]) -> list[str]:
    """From the `def` on: inputs and parameters in its decorator are hashed as such."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith(("def ", "async def ")):
            indent = len(line) - len(line.lstrip())
            return [each[indent:] if each[:indent].isspace() else each for each in lines[number:]]
    return lines


def _last_line(code: CodeType) -> int:
    """Where its last expression ends, which may be lines after it began: a text, a table."""
    last = max((end or start or 0 for start, end, _, _ in code.co_positions()), default=0)
    return max([last, code.co_firstlineno, *(_last_line(each) for each in _inner(code))])


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(each) for each in _inner(code)))


def _bytecode(code: CodeType) -> str:
    """Without a file, as at a prompt."""
    inner = [_bytecode(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {inner}"


def _annotations(kind: type) -> dict[str, Any]:
    try:
        return dict(getattr(kind, "__annotations__", None) or {})
    except NameError:  # evaluated late
        return {}


def _annotation(hint: Any) -> str:
    return hint if isinstance(hint, str) else getattr(hint, "__qualname__", type(hint).__qualname__)


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


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
