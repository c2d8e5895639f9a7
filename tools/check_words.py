"""Refuses words that docs/reference/glossary.md replaces: `make words`.

The table under "Refused words" of that page is the one list: what is refused, and what is written instead.
An entry is a word with all its forms, or a phrase; it is looked for in everything that people read here:
names (`make_wish` and `WishList` are made of words, too), docstrings, comments, messages, SQL, templates and
pages. Where a refused word is right, ALLOWED has the place and the reason. Prints one line per place,
`FILE:LINE: word → replacement`; exit status 1 if there is one.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = Path("docs/reference/glossary.md")
HEADING = "## Refused words"

SEARCHED = (
    "src", "node", "tests", "docs", "examples", "deploy", "tools", "bench", "README.md", "CHANGELOG.md",
    "CONTRIBUTING.md",
)  # fmt: skip
SUFFIXES = {
    ".py", ".pyi", ".mjs", ".js", ".sql", ".md", ".html", ".css", ".txt", ".toml", ".yml", ".yaml", ".json",
    ".cedar", ".service", ".sh",
}  # fmt: skip
FOLDERS_SKIPPED = {"node_modules", "__pycache__", ".work", ".venv"}

# path (a prefix) → why its words stay
FILES_ALLOWED = {
    "docs/decisions/": "decisions are never rewritten",
    "docs/reference/glossary.md": "it lists the refused words",
    "docs/reference/cli.md": "made from the code, where the word is found",
    "docs/reference/errors.md": "made from the code, where the word is found",
    "docs/reference/settings.md": "made from the code, where the word is found",
    "docs/reference/metrics.md": "made from the code, where the word is found",
    "docs/reference/nodd.md": "made from the code, where the word is found",
    "docs/reference/api.md": "made from the code, where the word is found",
    "src/kfm/contracts/sql/migrations/": "a migration that was applied never changes",
    "src/kfm/contracts/tables/": "made from the code, where the word is found",
    "node/package-lock.json": "npm's",
    "tests/typescript/package-lock.json": "npm's",
    "tests/foundation/test_words.py": "it tries the refused words",
    "tests/integration/db/data/": "ledgers that older versions made",
    "tools/check_words.py": "it names what it allows",
    "tools/moves.txt": "names of modules before they moved",
    "tools/vector_cases/": "texts of vectors, which never change",
}


class Context(NamedTuple):
    """Where a refused word is the right one: a pattern that covers it in its line."""

    pattern: str
    reason: str


CONTEXTS = (
    Context(r"[dD]ead[ _-]?[lL]etters?", "the field's word for a message that can't be delivered"),
    Context(r"newsletters?", "a word of its own"),
    Context(r"(?i)(capital|small|(upper|lower)-?case|first|single|ascii) letters?", "a character"),
    Context(r"(?i)(drive|one|two|three|four) letters?", "a character"),
    Context(r"(?i)letters?,? (and|or|of the alphabet)?,? ?(digits?|numbers?|case|accents?)", "characters"),
    Context(r"(?i)(digits?|numbers?|accents?),? (and|or) letters?", "characters"),
    Context(r"letters of a bucket's name|zone's letters", "characters"),
    Context(r"(?i)ascii_letters", "Python's `string.ascii_letters`"),
    Context(r"0019_letters_of_units", "the name of an applied migration"),
    Context(r"letters_before", "a column of `unit_pages`, which a migration made"),
    Context(r"""["']letter(:\d+)?["']""", "a kind of record, stored and in cli-explain.schema.json"),
    Context(r"Whoever keeps the configuration adds it", "a reason in vectors/gates.json"),
    Context(r"No kill switch stands in the way", "a reason in vectors/gates.json"),
    Context(r"letter-spacing", "a property of CSS"),
    Context(r"Whoever keeps the data or its contract", "a reason in vectors/gates.json, the same in Node.js"),
    Context(r"\[letter:\d+\]|`letter`", "that kind of record in an explanation"),
    Context(r"\| hatch \|", "a package that the linter's field study read"),
    Context(r"(?i)nothing is made up for it", "to make up: to invent"),
    Context(r"where somebody made it", "a constant of release-attestation.schema.json"),
    Context(r"No kill switch stands in the way", "a sentence of the gate vectors"),
    Context(r"(?i)prov:|prov agent", "the vocabulary of PROV"),
    Context(r"tool\.hatch|hatch\.(build|version)|hatchling", "the build tool"),
    Context(r"(?i)user(name)? nobody|nobody:nogroup|getpwnam..nobody", "the account of that name on Unix"),
)  # fmt: skip


class Word(NamedTuple):
    parts: tuple[str, ...]  # lower case; more than one for a phrase
    instead: str

    @property
    def shown(self) -> str:
        return " ".join(self.parts)


class Found(NamedTuple):
    path: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word} → {self.instead}"


def refused(page: str) -> list[Word]:
    """The entries of the table under the heading: `| wish, wishes | request |`."""
    _, there, rest = page.partition(f"{HEADING}\n")
    if not there:
        raise SystemExit(f"{GLOSSARY}: no heading {HEADING!r}")
    section = rest.partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    found = [
        Word(tuple(form.strip().lower().split()), instead)
        for forms, instead, *_ in rows[2:]
        for form in forms.split(",")
    ]
    if not found:
        raise SystemExit(f"{GLOSSARY}: the table under {HEADING!r} is empty")
    return found


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_BETWEEN = re.compile(r"[\s_#\"'*>-]*")  # what may stand between two words of a phrase: also a line's end


def occurrences(text: str, words: Sequence[Word]) -> Iterator[tuple[int, Word]]:
    """(offset, word) of each refused word; names are taken apart at underscores and capitals."""
    by_first: dict[str, list[Word]] = {}
    for word in words:
        by_first.setdefault(word.parts[0], []).append(word)
    tokens = list(_WORD.finditer(text))
    for index, token in enumerate(tokens):
        for word in by_first.get(token[0].lower(), ()):
            run = tokens[index : index + len(word.parts)]
            if [each[0].lower() for each in run] == list(word.parts) and all(
                _BETWEEN.fullmatch(text, one.end(), other.start()) for one, other in itertools.pairwise(run)
            ):
                yield token.start(), word


def _covered(line: str, column: int) -> bool:
    """Is the word at this column part of an allowed context?"""
    return any(
        match.start() <= column < match.end()
        for context in CONTEXTS
        for match in re.finditer(context.pattern, line)
    )


def in_text(path: str, text: str, words: Sequence[Word]) -> Iterator[Found]:
    lines = text.splitlines()
    for offset, word in occurrences(text, words):
        number = text.count("\n", 0, offset)
        column = offset - (text.rfind("\n", 0, offset) + 1)
        if not _covered(lines[number], column):
            yield Found(path, number + 1, word.shown, word.instead)


def files(root: Path, searched: Sequence[str] = SEARCHED) -> Iterator[Path]:
    for name in searched:
        place = root / name
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            inside = path.relative_to(root)
            if path.suffix not in SUFFIXES or FOLDERS_SKIPPED & set(inside.parts):
                continue
            if not any(inside.as_posix().startswith(allowed) for allowed in FILES_ALLOWED):
                yield path


def check(root: Path, searched: Sequence[str] = SEARCHED) -> list[Found]:
    """Every refused word below this folder."""
    words = refused((root / GLOSSARY).read_text(encoding="utf-8"))
    found: list[Found] = []
    for path in files(root, searched):
        inside = path.relative_to(root).as_posix()
        found += in_text(inside, path.read_text(encoding="utf-8"), words)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", action="store_true", help="print how often each word occurs, not where")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    parser.add_argument("where", nargs="*", default=SEARCHED, help="files and folders to search")
    given = parser.parse_args(arguments)
    found = check(given.root, given.where)
    if given.count:
        for word, count in Counter(one.word for one in found).most_common():
            print(f"{count:6}  {word}")
    else:
        for one in found:
            print(one)
    print(f"words: {len(found)} refused" if found else "words: clean", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
