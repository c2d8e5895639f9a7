"""Documentation that can be followed: links lead somewhere, examples are valid."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click
import msgspec
import pytest
from markdown_it import MarkdownIt

from kfm.cli.command_line import kfm
from kfm.config.document import read_document
from kfm.config.schedule_file import ScheduleFile
from kfm.config.source_defaults import apply_source_defaults
from kfm.model.settings import Settings
from kfm.policy.cedar import CedarPolicies
from kfm.policy.fixtures import evaluate_fixtures

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def _prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def _anchors(page: Path) -> set[str]:
    text = _prose(page)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)"', text))


def _links(page: Path) -> list[tuple[str, Path, str]]:
    found = []
    for target in LINK.findall(_prose(page)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            found.append((target, (page.parent / path).resolve() if path else page, anchor))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of this repository and, if it has one, an anchor in it."""
    for target, path, anchor in _links(page):
        assert path.exists(), target
        if anchor:
            assert anchor in _anchors(path), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_are_rendered_as_they_were_meant(page: Path) -> None:
    """A reader of Markdown sees every link and picture that we check; no table or link is left as text."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    parts = [part for token in tokens for part in (token.children or [token])]
    named = [str(value) for part in parts for name, value in part.attrs.items() if name in ("href", "src")]
    relative = [target for target in named if not re.match(r"[a-z]+:", target)]
    assert sorted(relative) == sorted(target for target, _, _ in _links(page))
    assert [
        part.content for part in parts if part.type == "text" and re.match(r"\||.*\]\(", part.content)
    ] == []


def test_every_page_can_be_reached_from_the_index() -> None:
    """No page is an island."""
    seen: set[Path] = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            waiting += [path for _, path, _ in _links(page)]
    assert sorted(set(DOCS.rglob("*.md")) - seen) == []


def _commands() -> list[tuple[str, str]]:
    """Every `kfm …` that a page shows, in a console block or inline."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
        typed = [line for block in blocks for line in re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE)]
        inline = re.findall(r"`(kfm [^`]+)`", _prose(page))
        for line in [*typed, *inline]:
            for part in re.split(r"\s+#|;|&&|\|", line.replace(".venv/bin/", "")):
                if part.strip().startswith("kfm ") and "…" not in part.split("--")[0]:
                    found.append((page.relative_to(ROOT).as_posix(), part.strip()))
    return sorted(set(found))


@pytest.mark.parametrize(
    "command", [pytest.param(command, id=f"{page}: {command}") for page, command in _commands()]
)
def test_commands_shown_exist(command: str) -> None:
    """A command that a page shows exists and has the options that it is shown with."""
    words = [word for word in shlex.split(command)[1:] if word != "…"]
    here: click.Command = kfm
    context = click.Context(here)
    while isinstance(here, click.Group) and words and not words[0].startswith("-"):
        found = here.get_command(context, words.pop(0))
        assert found is not None, command
        here = found
    known = {name for option in here.params for name in [*option.opts, *option.secondary_opts]}
    shown = {word.partition("=")[0] for word in words if word.startswith("-")}
    assert shown <= known | {"-h", "--help"}


@pytest.mark.parametrize(("heading", "machine"), [("Runs", "run"), ("Units", "unit")])
def test_state_charts_are_the_tables(heading: str, machine: str) -> None:
    """The charts that people read show exactly the transitions that the code permits."""
    table = json.loads((ROOT / "src" / "kfm" / "contracts" / "states" / f"{machine}.json").read_text())
    permitted = {(each["from"] or "[*]", each["to"], each["event"]) for each in table["transitions"]}
    permitted |= {(state, "[*]", "") for state in table["terminal"]}
    page = (DOCS / "explanation" / "states.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    drawn = re.findall(r"^ +(\S+) --> (\S+?)(?:: (\w+))?$", section, flags=re.MULTILINE)
    assert set(drawn) == permitted


def _configurations() -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(ROOT)}:{number}", block)
        for page in PAGES
        for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL))
        if not re.match(r"(name|on|repos):|- ", block)  # other programs' files, and fixtures
    ]


@pytest.mark.parametrize("block", [pytest.param(text, id=name) for name, text in _configurations()])
def test_configuration_examples_are_valid(block: str) -> None:
    """What a reader copies from the pages is understood."""
    document = read_document("page.yml", block.encode())
    apply_source_defaults(document)
    schedules = isinstance(document.values.get("schedules"), list)  # cron.yml; in kfm.yml it is a file's name
    msgspec.convert(document.values, ScheduleFile if schedules else Settings)


def test_the_policy_example_does_what_its_fixture_says(tmp_path: Path) -> None:
    """The policy that a reader copies loads, and its fixture passes."""
    page = (DOCS / "how-to" / "write-a-policy.md").read_text()
    (policy,) = re.findall(r"```cedar\n(.*?)```", page, flags=re.DOTALL)
    (fixtures,) = re.findall(r"```yaml\n(- .*?)```", page, flags=re.DOTALL)
    (tmp_path / "fixtures.yaml").write_text(fixtures)
    results = evaluate_fixtures(CedarPolicies([("own.cedar", policy)]), tmp_path / "fixtures.yaml")
    assert [result.passed for result in results] == [True]
