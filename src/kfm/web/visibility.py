"""What a caller may see: secrets are redacted for all; of masked datasets, readers get facts and no texts.

By field: a record of a masked dataset keeps its times, ids, figures and words of closed vocabularies. Its
names are masked, and every other text in it is withheld, whatever it says. A field that is new is withheld
until it is listed here.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec

from kfm.model.dataset_changes import ChangeKind
from kfm.model.masked_names import NOTHING, MaskedNames
from kfm.model.redaction import MASK_KEY
from kfm.model.roles import Identity
from kfm.model.schedules import Schedule
from kfm.model.settings import Settings

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

WITHHELD = "withheld"
WAL_TIME_DIGITS = 13  # of a unit's id, before its dash
T = TypeVar("T")

# Texts that are shown of any record: words of closed vocabularies, and what follows from a clock.
FACTS = frozenset(
    "health status state kind grain outcome trigger_type trigger error_code error_class "
    "error_classes reason_code "
    "ending severity position fate change event event_type event_kind word tone role roles known_by "
    "window_spec window cron pattern time_zone goes_by overlap while_paused run hash gate anchor care_level "
    "next_local local code method assumption integrity_status metadata_status stac_status provenance_status "
    "held_back href".split()
)
# Names of things: shown as masks, so that records can be joined and filtered by them.
NAMES = frozenset(
    "dataset_id dataset unit_dataset source_id schedule_id pipeline_id provider scope subject name domain "
    "job blocked_by".split()
)
# Members that are one with the record that has them: what they tell, it tells.
PARTS = frozenset(
    "details run held request incident unit breaker switch record reason row schedule paused".split()
)
# Ids of records by which the owner of another one is found.
_OWNED_BY = ("run_id", "subject", "request_id", "retry_of", "held_id", "wal_id", "unit")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?( UTC)?")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?|[0-9a-f]{13}-[0-9a-f]{20}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def may_know(identity: Identity) -> bool:
    """Who operates or approves sees every name: they decide about it."""
    return bool({"operate", "approve"} & set(identity.roles))


class Visibility:
    """The documents and pages of one request, as its caller may see them."""

    def __init__(
        self,
        settings: Settings,
        ledger: LedgerReader,
        *,
        everything: bool,
        hide: Callable[[str], str] = str,
        schedules: Sequence[Schedule] = (),
        verbatim: tuple[type, ...] = (),
    ) -> None:
        """`hide` redacts secrets; records of the types `verbatim` are our own words, or the caller's."""
        self.everything = everything
        self._hide = hide
        self._ledger = ledger
        self._verbatim = verbatim
        self._names = MaskedNames(settings, ledger, schedules)
        self._key = ledger.mark(MASK_KEY) or ""
        self._sources = {source.id for source in settings.sources}
        self._owners: dict[str, str | None] = {}

    # --- decisions ---------------------------------------------------------------------

    def hides(self, dataset_id: str) -> bool:
        """Is this dataset masked for the caller?"""
        return not self.everything and self._names.hides(dataset_id)

    def hides_units(self, dataset: str) -> bool:
        return not self.everything and self._names.hides_units(dataset)

    def hides_pipeline(self, pipeline_id: str, run_id: str) -> bool:
        """A pipeline that is named after what is masked, or that works for it."""
        return not self.everything and (self._names.tells(pipeline_id) or self._is_owned(run_id))

    def hides_record(self, record: Any) -> bool:
        """Does this record tell of a masked dataset?"""
        return not self.everything and self._is_masked(_fields(msgspec.to_builtins(record)))

    def meant(self, name: str | None) -> str | None:
        """The name that a filter means: a mask is its name, and a masked name finds nothing."""
        return name if name is None or self.everything else self._names.meant(name)

    def known(self, shown: str, among: Iterable[str]) -> str:
        """The name that an address means, one of `among`; for readers, any other finds nothing."""
        if self.everything:
            return shown
        found = self._names.meant(shown)
        return found if found != shown or found in among else NOTHING

    def in_address(self, value: str, what: str = "") -> str:
        """A name as addresses hold it; `what`: the kind of thing that has it."""
        masked = (
            self._names.is_name(value)
            or (what == "dataset" and self._names.hides(value))
            or (what == "source" and value not in self._sources)  # of a dataset that was declared once
        )
        return self._names.mask(value) if masked and not self.everything else value

    # --- what is shown -----------------------------------------------------------------

    def text(self, text: str) -> str:
        """A text that belongs to no record."""
        text = self._hide(text)
        return WITHHELD if not self.everything and self._names.tells(text) else text

    def unattributed(self, text: str) -> str:
        """A text that may be of any dataset: withheld where there is a masked one."""
        return WITHHELD if text and not self.everything and self._names.names else self._hide(text)

    def document(self, value: Any) -> Any:
        """A document as plain values."""
        return self._shown("", msgspec.to_builtins(value), owned=False, told=False)

    def record(self, value: T) -> T:
        """A record of the same type."""
        return self._shown("", value, owned=False, told=False)  # type: ignore[no-any-return]

    def _shown(self, field: str, value: Any, *, owned: bool, told: bool) -> Any:
        """`owned`: it is of a masked dataset; `told`: it names one."""
        if isinstance(value, str):
            return self._text(field, value, owned=owned, told=told)
        if isinstance(value, list | tuple):
            kept = [
                each
                for each in value
                if not (isinstance(each, str) and (owned or told) and self._withholds(field, each))
            ]
            return type(value)([self._shown(field, each, owned=owned, told=told) for each in kept])
        if isinstance(value, self._verbatim):
            return value
        fields = _fields(value)
        if fields is None:
            return value
        if not self.everything:
            owned = owned or self._is_of_masked(fields)
            told = told or owned or self._is_masked(fields)
            if told and field == "details":
                return {}
        shown = {name: self._shown(name, each, owned=owned, told=told) for name, each in fields.items()}
        if isinstance(value, msgspec.Struct):
            return type(value)(**shown)
        return {self._field_name(name): each for name, each in shown.items()} if told else shown

    def _text(self, field: str, value: str, *, owned: bool, told: bool) -> str:
        if told or owned:
            if self._is_fact(field, value):
                return self._hide(value)
            if (field in NAMES and owned) or self._names.is_name(value):
                return self._names.mask(value)
            if field == "digest" and _DIGEST.fullmatch(value):
                return f"sha256:{hmac.new(self._key.encode(), value.encode(), hashlib.sha256).hexdigest()}"
            if field not in NAMES or self._names.tells(value):
                return WITHHELD if value else ""
        return self._hide(value)

    def _field_name(self, name: str) -> str:
        """Names of members are ours, but for a few that are those of datasets."""
        return self._names.mask(name) if self._names.tells(name) else name

    def _withholds(self, field: str, value: str) -> bool:
        return not self._is_fact(field, value) and not (field in NAMES or self._names.is_name(value))

    def _is_fact(self, field: str, value: str) -> bool:
        if field == "blocked_by":
            return ":" not in value or value.startswith("gate:")  # else with a provider or a switch
        if field in FACTS or field.endswith("_href") or _TIME.fullmatch(value) or _ID.fullmatch(value):
            return True
        if field == "by":  # what made a version; else a person
            return value in ("run", *get_args(ChangeKind))
        return field == "about" and value in ("dataset", "provider")

    # --- whose it is -------------------------------------------------------------------

    def _is_of_masked(self, fields: Mapping[str, Any]) -> bool:
        owner = fields.get("dataset_id")
        if isinstance(owner, str) and owner:
            return self._names.hides(owner)
        for name in ("dataset", "unit_dataset"):
            if isinstance(fields.get(name), str) and fields[name]:
                return self._names.hides_units(fields[name])
        if any(
            isinstance(fields.get(name), Mapping | msgspec.Struct)
            and self._is_of_masked(_fields(fields[name]) or {})
            for name in PARTS
        ):
            return True
        refs = [fields.get(name) for name in _OWNED_BY]
        refs += [fields.get("id")] if "type" in fields else []
        return any(isinstance(one, str) and self._is_owned(re.split("[#/]", one)[0]) for one in refs)

    def _is_masked(self, fields: Mapping[str, Any] | None) -> bool:
        """Is it of a masked dataset, or does any of its texts name one?"""
        if fields is None:
            return False
        return self._is_of_masked(fields) or any(
            self._tells(name, each) for name, each in fields.items() if name not in FACTS
        )

    def _tells(self, field: str, value: Any) -> bool:
        if isinstance(value, str):
            return not field.endswith("_href") and self._names.tells(value)
        if isinstance(value, list | tuple):  # records in it are judged by themselves
            return any(isinstance(each, str) and self._names.tells(each) for each in value)
        if field == "details":
            return any(map(self._names.tells, _texts(value)))
        nested = _fields(value) if field in PARTS else None
        return nested is not None and any(self._tells(name, each) for name, each in nested.items())

    def _is_owned(self, record_id: str) -> bool:
        """Is the record of this id one of a masked dataset?"""
        if record_id not in self._owners:
            self._owners[record_id] = self._owner(record_id) if _ID.fullmatch(record_id) else None
        owner = self._owners[record_id]
        return owner is not None and self._names.hides(owner)

    def _owner(self, record_id: str) -> str | None:
        ledger = self._ledger
        if "-" in record_id and len(record_id.partition("-")[0]) == WAL_TIME_DIGITS:
            unit = ledger.unit_reader().unit(record_id)
            return unit.dataset if unit is not None and self._names.hides_units(unit.dataset) else None
        for find in (
            ledger.run,
            ledger.request_reader().request,
            ledger.held_one,
            ledger.invocation,
            ledger.approval,
            ledger.change_reader().change,
        ):
            found = find(record_id)
            if found is not None:
                owner: str | None = found.dataset_id
                return owner
        return None


def _fields(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield name
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
