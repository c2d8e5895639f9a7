"""Checks of staged files against a contract: all columns and rules of each schema object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from kfm.model.gates import utc_text
from kfm.model.quantities import counted
from kfm.model.records import Asset, Check, ValidationReport, Window
from kfm.ports import Reader
from kfm.publish.contract.columns import ColumnChecks, Distinct
from kfm.publish.contract.findings import GEO_CHECKS, ContractFindings, PlaceTally
from kfm.publish.contract.formats import format_of
from kfm.publish.contract.model import Contract, ContractLimits, QualityRule, SchemaObject
from kfm.publish.contract.rows import RowReader
from kfm.publish.contract.streams import FileProblem
from kfm.publish.contract.values import key_of


class TableChecks:
    """Reads files row by row, then reports its findings."""

    def __init__(
        self, contract: Contract, table: SchemaObject, limits: ContractLimits, several: bool
    ) -> None:
        self._table = table
        self._limits = limits
        self._prefix = f"{table.name}." if several else ""
        self._freshness = [item for item in contract.freshness if item.object_name == table.name]
        fresh = {item.property_name for item in self._freshness}
        self._columns = [
            ColumnChecks(prop, limits, tracks_newest=prop.name in fresh) for prop in table.properties
        ]
        self._findings = ContractFindings(limits)
        self._reader = RowReader(table, limits, self._findings)
        self._key = _Composite(table, [prop.name for prop in table.primary_key], limits)
        self._composites = [
            (rule, _Composite(table, list(rule.properties), limits))
            for rule in table.quality
            if rule.metric == "duplicateValues"
        ]
        self._formats: set[str] = set()

    def read(self, asset: Asset, reader: Reader, file_format: str | None, prefix: str) -> None:
        if file_format is None:
            self._findings.cannot_read(asset.path, "has a format that is not known; name it with kfmFormat")
            return
        self._formats.add(file_format)
        if file_format == "opaque":
            return
        try:
            for place, values, is_text in self._reader.rows(file_format, asset, reader, prefix):
                self._findings.rows += 1
                meanings = [
                    column.feed(place, value, is_text)
                    for column, value in zip(self._columns, values, strict=True)
                ]
                self._key.feed(place, meanings)
                for _rule, composite in self._composites:
                    composite.feed(place, meanings)
        except FileProblem as problem:
            self._findings.cannot_read(asset.path, str(problem))

    def close(self) -> None:
        for column in self._columns:
            if column.distinct is not None:
                column.distinct.close()
        self._key.distinct.close()
        for _rule, composite in self._composites:
            composite.distinct.close()

    def checks(self, files: Sequence[Asset], reference_ms: int, show_values: bool) -> list[Check]:
        path = files[0].path if len(files) == 1 else None
        if not files:
            detail = f"No file holds {self._table.name}."
            if self._table.optional:
                return [self._check("schema.present", True, detail + " It is optional.", None)]
            return [self._check("schema.present", False, detail, None)]
        present = f"{counted(len(files), 'file')}."
        found = [self._check("schema.present", True, present, path), *self._file_checks(path)]
        if self._formats == {"opaque"}:
            return found
        found.extend(self._geo_checks(path))
        for column in self._columns:
            found.extend(self._column_checks(column, path, show_values))
        if self._table.primary_key:
            found.append(self._primary_key(path))
        found.extend(self._object_rules(path))
        found.extend(self._fresh_checks(path, reference_ms))
        return found

    def _check(
        self, name: str, passed: bool, detail: str, path: str | None, sample: tuple[str, ...] = ()
    ) -> Check:
        target = name if ":" in name else f"{name}:{self._table.name}"
        return Check(name=target, passed=passed, detail=detail, path=path, sample=sample)

    def _named(self, check: str, column: str) -> str:
        return f"{check}:{self._prefix}{column}"

    def _file_checks(self, path: str | None) -> Iterator[Check]:
        findings = self._findings
        if findings.unreadable.count:
            problems = "; ".join(findings.problems)
            detail = f"{counted(findings.unreadable.count, 'file')} can't be read: {problems}."
            yield self._check("schema.readable", False, detail, path)
        else:
            yield self._check("schema.readable", True, f"{counted(findings.rows, 'row')} read.", path)
        if findings.ragged.count:
            ragged = findings.ragged
            lack = "does not have" if ragged.count == 1 else "do not have"
            detail = f"{counted(ragged.count, 'row')} {lack} the shape of the table{ragged.where()}."
            yield self._check("schema.rows", False, detail, path, ragged.sample(False))
        if findings.extra:
            allowed = self._table.extra_columns_allowed
            detail = f"Columns that the contract does not name: {findings.extra_names()}."
            yield self._check("schema.columns.extra", allowed, detail, path)

    def _geo_checks(self, path: str | None) -> Iterator[Check]:
        if "geojson" not in self._formats:
            return
        for name in GEO_CHECKS:
            tally = self._findings.geometry[name]
            if name == "winding" and self._table.winding == "ignore":
                continue
            if not tally.count:
                yield self._check(f"geojson.{name}", True, "Every feature is as RFC 7946 asks.", path)
                continue
            why = "; ".join(self._findings.geometry_problems[name])
            detail = f"{counted(tally.count, 'time')} ({why}){tally.where()}."
            warns = name == "winding" and self._table.winding == "warn"
            detail = ("Warning only: " if warns else "") + detail
            yield self._check(f"geojson.{name}", warns, detail, path, tally.sample(False))

    def _column_checks(self, column: ColumnChecks, path: str | None, show: bool) -> Iterator[Check]:
        prop = column.prop
        lacking = self._findings.lacking.get(prop.name)
        if lacking is not None:
            files = counted(lacking.count, "file")
            detail = f"The column {prop.column} is missing in {files}{lacking.where()}."
            yield self._check(self._named("schema.column.present", prop.name), False, detail, path)
        rows = self._findings.rows
        if prop.logical_type is not None:
            why = "; ".join(sorted(column.complaints)[: self._limits.samples_max])
            verdict = f"{_some(column.wrong_type.count, rows)} {why}"
            name = self._named("schema.column.type", prop.name)
            yield self._counted(name, column.wrong_type, verdict, path, show)
        if column.required:
            verdict = f"{_some(column.nulls.count, rows)} missing"
            name = self._named("schema.column.required", prop.name)
            yield self._counted(name, column.nulls, verdict, path, False)
        for test, tally in column.tests:
            each = "" if tally.count == 1 else ": each"
            verdict = f"{tally.count} of {counted(rows, 'value')}{each} {test.complaint}"
            name = self._named(f"schema.column.{test.name}", prop.name)
            yield self._counted(name, tally, verdict, path, show)
        yield from self._column_rules(column, path, show)

    def _column_rules(self, column: ColumnChecks, path: str | None, show: bool) -> Iterator[Check]:
        prop = column.prop
        repeated = column.distinct.duplicates() if column.distinct is not None else None
        if prop.unique and repeated is not None:
            stand = "stands" if repeated.count == 1 else "stand"
            verdict = f"{counted(repeated.count, 'value')} {stand} more than once"
            name = self._named("schema.column.unique", prop.name)
            yield self._counted(name, repeated, verdict, path, False)
        for count in column.rules:
            yield self._ruled(count.rule, count.tally, self._prefix + prop.name, path, show)
        for rule in prop.quality:
            if rule.metric == "duplicateValues" and repeated is not None:
                yield self._ruled(rule, repeated, self._prefix + prop.name, path, False)

    def _counted(self, name: str, tally: PlaceTally, verdict: str, path: str | None, show: bool) -> Check:
        if not tally.count:
            return self._check(name, True, _every(self._findings.rows), path)
        return self._check(name, False, f"{verdict}{tally.where()}.", path, tally.sample(show))

    def _ruled(
        self, rule: QualityRule, tally: PlaceTally, target: str, path: str | None, show: bool
    ) -> Check:
        rows = self._findings.rows
        measured: float | int = tally.count
        if rule.percent:
            measured = 100 * tally.count / rows if rows else 0
        return self._rule_check(rule, measured, target, path, tally, show)

    def _rule_check(
        self,
        rule: QualityRule,
        measured: float | int,
        target: str,
        path: str | None,
        tally: PlaceTally | None,
        show: bool,
    ) -> Check:
        holds = rule.operator.admits(measured)
        unit = " percent" if rule.percent else ""
        detail = f"{rule.metric} is {measured:.12g}{unit}; {rule.operator}{unit}."
        if not holds and rule.warns_only:
            detail = "Warning only: " + detail
        sample = tally.sample(show) if tally is not None and not holds else ()
        name = f"quality.{(rule.name or rule.metric).replace(':', '_')}:{target}"
        return self._check(name, holds or rule.warns_only, detail, path, sample)

    def _primary_key(self, path: str | None) -> Check:
        tally = self._key.distinct.duplicates()
        names = ", ".join(prop.name for prop in self._table.primary_key)
        repeat = "repeats" if tally.count == 1 else "repeat"
        verdict = f"{counted(tally.count, 'row')} {repeat} the primary key ({names}) of an earlier row"
        return self._counted(f"schema.primary-key:{self._table.name}", tally, verdict, path, False)

    def _object_rules(self, path: str | None) -> Iterator[Check]:
        for rule in self._table.quality:
            if rule.metric == "rowCount":
                yield self._rule_check(rule, self._findings.rows, self._table.name, path, None, False)
        for rule, composite in self._composites:
            yield self._ruled(rule, composite.distinct.duplicates(), self._table.name, path, False)

    def _fresh_checks(self, path: str | None, reference_ms: int) -> Iterator[Check]:
        for rule in self._freshness:
            column = next(item for item in self._columns if item.prop.name == rule.property_name)
            name = self._named("sla.freshness", rule.property_name)
            newest_ms = column.newest_ms()
            if newest_ms is None:
                yield self._check(name, False, f"There is no value of {rule.property_name} to measure.", path)
                continue
            age_ms = reference_ms - newest_ms
            detail = (
                f"The newest value is of {utc_text(newest_ms)}, {max(0, age_ms) / 3_600_000:.1f} h before "
                f"{utc_text(reference_ms)}; allowed is {rule.label}."
            )
            yield self._check(name, age_ms <= rule.age_ms_max, detail, path)


def _some(count: int, rows: int) -> str:
    return f"{count} of {counted(rows, 'value')} {'is' if count == 1 else 'are'}"


def _every(rows: int) -> str:
    return "The row passes." if rows == 1 else f"All {rows} rows pass."


class _Composite:
    """Uniqueness of several columns together. A row with a null in it is not compared."""

    def __init__(self, table: SchemaObject, names: list[str], limits: ContractLimits) -> None:
        order = [prop.name for prop in table.properties]
        self._indexes = [order.index(name) for name in names]
        self.distinct = Distinct(limits)

    def feed(self, place: str, meanings: list[Any]) -> None:
        if not self._indexes:
            return
        parts = [meanings[index] for index in self._indexes]
        if any(part is None for part in parts):
            return
        keys = [key_of(part) for part in parts]
        self.distinct.add(b"".join(len(key).to_bytes(8, "big") + key for key in keys), place)


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
        table = object_for(contract, asset)
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


def check_rows_min(
    rows_min: int,
    contracts: Sequence[tuple[Contract, str]],
    assets: Sequence[Asset],
    open: Callable[[str], Reader],
    limits: ContractLimits | None = None,
) -> Check:
    """The check that the files of a window hold at least so many rows together. No more is read than it
    takes; what a contract says about a file's format holds, with the prefix of the paths that it is for."""
    bounds, name = limits or ContractLimits(), "expect.rows_min"
    rows, uncounted = 0, []
    for asset in assets:
        declared = [object_for(each, asset) for each, prefix in contracts if asset.path.startswith(prefix)]
        table = next((each for each in declared if each is not None), SchemaObject(name="rows"))
        file_format = table.format or format_of(asset)
        if file_format is None or file_format == "opaque":
            uncounted.append(asset.path)
            continue
        reader = open(asset.sha256)
        try:
            found = RowReader(table, bounds, ContractFindings(bounds)).rows(file_format, asset, reader, "")
            rows += sum(1 for _ in islice(found, rows_min - rows))
        except FileProblem:
            uncounted.append(asset.path)
        finally:
            reader.close()
        if rows >= rows_min:
            return Check(name=name, passed=True, detail=f"At least {counted(rows_min, 'row')}.")
    detail = f"{counted(rows, 'row')}, where at least {rows_min:,} are expected."
    if uncounted:
        detail += f" The rows of {counted(len(uncounted), 'file')} can't be counted: {uncounted[0]}."
    return Check(name=name, passed=False, detail=detail)


def _read(
    runner: TableChecks, table: SchemaObject, asset: Asset, open: Callable[[str], Reader], several: bool
) -> None:
    reader = open(asset.sha256)
    try:
        runner.read(asset, reader, table.format or format_of(asset), f"{asset.path} " if several else "")
    finally:
        reader.close()


def object_for(contract: Contract, asset: Asset) -> SchemaObject | None:
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
