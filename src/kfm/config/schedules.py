"""Schedules of a configuration: from `cron.yml`, or from what is remembered of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm import __version__
from kfm.config.loader import CachedFile, recall, remember
from kfm.model.errors import ConfigError
from kfm.model.schedules import Schedule

if TYPE_CHECKING:
    from kfm.config.loader import Loaded

FILE = "cron.yml"
FILE_BYTES_MAX = 1024 * 1024


class CachedSchedules(CachedFile, frozen=True):
    schedules: tuple[Schedule, ...]


def load_schedules(loaded: Loaded, named: str | None = None) -> tuple[Schedule, ...]:
    """The schedules of a configuration: of the file that it names, or of `cron.yml` beside it, if any."""
    named = named or loaded.settings.schedules
    path = loaded.resolve(named or FILE)
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        if named is None:
            return ()
        line = loaded.lines.get("schedules", 1)
        raise ConfigError.at(loaded.name, line, f"there is no file `{named}`") from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigError.of_file(named or FILE, f"the file can't be read: {why}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError.of_file(named or FILE, f"the file is larger than {FILE_BYTES_MAX:,} bytes")
    source = loaded.data + b"\0" + data  # the configuration has the sources that they name
    known = recall(loaded.cache, CachedSchedules, path, source)
    if known is not None:
        return known.schedules
    from kfm.config.schedule_file import read_schedules

    schedules = read_schedules(named or FILE, data, loaded.settings)
    remember(loaded.cache, CachedSchedules(__version__, path, source, schedules))
    return schedules
