"""What nodes hand to each other, as bytes under their hash.

Bytes stay bytes, everything else becomes JSON. A dependant always receives what was stored, whether
its producer ran just now or years ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.model.errors import UnserialisableValue
from kfm.model.records import Output
from kfm.objects.local import verify_object

if TYPE_CHECKING:
    from kfm.ports import Objects

JSON_VALUE = "value.json"
BYTES_VALUE = "value.bin"
VALUE_BYTES_MAX = 256 * 1024 * 1024
_CHUNK = 1024 * 1024
_ENCODER = msgspec.json.Encoder(order="sorted")
_PLAIN = (str, int, float, bool, type(None))


def store_bytes(objects: Objects, data: bytes) -> tuple[str, int]:
    staging, _ = objects.stage()
    try:
        for start in range(0, len(data), _CHUNK):
            staging.write(data[start : start + _CHUNK])
        return staging.commit()
    except BaseException:
        staging.abort()
        raise


def store_value(objects: Objects, node: str, value: Any) -> Output:
    raw = isinstance(value, bytes | bytearray | memoryview)
    data = bytes(value) if raw else _encoded(node, value)
    if len(data) > VALUE_BYTES_MAX:
        raise UnserialisableValue(
            f"{node} returned {len(data)} bytes; {VALUE_BYTES_MAX} are allowed.",
            remedy="Write large results with ctx.publisher.write_file: they are streamed.",
        )
    sha256, size = store_bytes(objects, data)
    return Output(name=BYTES_VALUE if raw else JSON_VALUE, checksum=f"sha256:{sha256}", size=size)


def load_value(objects: Objects, output: Output) -> Any:
    data = read_object(objects, output.checksum)
    return data if output.name == BYTES_VALUE else msgspec.json.decode(data)


def read_object(objects: Objects, checksum: str) -> bytes:
    reader = objects.open(checksum.removeprefix("sha256:"))
    try:
        return b"".join(iter(lambda: reader.read(_CHUNK), b""))
    finally:
        reader.close()


class NodeFiles(Mapping[str, "StoredFile"]):
    """The files that a node wrote, by name, for those that read from it."""

    def __init__(self, outputs: Sequence[Output], objects: Objects) -> None:
        self._files = {each.name: StoredFile(each, objects) for each in outputs}

    def __getitem__(self, name: str) -> StoredFile:
        return self._files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class StoredFile:
    """One file in the object store."""

    def __init__(self, output: Output, objects: Objects) -> None:
        self.name = output.name
        self.size = output.size
        self.checksum = output.checksum
        self._objects = objects
        self._is_sound = False

    @property
    def path(self) -> str | None:
        """Where it lies on this machine, to be read only; None if the objects are elsewhere.

        Its bytes are compared with its checksum first: nothing else looks at what is read by a path."""
        sha256 = self.checksum.removeprefix("sha256:")
        found = self._objects.local_path(sha256)
        if found is not None and not self._is_sound:
            self._is_sound = verify_object(self._objects, sha256) == self.size
        return found

    def read(self) -> bytes:
        return read_object(self._objects, self.checksum)


def handed_on(outputs: Sequence[Output], objects: Objects) -> Any:
    """What a dependant receives: the value, or the files of a node that returned none."""
    value = next((each for each in outputs if each.name in (JSON_VALUE, BYTES_VALUE)), None)
    files = [each for each in outputs if each is not value]
    if value is None:
        return NodeFiles(files, objects)
    loaded = load_value(objects, value)
    return NodeFiles(files, objects) if loaded is None and files else loaded


def _encoded(node: str, value: Any) -> bytes:
    plain = _plain(value, node, "the value", 0)
    try:
        return _ENCODER.encode(plain)
    except UnicodeEncodeError as error:
        raise UnserialisableValue(
            f"{node}: a text in the value can't be written as UTF-8: {error}."
        ) from None


def _plain(value: Any, node: str, where: str, depth: int) -> Any:
    """Plain JSON, or an error that names the very field."""
    kind = type(value)
    if kind in _PLAIN:
        if kind is float and (value != value or value in (float("inf"), float("-inf"))):
            raise UnserialisableValue(f"{node}: {where} is {value}, which JSON does not know.")
        return value
    if depth > 100:
        raise UnserialisableValue(f"{node}: {where} is nested too deeply.")
    if isinstance(value, msgspec.Struct) or hasattr(value, "__dataclass_fields__"):
        try:
            return msgspec.to_builtins(value)
        except TypeError as error:
            raise UnserialisableValue(f"{node}: {where}: {error}.") from None
    if isinstance(value, Mapping):
        made = {}
        for key, child in value.items():
            if type(key) is not str:
                raise UnserialisableValue(f"{node}: {where} has the key {key!r}, which is not text.")
            made[key] = _plain(child, node, f"{where}.{key}", depth + 1)
        return made
    if isinstance(value, list | tuple):
        return [_plain(child, node, f"{where}[{index}]", depth + 1) for index, child in enumerate(value)]
    raise UnserialisableValue(
        f"{node}: {where} is a {kind.__module__}.{kind.__qualname__}.",
        remedy="Return plain values, bytes, dataclasses or msgspec structs, or write a file with "
        "ctx.publisher.write_file.",
    )
