"""What this process has used, as the kernel and the processor tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kfm.system import ProcessMeter

BURN = "sum(i * i for i in range(300_000))"


def _zone(folder: Path, name: str, kind: str, energy_uj: int, highest: int = 1000) -> Path:
    zone = folder / name
    zone.mkdir(parents=True)
    (zone / "name").write_text(f"{kind}\n")
    (zone / "max_energy_range_uj").write_text(f"{highest}\n")
    (zone / "energy_uj").write_text(f"{energy_uj}\n")
    return zone / "energy_uj"


@pytest.mark.req("UPD-15")
def test_processor_time_grows_with_work() -> None:
    """Work of this process is counted, in microseconds, and never backwards."""
    meter = ProcessMeter()
    before = meter.cpu_us()
    for _ in range(5):
        eval(BURN)
    assert meter.cpu_us() - before > 5_000


def test_children_count_once_waited_for() -> None:
    """A step that hands its work to another process is not free."""
    meter = ProcessMeter()
    before = meter.cpu_us()
    subprocess.run([sys.executable, "-S", "-c", f"for _ in range(8): {BURN}"], check=True)
    spent = meter.cpu_us() - before
    assert spent > 40_000


def test_packages_are_added_up_and_their_parts_are_not(tmp_path: Path) -> None:
    """Two packages are two counters; cores inside one and the platform around both are not counted again."""
    first = _zone(tmp_path, "intel-rapl:0", "package-0", 990)
    second = _zone(tmp_path, "intel-rapl:1", "package-1", 10)
    part = _zone(tmp_path, "intel-rapl:0:0", "core", 5)
    platform = _zone(tmp_path, "intel-rapl:2", "psys", 5)
    meter = ProcessMeter(str(tmp_path))
    assert meter.package_uj() == 0
    first.write_text("4")  # over the top: 990 → 1000 → 0 → 4
    second.write_text("30")
    part.write_text("900")
    platform.write_text("900")
    assert meter.package_uj() == 15 + 20
    assert meter.package_uj() == 35


@pytest.mark.parametrize("trouble", ["no folder", "no zones", "no figure", "later gone"])
def test_without_counters_nothing_is_claimed(tmp_path: Path, trouble: str) -> None:
    """Where the processor does not tell, there is no figure, and no error either."""
    powercap = tmp_path / "powercap"
    if trouble != "no folder":
        powercap.mkdir()
    counter = _zone(powercap, "intel-rapl:0", "package-0", 1) if "zone" not in trouble else None
    if trouble == "no figure" and counter:
        counter.write_text("unknown\n")
    meter = ProcessMeter(str(tmp_path / "nothing" if trouble == "no folder" else powercap))
    if trouble == "later gone" and counter:
        assert meter.package_uj() == 0
        counter.unlink()
    assert meter.package_uj() is None
    assert meter.package_uj() is None
