"""`kfm lint`: what people, pipelines and code scanning get to see."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from kfm_lint.report import FORMATS, sarif
from kfm_lint.rules import CODES
from tests.acceptance.cli.conftest import Called

pytestmark = pytest.mark.req("RET-10")

Kfm = Callable[..., Called]
BAD = """\
import time

def read(device):
    while True:
        try:
            return device.read()
        except DeviceError:
            time.sleep(1)
"""
LIKELY = """\
def load():
    try:
        configure_everything()
    except Exception:
        pass
"""
CLEAN = "def add(a, b):\n    return a + b\n"
TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
REGION = {
    name: {"type": "integer", "minimum": 1} for name in ("startLine", "startColumn", "endLine", "endColumn")
}
# The parts of SARIF 2.1.0 that we fill, as its schema has them.
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool"],
                "additionalProperties": False,
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "semanticVersion": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "additionalProperties": False,
                                            "properties": {
                                                "id": {"type": "string"},
                                                "name": {"type": "string"},
                                                "shortDescription": TEXT,
                                                "fullDescription": TEXT,
                                                "help": TEXT,
                                                "helpUri": {"type": "string", "format": "uri"},
                                                "defaultConfiguration": {
                                                    "properties": {
                                                        "level": {
                                                            "enum": ["none", "note", "warning", "error"]
                                                        }
                                                    }
                                                },
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": -1},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": TEXT,
                                "properties": {
                                    "type": "object",
                                    "properties": {"confidence": {"enum": ["sure", "likely"]}},
                                },
                                "partialFingerprints": {"additionalProperties": {"type": "string"}},
                                "suppressions": {
                                    "type": "array",
                                    "items": {
                                        "required": ["kind"],
                                        "properties": {"kind": {"enum": ["inSource", "external"]}},
                                    },
                                },
                                "locations": {
                                    "type": "array",
                                    "items": {
                                        "properties": {
                                            "physicalLocation": {
                                                "required": ["artifactLocation"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "properties": {
                                                            "uri": {
                                                                "type": "string",
                                                                "format": "uri-reference",
                                                            },
                                                            "uriBaseId": {"type": "string"},
                                                        }
                                                    },
                                                    "region": {"properties": REGION},
                                                },
                                            }
                                        }
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture
def code(project: Path) -> Path:
    """A folder with one bad file, one clean file, and folders that are not looked into."""
    (project / "kfm.yml").unlink()
    folder = project / "src"
    for name in ("pipe", ".venv/lib", "node_modules/x", "build"):
        (folder / name).mkdir(parents=True)
        (folder / name / "bad.py").write_text(BAD)
    (folder / "clean.py").write_text(CLEAN)
    return folder


def test_findings_for_people(kfm: Kfm, code: Path) -> None:
    """The place, the line, the way out; exit code 1; no project is needed."""
    called = kfm("lint", "src")
    assert called.code == 1
    assert "src/pipe/bad.py:4:11: KFM101 " in called.out
    assert "    time.sleep(1)\n    ^^^^^^^^^^^^^\n    fix: " in called.out
    assert called.err == "2 findings in 2 files\n"


def test_clean_code(kfm: Kfm, code: Path) -> None:
    """Nothing found is nothing printed, and exit code 0."""
    assert kfm("lint", "src/clean.py") == (0, "", "0 findings in 1 file\n")


def test_concise(kfm: Kfm, code: Path) -> None:
    """One line a finding, which editors can follow."""
    called = kfm("lint", "src", "--format", "concise")
    lines = called.out.splitlines()
    assert len(lines) == 2
    assert all(re.match(r"src/pipe/bad\.py:\d+:\d+: KFM10[13] ", line) for line in lines)


@pytest.mark.parametrize("options", [("--json",), ("--format", "json"), ("-o", "json")])
def test_json(kfm: Kfm, code: Path, valid: Callable[[str, Any], None], options: tuple[str, ...]) -> None:
    """The document has a schema."""
    called = kfm("lint", "src", *options)
    valid("lint", called.document)
    assert called.code == called.document["exit_code"] == 1
    assert [each["code"] for each in called.document["findings"]] == ["KFM101", "KFM103"]
    assert called.document["files"] == 2


def test_jsonl(kfm: Kfm, code: Path) -> None:
    """One finding a line."""
    rows = [json.loads(line) for line in kfm("lint", "src", "-o", "jsonl").out.splitlines()]
    assert [row["line"] for row in rows] == [4, 8]


def test_github(kfm: Kfm, project: Path) -> None:
    """Annotations, with whatever would end them escaped."""
    (project / "a,b:c%.py").write_text(BAD)
    first = kfm("lint", "a,b:c%.py", "--format", "github").out.splitlines()[0]
    assert first.startswith("::error file=a%2Cb%3Ac%25.py,line=4,col=11,endLine=4,endColumn=15,title=KFM101 ")
    assert first.count("::") == 2


def test_sarif(kfm: Kfm, code: Path) -> None:
    """SARIF 2.1.0 with stable rule ids; what is waived is there as suppressed."""
    text = (code / "pipe" / "bad.py").read_text()
    (code / "pipe" / "bad.py").write_text(text.replace("(1)", "(1)  # kfm: allow KFM103 once a second"))
    called = kfm("lint", "src", "--format", "sarif")
    jsonschema_rs.validator_for(SARIF, validate_formats=True).validate(called.document)
    (run,) = called.document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert set(rules) == CODES
    assert all(rule["helpUri"].endswith(rule["id"]) for rule in run["tool"]["driver"]["rules"])
    assert [(each["ruleId"], "suppressions" in each) for each in run["results"]] == [
        ("KFM101", False),
        ("KFM103", True),
    ]
    assert all(rules[each["ruleIndex"]] == each["ruleId"] for each in run["results"])
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "src/pipe/bad.py", "uriBaseId": "%SRCROOT%"}
    assert called.err == "1 finding, 1 waived in 2 files\n"


def test_a_finding_stays_itself_when_code_moves(kfm: Kfm, code: Path) -> None:
    """Code scanning knows a finding by its line's text, not by its number."""

    def prints() -> list[str]:
        document = kfm("lint", "src", "--format", "sarif").document
        return [each["partialFingerprints"]["kfmLine/v1"] for each in document["runs"][0]["results"]]

    before = prints()
    path = code / "pipe" / "bad.py"
    path.write_text("# moved\n\n" + path.read_text())
    assert prints() == before
    assert len(set(before)) == 2


def test_select_and_ignore(kfm: Kfm, code: Path) -> None:
    """Rules by code or by beginning."""
    assert kfm("lint", "src", "--select", "KFM103,KFM104", "--format", "concise").out.count("\n") == 1
    assert kfm("lint", "src", "--ignore", "KFM101", "--format", "concise").out.count("\n") == 1
    assert kfm("lint", "src", "--select", "KFM10", "--ignore", "kfm101 kfm103").code == 0


def test_what_is_only_likely_is_told_on_request(kfm: Kfm, project: Path) -> None:
    """Without --all it is neither told nor counted; with it, every form marks it."""
    (project / "likely.py").write_text(LIKELY)
    assert kfm("lint", "likely.py") == (0, "", "0 findings in 1 file\n")
    told = {form: kfm("lint", "likely.py", "--all", "--format", form) for form in FORMATS}
    assert {each.code for each in told.values()} == {1}
    assert told["concise"].out.startswith("likely.py:4:5: KFM108 [likely] ")
    assert told["full"].out.startswith("likely.py:4:5: KFM108 [likely] ")
    assert told["github"].out.startswith("::notice file=likely.py,")
    assert "::[likely] " in told["github"].out
    assert [each["confidence"] for each in told["json"].document["findings"]] == ["likely"]
    jsonschema_rs.validator_for(SARIF, validate_formats=True).validate(told["sarif"].document)
    (result,) = told["sarif"].document["runs"][0]["results"]
    assert (result["level"], result["properties"]) == ("note", {"confidence": "likely"})


def test_a_waiver_of_what_is_only_likely_is_needed(kfm: Kfm, project: Path) -> None:
    """It is no idle waiver in a run that does not ask for such findings."""
    text = "for _ in range(9):\n    try:\n        door.open()\n        break\n"
    text += "    except OSError:\n        time.sleep(1)"
    (project / "likely.py").write_text(f"{text}  # kfm: allow KFM103 it opens once a second\n")
    assert kfm("lint", "likely.py").code == 0
    assert kfm("lint", "likely.py", "--all").err == "0 findings, 1 waived in 1 file\n"


def test_exclude(kfm: Kfm, code: Path) -> None:
    """Files and folders, by name or by path."""
    assert kfm("lint", "src", "--exclude", "pipe").code == 0
    assert kfm("lint", "src", "--exclude", "b*.py").code == 0
    assert kfm("lint", "src", "--exclude", "src/pipe/*").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("src", "gone.py"), "There is no file or folder gone.py."),
        (("src", "--select", "KFM999"), "there is no rule KFM999"),
        (("src", "--select", "E501"), "there is no rule E501"),
        (("src", "--json", "--format", "sarif"), "different forms"),
        (("src", "--format", "junit"), "junit"),
        ((), "PATH"),
    ],
)
def test_bad_usage(kfm: Kfm, code: Path, arguments: tuple[str, ...], said: str) -> None:
    """A path or a rule that is not there is exit code 2, before anything is checked."""
    called = kfm("lint", *arguments)
    assert called.code == 2
    assert said in called.err


def test_a_broken_file_counts(kfm: Kfm, project: Path) -> None:
    """What can't be read can't be vouched for; the others are still checked."""
    (project / "a.py").write_bytes(b"def f(:\n")
    (project / "b.py").write_bytes(b"x = 1\0")
    (project / "c.py").write_text(BAD)
    called = kfm("lint", ".", "--format", "concise")
    assert called.code == 1
    assert [line.split()[1] for line in called.out.splitlines()] == ["KFM109", "KFM109", "KFM101", "KFM103"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(kfm: Kfm, project: Path) -> None:
    """It is a finding, too."""
    (project / "secret.py").write_text(CLEAN)
    (project / "secret.py").chmod(0)
    assert "KFM109" in kfm("lint", "secret.py").out


def test_a_terminal_does_not_obey(kfm: Kfm, project: Path) -> None:
    """Escape sequences in a file, or in its name, are shown as blanks."""
    (project / "bad.py").write_text(BAD.replace("sleep(1)", "sleep(1); x = '\x1b[2J'"))
    assert "\x1b" not in kfm("lint", "bad.py").out


def test_explain(kfm: Kfm, valid: Callable[[str, Any], None]) -> None:
    """`kfm explain KFM103` prints the rule."""
    called = kfm("explain", "KFM103")
    assert called.code == 0
    assert "fixed-sleep" in called.out
    assert "Let the wait grow" in called.out
    valid("explain", kfm("explain", "kfm101", "--json").document)


def test_start_is_light(project: Path) -> None:
    """Linting one file imports nothing of the kernel's weight."""
    (project / "clean.py").write_text(CLEAN)
    program = (
        "import sys; from kfm.cli import main\ntry: main(['lint', 'clean.py'])\nexcept SystemExit: pass\n"
    )
    program += "print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {
        "httpx",
        "apsw",
        "cedarpy",
        "jsonschema_rs",
        "ruamel.yaml",
        "kfm.wiring",
        "kfm.engine",
        "kfm.store",
    }
    assert not heavy & set(ran.stdout.split())


def test_the_same_line_twice_is_told_apart() -> None:
    """Two findings of one rule on equal lines have two fingerprints."""
    from kfm_lint.findings import Finding

    twice = [Finding("a.py", line, 1, line, 2, "KFM108", "dropped") for line in (3, 9)]
    results = sarif(twice, [], lambda _path, _line: "except Exception:")["runs"][0]["results"]
    assert len({each["partialFingerprints"]["kfmLine/v1"] for each in results}) == 2
