"""What the console prints, to be pasted, is taken: by the parser, and in the state that it is printed for."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.cli import main
from tests.seeded.crawl import crawl, kind_of
from tests.seeded.site import CONSOLE, Site, commands
from tests.world.keeping import copied_world, looking_at

EACH_KIND = 2
# What a person puts in; each is refused as it stands.
PLACEHOLDERS = {
    "TEXT": "the provider has mended it",
    "ID": "OPS-500",
    "NAME": "bob",
    "TIME": "2026-11-17T00:00:00Z",
    "POSITION": "paused",
    "FOLDER": "evidence",
    "VERSION": "2",
}
SPAN = {"--from": "2026-09-12T00:00:00Z", "--to": "2026-09-14T00:00:00Z"}
UNKNOWN = "WINDOW"  # only a person knows which: it is not tried
RUNS_ON = ("serve", "worker")  # until they are stopped
# What is left to do is named: a second person, or a terminal on which the list is agreed to.
LEFT_TO_DO = re.compile(r"another person (has to agree|approves it)|There is no terminal to ask")
# It was carried out, and the data, the code or the provider is as bad as the page says.
AS_BAD_AS_BEFORE = re.compile(r"error KFM(303|404|607):")


def _shape(words: list[str]) -> tuple[str, ...]:
    """Without names and ids, commands of one kind are alike."""
    return tuple(word for word in words if re.fullmatch(r"kfm|--?[a-z-]+|[a-z]{3,12}", word))


def _told(site: Site, who: str) -> Iterator[tuple[str, str]]:
    """Every command of Home, and of the other pages one of each kind, with the page that prints it."""
    seen, known = set(), set()
    for address, _, _, text in crawl(site.as_person(who), EACH_KIND):
        for command in commands(text):
            words = shlex.split(command)
            key = (kind_of(address)[0], _shape(words))
            if words[0] != "kfm" or command in known or (key in seen and address != CONSOLE):
                continue
            known.add(command)
            seen.add(key)
            yield command, address


def _filled_in(words: list[str]) -> list[str]:
    """With what a person puts in place of what stands for it."""
    before = ["", *words]
    return [
        (SPAN.get(option) if word == "TIME" else None) or PLACEHOLDERS.get(word, word)
        for option, word in zip(before, words, strict=False)
    ]


def _carried_out(folder: Path, words: list[str], who: str) -> tuple[int, str]:
    out, code = io.StringIO(), 0
    with looking_at(folder, who), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main(words)
        except SystemExit as ended:
            code = int(str(ended.code or 0))
    return code, out.getvalue()


@pytest.mark.req("REL-4", "GOV-3")
def test_what_is_printed_can_be_pasted(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each command, with what a person puts in, is carried out in the state in which it was printed; none is
    refused for another reason than the approval that it names."""
    caplog.set_level(logging.CRITICAL)
    folder = copied_world(tmp_path / "world")
    ledger, kept = folder / ".kfm" / "kfm.db", tmp_path / "kept.db"
    shutil.copy(ledger, kept)
    refused = []
    found = dict(_told(site, "ann"))
    assert len(found) > 30
    for command, address in found.items():
        words = _filled_in(shlex.split(command)[1:])
        if UNKNOWN in words or words[0] in RUNS_ON or "--digest" in words:
            continue
        code, said = _carried_out(folder, words, "bob" if words[:2] == ["approvals", "approve"] else "ann")
        if code and not LEFT_TO_DO.search(said) and not AS_BAD_AS_BEFORE.search(said):
            refused.append((command, address, code, said[-500:]))
        for name in ("kfm.db-wal", "kfm.db-shm"):
            (ledger.parent / name).unlink(missing_ok=True)
        shutil.copy(kept, ledger)
    assert refused == [], refused
