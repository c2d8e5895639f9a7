"""What was noticed about the files of one schema object, apart from single values."""

from __future__ import annotations

from kfm.publish.contract.model import ContractLimits
from kfm.publish.contract.tally import Tally, printable

GEO_CHECKS = ("structure", "positions", "rings", "bbox", "crs", "null", "winding")
_NAMES_MAX = 1000


class Findings:
    """Bounded notes; `validation` turns them into checks."""

    def __init__(self, limits: ContractLimits) -> None:
        self._limits = limits
        self.unreadable = Tally(limits.samples_max)
        self.problems: list[str] = []
        self.ragged = Tally(limits.samples_max)
        self.lacking: dict[str, Tally] = {}
        self.extra: dict[str, None] = {}
        self.geometry: dict[str, Tally] = {name: Tally(limits.samples_max) for name in GEO_CHECKS}
        self.geometry_problems: dict[str, dict[str, None]] = {name: {} for name in GEO_CHECKS}
        self.rows = 0

    def cannot_read(self, path: str, problem: str) -> None:
        self.unreadable.add(path)
        if len(self.problems) < self._limits.samples_max:
            self.problems.append(f"{path} {problem}")

    def lacks_column(self, name: str, path: str) -> None:
        self.lacking.setdefault(name, Tally(self._limits.samples_max)).add(path)

    def extra_column(self, name: str) -> None:
        if len(self.extra) < _NAMES_MAX:
            self.extra[name] = None

    def geo(self, check: str, place: str, problem: str) -> None:
        self.geometry[check].add(place)
        self.geometry_problems[check][problem] = None

    def extra_names(self) -> str:
        shown = [printable(name) for name in list(self.extra)[: self._limits.samples_max]]
        more = len(self.extra) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")
