"""Writes the map of src/kfm in CONTRIBUTING.md from the import contracts and the packages' docstrings.

Layers come from every contract of type `layers` in pyproject.toml, in their order; what a folder is for,
from the first sentence of its `__init__` (of a module: its docstring). Folders that no layer names are
listed after them, and so are the other contracts, by name. The text stands between two markers.
`--check` writes nothing and exits 1 if the page is not what the code says.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "<!-- map: made by `make docs` from pyproject.toml and src/kfm; edits here are lost -->"
END = "<!-- end of the map -->"
# Data and typing markers, which are no code that anything imports.
NOT_CODE = {"contracts", "templates", "__pycache__"}


class Layer(NamedTuple):
    modules: tuple[str, ...]
    apart: bool  # modules of this layer do not import each other


def layers_of(contract: dict[str, Any]) -> list[Layer]:
    """The layers from the top. `a | b` are apart, `a : b` are not; `(a)` may be missing."""
    prefixes = [f"{name}." for name in contract.get("containers", [])] or [""]
    found = []
    for line in contract["layers"]:
        apart = ":" not in line
        names = [name.strip().strip("()").strip() for name in re.split(r"[|:]", line)]
        found.append(Layer(tuple(f"{prefix}{name}" for prefix in prefixes for name in names), apart))
    return found


def described(root: Path, module: str) -> str:
    """The first sentence of a module's docstring."""
    place = root / "src" / Path(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not path.exists():
        return ""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0]
    return sentence.replace("|", "\\|")


def there(root: Path, module: str) -> bool:
    """A contract may call a module optional, and it may be missing."""
    place = root / "src" / Path(*module.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def top_modules(root: Path) -> list[str]:
    """What stands directly in src/kfm and is code."""
    found = []
    for path in sorted((root / "src" / "kfm").iterdir()):
        if path.name in NOT_CODE or path.name.startswith("__"):
            continue
        if path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py"))):
            found.append(f"kfm.{path.stem}")
    return found


def _row(root: Path, module: str, number: str) -> str:
    shown = module.removeprefix("kfm.").replace(".", "/")
    folder = (root / "src" / Path(*module.split("."))).is_dir()
    return f"| {number} | `{shown}{'/' if folder else '.py'}` | {described(root, module)} |"


def render(root: Path) -> str:
    """The text between the markers."""
    document = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = document["tool"]["importlinter"]["contracts"]
    named: set[str] = set()
    parts: list[str] = []
    for contract in contracts:
        if contract["type"] != "layers":
            continue
        layers = layers_of(contract)
        named |= {".".join(module.split(".")[:2]) for layer in layers for module in layer.modules}
        parts.append(f"{contract['name']}: a row imports only from rows with a higher number.")
        if any(layer.apart and len(layer.modules) > 1 for layer in layers):
            parts[-1] += " Rows with the same number do not import each other"
            free = [str(number) for number, layer in enumerate(layers, 1) if not layer.apart]
            parts[-1] += f", except in {', '.join(free)}." if free else "."
        rows = ["| layer | where | what |", "|---|---|---|"]
        for number, layer in enumerate(layers, 1):
            rows += [_row(root, module, str(number)) for module in layer.modules if there(root, module)]
        parts.append("\n".join(rows))
    if rest := [module for module in top_modules(root) if module not in named]:
        rows = ["| layer | where | what |", "|---|---|---|", *(_row(root, module, "–") for module in rest)]
        parts += ["Beside the layers:", "\n".join(rows)]
    if others := [contract["name"] for contract in contracts if contract["type"] != "layers"]:
        parts.append("Also checked: " + "; ".join(others) + ".")
    return "\n\n".join(parts)


def undescribed(root: Path) -> list[str]:
    """Folders whose `__init__` does not say what they are for."""
    return [
        module
        for module in top_modules(root)
        if (root / "src" / Path(*module.split("."))).is_dir() and not described(root, module)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing, exit 1 if the map is out of date"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    given = parser.parse_args(arguments)
    page = given.root / "CONTRIBUTING.md"
    before = page.read_text(encoding="utf-8")
    head, begun, rest = before.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not begun or not ended:
        raise SystemExit(f"{page.name}: the markers of the map are missing: {BEGIN} … {END}")
    for module in undescribed(given.root):
        print(f"map: {module} has no docstring that says what it is for", file=sys.stderr)
    text = f"{head}{BEGIN}\n\n{render(given.root)}\n\n{END}{tail}"
    if given.check:
        if text != before:
            print("map: CONTRIBUTING.md is out of date; run `make docs`", file=sys.stderr)
        return int(text != before or bool(undescribed(given.root)))
    page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
