"""Writes the pages that are made from the code and from other pages: commands, errors, settings, decisions.

`--check` writes nothing and exits 1 if a page is not what the code says, or if a
setting is not described in docs/reference/settings.toml.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
SOURCES = ROOT / "src" / "kfm"
WIDTH = 100
NOTICE = "<!-- Made by `make docs` from the code. Edits here are lost. -->\n"

EXIT_MEANING = {
    1: "the work failed",
    2: "bad usage or configuration",
    3: "refused by governance or a guardrail",
    4: "a backend is unavailable or refuses us",
    5: "busy",
    130: "cancelled",
}


# --- commands ------------------------------------------------------------------------


def _commands(command: Any, name: str, parent: Any) -> Iterator[tuple[str, str]]:
    """(full name, help text) of a command and of all below it."""
    import click

    context = command.make_context(
        name, [], parent=parent, resilient_parsing=True, terminal_width=WIDTH, max_content_width=WIDTH
    )
    with context:
        yield context.command_path, command.get_help(context)
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                try:
                    found = command.get_command(context, child)
                except ModuleNotFoundError as error:
                    if not (error.name or "").startswith("kfm.cli."):
                        raise
                    print(f"reference: `{name} {child}` is listed but its module is missing", file=sys.stderr)
                    continue
                if found is not None and not found.hidden:
                    yield from _commands(found, child, context)


def cli_page() -> str:
    from kfm.cli.command_line import kfm

    parts = [NOTICE, "# Commands\n", "What `--help` prints, for every command.\n"]
    for path, text in _commands(kfm, "kfm", None):
        lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
        parts.append(f"## `{path}`\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


# --- errors --------------------------------------------------------------------------


def errors_page() -> str:
    from kfm.model.errors import all_errors

    parts = [
        NOTICE,
        "# Errors\n",
        "Every error has a stable code. `kfm explain CODE` prints the same page. "
        "With `--output json` an error is an object with `code`, `message`, `remedy` and `docs`.\n",
    ]
    listed = all_errors()
    rows = [f"| [{cls.code}](#{cls.code.lower()}) | `{cls.__name__}` | {cls.exit_code} |" for cls in listed]
    parts.append("| code | name | exit status |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    for cls in listed:
        headline, _, rest = _docstring(cls).partition("\n")
        parts.append(f'## <a id="{cls.code.lower()}"></a>{cls.code} · {cls.__name__}\n\n**{headline}**\n')
        if rest.strip():
            parts.append(rest.strip() + "\n")
        meaning = EXIT_MEANING.get(cls.exit_code, "")
        parts.append(f"Exit status {cls.exit_code}: {meaning}.\n\nWay out: {cls.remedy}\n")
    return "\n".join(parts)


def _docstring(cls: type) -> str:
    import inspect

    return inspect.cleandoc(cls.__dict__.get("__doc__") or "")


# --- settings ------------------------------------------------------------------------


def _structs() -> list[type]:
    """The settings' classes, outermost first, each once, in the order in which they are met."""
    import msgspec

    from kfm.model.settings import Settings

    seen: list[type] = []

    def visit(info: Any) -> None:
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in seen:
                return
            seen.append(info.cls)
            for field in info.fields:
                visit(field.type)
        for part in ("types", "item_types"):
            for inner in getattr(info, part, ()):
                visit(inner)
        for part in ("item_type", "value_type"):
            if hasattr(info, part):
                visit(getattr(info, part))

    visit(msgspec.inspect.type_info(Settings))
    return seen


def _annotations(cls: type) -> dict[str, str]:
    """Field → its type as written in the source, without a trailing comment."""
    import ast
    import inspect
    import textwrap

    found: dict[str, str] = {}
    for each in [base for base in reversed(cls.__mro__) if base.__module__ == cls.__module__]:
        tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
        (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef))
        found |= {
            node.target.id: ast.unparse(node.annotation)
            for node in body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
    return found


def _default(field: Any) -> str:
    import msgspec

    if field.default is not msgspec.NODEFAULT:
        value = field.default
    elif field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    else:
        return "required"
    if isinstance(value, msgspec.Struct):
        return "see below"
    if value is None or value is msgspec.UNSET:
        return "none"
    if value in ((), {}, []):
        return "empty"
    return f"`{msgspec.json.encode(value).decode()}`"


def settings_page() -> str:
    import msgspec

    notes = tomllib.loads((REFERENCE / "settings.toml").read_text(encoding="utf-8"))
    parts = [
        NOTICE,
        "# Settings\n",
        "What a configuration file (`kfm.yml`, or the same in JSON) may say. An unknown field is an error "
        "that names the line and the nearest known word. `kfm config show --origin` prints every value in "
        "force and where it came from.\n",
    ]
    used: set[str] = set()
    missing: list[str] = []
    for cls in _structs():
        text = _docstring(cls)
        parts.append(f"## {cls.__name__}\n" + (f"\n{text}\n" if text else ""))
        rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
        annotations = _annotations(cls)
        for field in msgspec.structs.fields(cls):
            note = notes.get(cls.__name__, {}).get(field.name)
            used.add(f"{cls.__name__}.{field.name}")
            if note is None:
                missing.append(f"{cls.__name__}.{field.name}")
            kind = annotations.get(field.name, "").replace("|", "\\|")
            rows.append(f"| `{field.encode_name}` | `{kind}` | {_default(field)} | {note or ''} |")
        parts.append("\n".join(rows) + "\n")
    described = {f"{group}.{field}" for group, fields in notes.items() for field in fields}
    if missing:
        raise SystemExit(f"reference: docs/reference/settings.toml does not describe {', '.join(missing)}")
    if gone := sorted(described - used):
        raise SystemExit(f"reference: docs/reference/settings.toml describes what is gone: {', '.join(gone)}")
    return "\n".join(parts)


# --- metrics and spans ---------------------------------------------------------------

REPORTED_BY = {
    "ledger": "`kfm metrics`",
    "otlp": "OTLP",
    "ingest": "the ingest worker",
}


def metrics_page() -> str:
    from kfm.telemetry.metric_catalogue import metrics, spans

    parts = [
        NOTICE,
        "# Metrics and spans\n",
        "Every metric that kfm reports, from `contracts/metrics.json`; every span, from "
        "`contracts/spans.json`. Datasets that must not be named in public are masked in labels and "
        "attributes. "
        "[Monitor kfm](../how-to/monitor.md) shows how to read them.\n",
        "## Metrics\n",
        "The first name is the one of OpenTelemetry; Prometheus reads the second. *Reported by* `kfm "
        "metrics` means computed from the ledger, so that it survives processes; *OTLP* means sent by the "
        "process that does the work; *the ingest worker* reports those that count units of the ingest "
        "ledger.\n",
    ]
    for metric in metrics().values():
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        reporters = ", ".join(REPORTED_BY[origin] for origin in metric.origins)
        rows = [f"### `{metric.name}`\n", f"`{metric.exposed}`: {metric.help}\n"]
        rows.append(f"{metric.kind}, unit `{metric.unit}`; labels: {labels}; reported by {reporters}.")
        if metric.buckets:
            rows.append(f"Buckets: {', '.join(f'{bound:g}' for bound in metric.buckets)}.")
        parts.append("\n".join(rows) + "\n")
    parts.append("## Spans\n")
    parts.append(
        "One trace per attempt of a run. Its id is the id of the attempt's lineage run without dashes, so "
        "that trace, OpenLineage events and log lines lead to each other. An error is named by its code or "
        "class, never by its message.\n"
    )
    for span in spans().values():
        rows = [f"### `{span.name}`\n", f"{span.help}\n", "| attribute | meaning |", "|---|---|"]
        rows += [f"| `{each.name}` | {each.help} |" for each in span.attributes]
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


# --- announced datasets --------------------------------------------------------------


def _cadence(one: Any) -> str:
    """What a feed expects of these products."""
    from kfm.model.quantities import duration

    products = ", ".join(f"`{name}`" for name in one.products)
    of = f" of {', '.join(one.platforms)}" if one.platforms else ""
    at = f" of {', '.join(f'{hour:02d}' for hour in one.hours)} UTC" if len(one.hours) < 24 else ""
    return f"- expected: {products}{of}, {one.per_hour} an hour{at}, {duration(one.latency_ms)} after its end"


def nodd_page() -> str:
    from kfm.model.units import scheme_of
    from kfm.nodd.dataset_registry import built_in
    from kfm.nodd.messages.refusals import IGNORED, PUT_OFF, REFUSED, SUSPECT

    parts = [
        NOTICE,
        "# Announced datasets\n",
        "What `kfm nodd parse` understands: the datasets that come with kfm, and the codes of records that "
        "are not taken in. [One more dataset](../how-to/add-a-dataset.md) is one file; "
        "[decision 0012](../decisions/0012-nodd-grammars.md) has the reasons.\n",
        "In keys, `{field:kind}` is a field and `[…]` an option. The first line that fits decides.\n",
    ]
    for dataset in built_in():
        rows = [f"## {dataset.name}\n", f"{dataset.title}. {dataset.media_type}, {dataset.licence}.\n"]
        for place in dataset.places:
            note = f", {place.platform} only" if place.platform else ""
            rows.append(
                f"- `{scheme_of(place.provider)}://{place.bucket}`{note}{'' if place.home else ', a copy'}"
            )
        rows += [f"- `{topic}`" for topic in dataset.topics] or ["- no topic is published"]
        rows += [f"- `…{suffix}` is the {role} of a file" for suffix, role in dataset.sidecars.items()]
        rows += [_cadence(one) for one in dataset.cadences]
        if not dataset.cadences:
            rows.append("- no cadence is declared")
        rows += ["\n```text", *(rule.pattern.text for rule in dataset.rules), "```\n"]
        parts.append("\n".join(rows))
    tables = (
        ("Refused", "Error lines; none of these is worth another attempt.", REFUSED),
        ("Put off", "Not decided: the message is not acknowledged, and comes again.", PUT_OFF),
        ("Ignored", "Lines with `ignored: true`; they do not affect the exit code.", IGNORED),
        ("Suspect", "Taken in, with the doubt in `suspect`.", SUSPECT),
    )
    parts += [_codes(f"## {title}", text, codes) for title, text, codes in tables]
    return "\n".join([*parts, *_looking()])


def _codes(heading: str, text: str, codes: Mapping[str, str]) -> str:
    rows = [f"{heading}\n", f"{text}\n", "| code | meaning |", "|---|---|"]
    return "\n".join([*rows, *(f"| `{code}` | {meaning} |" for code, meaning in codes.items())]) + "\n"


def _looking() -> list[str]:
    """The integrity checks of an object's bytes, and their results."""
    from kfm.model.retry import Failure, classify
    from kfm.nodd.inspect.verdicts import DOUBTS, FAILED, NOTES

    again = {code: classify(Failure(code=code)).retryable for code in FAILED}
    failed = {code: f"{text}{' Tried again.' if again[code] else ''}" for code, text in FAILED.items()}
    return [
        "## Integrity checks\n",
        "By default a unit is made from the announcement alone, and nothing is requested from upstream. "
        "A policy can ask for more.\n",
        "| integrity | asks | finds |",
        "|---|---|---|",
        "| `announced` | nothing | nothing: the status stays `unknown` |",
        "| `head` | HEAD | objects that are gone or replaced, another size |",
        "| `magic` | HEAD and one range of 4 KiB (64 KiB where it is compressed) | other kinds of files; "
        "GRIB and HDF5 files that lack their end |",
        "| `full` | HEAD and all bytes, in pieces of 8 MiB | other bytes than ETag (where it is an MD5) or "
        "a declared checksum say, damaged or bomb-like gzip, missing ends; has the SHA-256 |\n",
        "`metadata: header` reads netCDF attributes, sections 1, 3 and 4 of the first GRIB2 message, the "
        "first line of an index, or the header of a radar volume, by a few ranges of at most 4 MiB in all. "
        "What the key says stays; where it is silent, the header's times and bounds are used; where they "
        "differ the object is `suspect`, with both values under `disagrees`.\n",
        _codes("### Failed", "The attempt fails; the unit is quarantined unless it is tried again.", failed),
        _codes("### Doubts", "The unit succeeds, and its status says `suspect`.", DOUBTS),
        _codes("### Notes", "Nothing is wrong.", NOTES),
    ]


# --- the API -------------------------------------------------------------------------


def api_page() -> str:
    from kfm.web.api.operation_table import OPERATIONS, TAGS
    from kfm.web.openapi import BASE, statuses

    parts = [
        NOTICE,
        "# API\n",
        f"What `kfm serve` answers under `{BASE}`. `GET {BASE}/openapi.json` describes all of it as OpenAPI "
        "3.1, with the schema of every answer: where a command has the same document, it is the command's. "
        "[Use the API](../how-to/use-the-api.md) shows it at work.\n",
        "A request carries a token (`Authorization: Bearer TOKEN`) of a person with the role that is named; "
        "without `people` in the configuration, this machine may read, and changes are refused. "
        "Names of hidden datasets are masked for persons who may only read.\n",
        "A `POST` has a JSON body with `rationale`; `ticket`, and `actor` for on whose behalf, may be added. "
        "`Idempotency-Key` makes it safe to send again: the same key and body have the same answer, and are "
        "carried out once; the same key with another body is refused (422). An error is answered as "
        "`application/problem+json`, with the page of the [error](errors.md) as its `type`.\n",
        "A list that is cut has `more: true`; its `next`, if it has one, is the `cursor` of the next page.\n",
    ]
    for tag, about in TAGS.items():
        parts.append(f"## {about}\n")
        for operation in OPERATIONS:
            if operation.tag == tag:
                parts.append(_operation(operation, statuses(operation)))
    return "\n".join(parts)


def _operation(operation: Any, statuses: tuple[int, ...]) -> str:
    line = f"Role `{operation.role}`; answer `{operation.answer}`, {operation.status}; else "
    line += ", ".join(str(status) for status in statuses if status != operation.status)
    rows = [f"### `{operation.method} {operation.shown_path}`\n", f"{operation.about}.\n", f"{line}.\n"]
    if operation.parameters:
        rows += ["| parameter | meaning |", "|---|---|"]
        rows += [f"| `{each.name}` | {_parameter(each)} |" for each in operation.parameters]
        rows.append("")
    if operation.body is not None and operation.body.__name__ != "Reason":
        import msgspec

        fields = [each for each in msgspec.structs.fields(operation.body) if each.name not in _REASON]
        names = ", ".join(f"`{each.name}`{'' if each.required else ' (optional)'}" for each in fields)
        rows.append(f"Body: {names}, and the reason.\n")
    return "\n".join(rows)


_REASON = ("rationale", "ticket", "actor")


def _parameter(parameter: Any) -> str:
    values = parameter.schema.get("enum")
    return parameter.about + (f" {', '.join(f'`{each}`' for each in values)}" if values else "")


# --- decisions -----------------------------------------------------------------------


def decisions_page() -> str:
    """The list of docs/decisions/NNNN-title.md, by number."""
    rows = ["| number | decision | status |", "|---|---|---|"]
    for page in sorted((REFERENCE.parent / "decisions").glob("[0-9]*.md")):
        lines = page.read_text(encoding="utf-8").splitlines()
        title = re.sub(r"^#\s*(ADR)?[\s-]*\d*\s*[:.·–—-]*\s*", "", lines[0])
        status = next((line.partition(":")[2].strip(" *") for line in lines if "status:" in line.lower()), "")
        rows.append(f"| [{page.stem[:4]}]({page.name}) | {title} | {status} |")
    return "\n".join(
        [
            NOTICE,
            "# Decisions\n",
            "One page each, numbered, never rewritten: a later page may supersede it. "
            "[0001](0001-record-decisions.md) says how.\n",
            *rows,
            "",
        ]
    )


# --- verifiers -----------------------------------------------------------------------


def verifiers_page() -> str:
    """The scripts that check what kfm hands out, with their hashes."""
    rows = []
    for path, page, what in (
        ("evidence_bundle/verify_bundle.py", "export-evidence.md#check-a-bundle", "bundles of evidence"),
        ("contracts/verifier/verify_audit.py", "audit.md#hand-it-to-a-third-party", "exports of the chain"),
    ):
        digest = hashlib.sha256((SOURCES / path).read_bytes()).hexdigest()
        rows.append(f"| `src/kfm/{path}` | [{what}](../how-to/{page}) | `{digest}` |")
    return "\n".join(
        [
            NOTICE,
            "# Verifiers\n",
            "Each is one file of kfm's sources that needs Python and nothing else. Take it from here, not "
            "from what it is to check: the sender whose word is in question could have put another there. "
            "Compare its SHA-256, and run it with `python3 -I`.\n",
            "| script | checks | SHA-256, in this version of kfm |",
            "|---|---|---|",
            *rows,
            "",
            "`verify_bundle.py` is in every bundle as `verify.py`. With kfm installed, `kfm export --verify` "
            "is the first, and `python3 -I -m kfm.contracts.verifier.verify_audit` the second.\n",
        ]
    )


# --- writing and checking ------------------------------------------------------------

PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "errors.md": errors_page,
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "nodd.md": nodd_page,
    "api.md": api_page,
    "verifiers.md": verifiers_page,
    "../decisions/index.md": decisions_page,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a page is out of date")
    options = parser.parse_args(argv)
    stale = []
    for name, make in PAGES.items():
        page, text = REFERENCE / name, make()
        before = page.read_text(encoding="utf-8") if page.exists() else ""
        if before == text:
            continue
        if not options.check:
            page.write_text(text, encoding="utf-8")
            continue
        stale.append(name)
        changes = difflib.unified_diff(
            before.splitlines(), text.splitlines(), name, "from the code", lineterm="", n=1
        )
        print("\n".join(list(changes)[:40]), file=sys.stderr)
    if stale:
        print(f"reference: out of date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
