"""A person who writes a configuration, as YAML or JSON, and makes mistakes.

What is right is read as it was meant, in both forms; what is wrong is refused, with the line that it is on.
"""

from __future__ import annotations

import json
import re
from typing import Any

from kfm.model.documents import decoded, parse_json, parse_yaml, shaped
from kfm.model.errors import ConfigError
from kfm.model.settings import Settings
from tests.simulation.actors.scene import Scene, refused
from tests.simulation.judging import require

DOCUMENTS = 6
TITLES = ("", "A title", "- no list")
READERS = {"kfm.yml": parse_yaml, "kfm.json": parse_json}
_LINE = re.compile(r":\d+: ")


def write(scene: Scene) -> None:
    for _ in range(DOCUMENTS):
        scene.pause("write")
        meant = _configuration(scene)
        wanted = shaped(parse_json("kfm.json", json.dumps(meant)), Settings)
        texts = {
            "kfm.yml": scene.rng.choice((json.dumps(meant), _block(meant))),
            "kfm.json": json.dumps(meant, indent=scene.rng.choice((None, 2))),
        }
        for name, text in texts.items():
            found = READERS[name](name, decoded(name, text.encode()))
            require(found.values == meant, "what is written is what is read", name=name, text=text[:300])
            require(shaped(found, Settings) == wanted, "both forms mean the same", name=name)
            _spoil(scene, name, meant)


def _configuration(scene: Scene) -> dict[str, Any]:
    rng = scene.rng
    names = [f"d{number}" for number in range(rng.randrange(1, 4))]
    return {
        "version": 1,
        "environment": rng.choice(("lab", "yes", "1e3", "null", "a: b", "naïve #1")),
        "datasets": [
            {"id": name, "title": rng.choice(TITLES), "keywords": ["x", "y"][: rng.randrange(3)]}
            for name in names
        ],
        "lease": {"seconds": rng.choice((1, 2.5, 60.0))},
        "limits": {"versions_kept": rng.randrange(1, 50), "call_timeout_ms": 10 ** rng.randrange(3, 6)},
        "policies": [],
        "providers": {name: {"failures": rng.randrange(1, 9)} for name in names if rng.random() < 0.5},
    }  # fmt: skip


def _block(value: Any, depth: int = 0) -> str:
    """In YAML's block style; texts are quoted where another reading is possible."""
    indent = "  " * depth
    if isinstance(value, dict) and value:
        return "\n" * bool(depth) + "".join(
            f"{indent}{key}: {_block(each, depth + 1).rstrip()}\n" for key, each in value.items()
        )
    if isinstance(value, list) and value:
        lines = (f"{indent}- {_block(each, depth + 1).strip()}\n" for each in value)
        return "\n" * bool(depth) + "".join(lines)
    return json.dumps(value)


def _spoil(scene: Scene, name: str, meant: dict[str, Any]) -> None:
    """One mistake, of which the reader tells the line."""
    rng, read = scene.rng, READERS[name]
    text = json.dumps(meant, indent=1)
    wrong = rng.choice(
        (
            json.dumps(meant | {"datsets": []}, indent=1),  # a field that there is not
            json.dumps(meant | {"lease": {"seconds": "soon"}}, indent=1),
            json.dumps(meant | {"datasets": {}}, indent=1),
            json.dumps(meant | {"limits": {"versions_kept": 1.5}}, indent=1),
            json.dumps(meant | {"version": 2}, indent=1),
            json.dumps(meant | {"environment": None}, indent=1),
            text.replace('"version": 1', '"version": 1, "version": 1', 1),  # said twice
            text[:-3],  # cut off
            text.replace("[", "[,", 1),
        )
    )
    error = refused(
        ConfigError,
        lambda: shaped(read(name, wrong), Settings),
        "a mistake is not passed over",
        text=wrong[:300],
    )
    require(_LINE.search(str(error)) is not None, "a mistake is named with its line", error=str(error))
