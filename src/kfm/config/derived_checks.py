"""Checks of sources of kind `dataset`: inputs exist, fit, go round no circle and lose no restriction."""

from __future__ import annotations

from collections.abc import Iterator

from kfm.config.document import Problem
from kfm.model.derived import KIND, cycle_in, lowered_care, upstream_of
from kfm.model.errors import WindowError
from kfm.model.quantities import did_you_mean
from kfm.model.settings import Settings, SourceSettings
from kfm.model.windows import NO_WINDOW, fits_into


def derived_problems(settings: Settings) -> Iterator[Problem]:
    """What is wrong with datasets made from datasets: path and sentence."""
    for index, source in enumerate(settings.sources):
        if source.kind == KIND and source.datasets:
            yield from _inputs(settings, source, f"sources[{index}]")
            yield from _lowered_care(settings, source, f"sources[{index}]")
    yield from _circle(settings)


def _inputs(settings: Settings, source: SourceSettings, path: str) -> Iterator[Problem]:
    names = [dataset.id for dataset in settings.datasets]
    for name in source.datasets:
        if name not in names:
            hint = did_you_mean(name, names)
            yield (
                f"{path}.datasets.{name}",
                f"source `{source.id}` is made of the dataset `{name}`, which is not there{hint}",
            )
    windowed = [name for name, read_as in source.datasets.items() if read_as == "window"]
    if source.window == NO_WINDOW:
        for name in windowed:
            yield (
                f"{path}.datasets.{name}",
                f"source `{source.id}` has no windows, so it reads `{name}` as `current`, not by window",
            )
        return
    if not windowed:
        yield (
            f"{path}.datasets",
            f"source `{source.id}` reads nothing by window: give it `window: {NO_WINDOW}`, or read one of "
            "its datasets as `window`",
        )
    for name in windowed:
        yield from _fitting(settings, source, name, f"{path}.datasets.{name}")
    if source.follows:
        yield f"{path}.follows", f"`follows` does not apply to a source of kind `{source.kind}`"


def _fitting(settings: Settings, source: SourceSettings, name: str, path: str) -> Iterator[Problem]:
    """What lies in no window would never be read, without a word."""
    members = {member for each in settings.sources for member in each.members}
    for feeder in settings.sources:
        if feeder.dataset != name or feeder.id in members or feeder.id == source.id:
            continue
        if feeder.window == NO_WINDOW:
            yield path, f"`{name}` has no windows (source `{feeder.id}`): read it as `current`"
            continue
        try:
            fits = fits_into(feeder.window, source.window)
        except WindowError:
            continue  # told of the window itself
        if not fits or (feeder.time_zone != source.time_zone and "/" not in feeder.window + source.window):
            zones = "" if feeder.time_zone == source.time_zone else f" in {feeder.time_zone}"
            own = "" if feeder.time_zone == source.time_zone else f" in {source.time_zone}"
            yield (
                path,
                f"windows of {feeder.window}{zones} (source `{feeder.id}`) do not lie in windows of "
                f"{source.window}{own}: some of `{name}` would never be read",
            )


def _lowered_care(settings: Settings, source: SourceSettings, path: str) -> Iterator[Problem]:
    lowered = lowered_care(settings, source)
    if lowered and not (source.lowers_care or "").strip():
        name, its, own = lowered[0]
        yield (
            f"{path}.datasets.{name}",
            f"`{source.dataset}` is {own} and is made of `{name}`, which is {its}: give it that level, or "
            "say in `lowers_care` why it may be less restricted",
        )
    elif source.lowers_care is not None and not lowered:
        yield (
            f"{path}.lowers_care",
            "`lowers_care` lowers nothing: no dataset that it reads is more restricted",
        )


def _circle(settings: Settings) -> Iterator[Problem]:
    circle = cycle_in(upstream_of(settings))
    if circle is None:
        return
    index = next(
        number
        for number, source in enumerate(settings.sources)
        if source.kind == KIND and source.dataset in circle and set(source.datasets) & set(circle)
    )
    # Each is read by the next one: that is the way that data would go.
    yield f"sources[{index}].datasets", f"datasets are made of each other: {' → '.join(circle)}"
