"""Checks staged bytes against a contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from kfm.model.records import Asset, Check, ValidationReport, Window
from kfm.model.wording import counted
from kfm.ports import Reader
from kfm.publish.contract.findings import PlaceTally
from kfm.publish.contract.formats import format_of
from kfm.publish.contract.model import Contract, ContractLimits, SchemaObject
from kfm.publish.contract.table import TableChecks


def validate(
    contract: Contract,
    assets: Sequence[Asset],
    open: Callable[[str], Reader],
    now_ms: int,
    window: Window | None = None,
    *,
    show_values: bool = False,
    limits: ContractLimits | None = None,
) -> ValidationReport:
    """One report over all assets of a run.

    `open` gives the bytes of a SHA-256. The rows of all files that one schema
    object describes are one table. Freshness is measured from the end of the
    window, or from `now_ms` where that is earlier or there is no window, so that
    a backfill is not called stale. Values enter the report only if `show_values`.

    Whatever the bytes are, the answer is a report. Only a missing extra and an
    unreadable object store raise.
    """
    bounds = limits or ContractLimits()
    reference_ms = min(window.end_ms, now_ms) if window is not None else now_ms
    several = len(contract.objects) > 1
    tables = {table.name: TableChecks(contract, table, bounds, several) for table in contract.objects}
    matched: dict[str, list[Asset]] = {table.name: [] for table in contract.objects}
    uncovered = PlaceTally(bounds.samples_max)
    for asset in assets:
        table = _object_for(contract, asset)
        if table is None:
            uncovered.add(asset.path)
        else:
            matched[table.name].append(asset)
    checks = [_covered(uncovered, len(assets), contract.uncovered_allowed)]
    for table in contract.objects:
        files = matched[table.name]
        runner = tables[table.name]
        try:
            for asset in files:
                _read(runner, table, asset, open, len(files) > 1)
            checks.extend(runner.checks(files, reference_ms, show_values))
        finally:
            runner.close()
    return ValidationReport(checks=tuple(checks))


def _read(
    runner: TableChecks, table: SchemaObject, asset: Asset, open: Callable[[str], Reader], several: bool
) -> None:
    reader = open(asset.sha256)
    try:
        runner.read(asset, reader, table.format or format_of(asset), f"{asset.path} " if several else "")
    finally:
        reader.close()


def _object_for(contract: Contract, asset: Asset) -> SchemaObject | None:
    """The first schema object whose pattern matches the path, or the bare file name."""
    file_name = asset.path.rpartition("/")[2]
    for table in contract.objects:
        pattern = table.path_pattern
        if pattern is None or fnmatchcase(asset.path, pattern) or fnmatchcase(file_name, pattern):
            return table
    return None


def _covered(uncovered: PlaceTally, total: int, allowed: bool) -> Check:
    files = counted(total, "file")
    if not uncovered.count:
        return Check(name="schema.covered", passed=True, detail=f"The contract covers all of {files}.")
    detail = f"The contract says nothing about {uncovered.count} of {files}{uncovered.where()}."
    return Check(
        name="schema.covered",
        passed=allowed,
        detail=detail + (" It allows that." if allowed else ""),
        sample=uncovered.sample(show_values=False),
    )
