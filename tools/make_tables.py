"""Write what the twin reads instead of saying it again: contracts/tables, or check that it is up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from kfm.cli.command_line import SETTINGS
from kfm.cli.run import WORST_FIRST, command
from kfm.db.queries import checksum, migration_files
from kfm.lineage.facets import PUBLIC_SCHEMAS
from kfm.model.errors import all_errors
from kfm.model.records import GATE_CODES, REASON_CODES
from kfm.model.retry_budgets import NOT_RETRIED, RETRIED_THEN
from kfm.publish.contract import formats, vocabulary
from kfm.sources import placement as media
from updater.runner import runner

FOLDER = Path(__file__).resolve().parent.parent / "src" / "kfm" / "contracts" / "tables"


def errors() -> dict[str, Any]:
    """Every error by its name: the sentence, the way out, the exit status."""
    pages = {}
    for error in all_errors():
        base = error.__mro__[1].__name__
        pages[error.__name__] = {
            "code": error.code,
            "exit_code": error.exit_code,
            "base": None if base == "Exception" else base,
            "headline": (error.__doc__ or "").strip().splitlines()[0],
            "remedy": error.remedy,
        }
    return pages


def migrations() -> dict[str, Any]:
    """The checksum of every migration: whether a ledger is current is asked at every start."""
    return {str(version): checksum(text) for version, _name, text in migration_files()}


def run_command() -> dict[str, Any]:
    """The flags of `run`, and what its --help says; `PROG` stands for the program's name."""
    wide: dict[str, Any] = {"terminal_width": 100, **SETTINGS}
    parent = click.Context(runner, info_name="PROG", **wide)
    context = click.Context(command, info_name="run", parent=parent, **wide)
    options = []
    for option in (one for one in command.get_params(context) if isinstance(one, click.Option)):
        options.append(
            {
                "name": option.name,
                "flags": list(option.opts),
                "is_flag": bool(option.is_flag or option.count),
                "multiple": bool(option.multiple),
                "choices": list(option.type.choices) if isinstance(option.type, click.Choice) else None,
                "default": option.default if isinstance(option.default, str) else None,
            }
        )
    return {
        "options": options,
        "help": command.get_help(context),
        "group_help": runner.get_help(parent),
        "worst_first": list(WORST_FIRST),
    }


def odcs() -> dict[str, Any]:
    """The words of data contracts."""
    return {
        "contract": sorted(vocabulary.CONTRACT),
        "object": sorted(vocabulary.OBJECT),
        "property": sorted(vocabulary.PROPERTY),
        "options": {kind: sorted(words) for kind, words in vocabulary.OPTIONS.items()},
        "operators": list(vocabulary.OPERATORS),
        "quality": sorted(vocabulary.QUALITY),
        "metrics": list(vocabulary.METRICS),
        "old_rules": vocabulary.OLD_RULES,
        "sla": sorted(vocabulary.SLA),
        "kfm_contract": sorted(vocabulary.KFM_CONTRACT),
        "kfm_object": sorted(vocabulary.KFM_OBJECT),
        "kfm_quality": sorted(vocabulary.KFM_QUALITY),
        "formats": list(vocabulary.FORMATS),
        "unit_ms": vocabulary.UNIT_MS,
    }


def media_types() -> dict[str, Any]:
    return {
        "by_suffix": media._TYPES,
        "suffixes": media._SUFFIXES,
        "formats_by_media_type": formats._BY_MEDIA_TYPE,
        "formats_by_suffix": formats._BY_SUFFIX,
    }


def facets() -> dict[str, str]:
    """Which public schema each facet of a lineage event follows."""
    return dict(PUBLIC_SCHEMAS)


def reasons() -> dict[str, Any]:
    """The codes of what gates, invocations and retries say, with their meaning."""
    return {
        "gates": GATE_CODES,
        "invocations": REASON_CODES,
        "retried_then": RETRIED_THEN,
        "not_retried": NOT_RETRIED,
    }


TABLES = {
    "errors": errors,
    "migrations": migrations,
    "reasons": reasons,
    "run-command": run_command,
    "odcs": odcs,
    "media": media_types,
    "openlineage-facets": facets,
}


def main() -> int:
    stale = []
    FOLDER.mkdir(exist_ok=True)
    for name, make in TABLES.items():
        path = FOLDER / f"{name}.json"
        text = json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        print(f"out of date: {', '.join(stale)}; run tools/make_tables.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
