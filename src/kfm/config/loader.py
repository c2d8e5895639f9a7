"""From a file and the environment to frozen settings. The only reader of `os.environ`.

A flag beats an environment variable, which beats the file. Every message names the file and line, or
the variable, at fault. Secrets are references (`env:NAME`, `file:PATH`), read only when used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kfm.model.errors import ConfigError, ConfigNotFound, SecretNotFound, UsageError
from kfm.model.settings import Settings, TelemetrySettings

if TYPE_CHECKING:
    from kfm.config.collectors import OpenLineage, Otlp
    from kfm.model.redaction import Discretion
    from kfm.model.roles import Identity, KnownPerson

NAMES = ("kfm.yml", "kfm.yaml", "kfm.json")
CONFIG_BYTES_MAX = 1024 * 1024
SECRET_BYTES_MAX = 64 * 1024

# Environment variable → dotted field.
VARIABLES = {
    "KFM_ENV": "environment",
    "KFM_STATE": "state",
    "KFM_STORE": "store",
    "KFM_LEASE_SECONDS": "lease.seconds",
    "KFM_LEASE_HEARTBEAT_SECONDS": "lease.heartbeat_seconds",
    "KFM_LIMITS_OBJECTS_PER_RUN_MAX": "limits.objects_per_run_max",
    "KFM_LIMITS_OBJECT_BYTES_MAX": "limits.object_bytes_max",
    "KFM_LIMITS_RUN_BYTES_MAX": "limits.run_bytes_max",
    "KFM_LIMITS_CALL_TIMEOUT_MS": "limits.call_timeout_ms",
    "KFM_LIMITS_VERSIONS_KEPT": "limits.versions_kept",
}
OTHER_VARIABLES = ("KFM_CONFIG", "KFM_TOKEN", "KFM_LOG_FORMAT")
COMPLETE_VARIABLE = "_KFM_COMPLETE"


class Loaded:
    """Settings, the file they came from, and where each value was said."""

    def __init__(
        self, settings: Settings, path: str, name: str, lines: dict[str, int], said: dict[str, str]
    ) -> None:
        self.settings = settings
        self.path = path
        self.name = name
        self.folder = path.rpartition("/")[0] or "/"
        self.lines = lines
        self._said = said
        self._discretion: Discretion | None = None
        self._known: list[str] | None = None

    @property
    def discretion(self) -> Discretion:
        """Keeps what this process knows of secrets out of whatever it says and writes."""
        if self._discretion is None:
            from kfm.model.redaction import Discretion

            self._discretion = Discretion(self.known_secrets)
        return self._discretion

    def hide(self, text: str) -> str:
        """Redaction of this text; where no secret is known, nothing is imported for it."""
        if self._discretion is None and not self.known_secrets():
            return text
        return self.discretion.hide(text)

    def known_secrets(self) -> list[str]:
        """Read when first asked for. Most commands know none, and are spared the search."""
        if self._known is None:
            from kfm.config.secrets import environment_secrets

            self._known = [*self.referenced_secrets(), *environment_secrets(os.environ)]
        return self._known

    def referenced_secrets(self) -> list[str]:
        """The values behind the references of the configuration, where they exist."""
        from kfm.config.secrets import resolved_secrets

        return resolved_secrets(self.settings, self.secret)

    @property
    def origins(self) -> dict[str, str]:
        """Dotted field → "kfm.yml:14", "environment KFM_ENV", "flag --set" or "default"."""
        from kfm.config.origins import fields

        return {
            field: self._said.get(field)
            or (f"{self.name}:{self.lines[field]}" if field in self.lines else "default")
            for field in fields(self.settings)
        }

    def resolve(self, path: str) -> str:
        """A path of the configuration, relative to the folder of its file."""
        return path if path.startswith("/") else f"{self.folder}/{path}"

    def secret(self, value: str) -> str:
        return resolve_secret(value, self.folder)

    def people(self) -> tuple[KnownPerson, ...]:
        """Who may do what, the references of their tokens resolved."""
        if not self.settings.people:
            return ()
        from kfm.config.people import known_people

        return known_people(self.settings, self.secret)

    def identity(self) -> Identity:
        """Who is asking: by the token in KFM_TOKEN, else by the account."""
        from kfm.model.roles import identify

        return identify(self.people(), actor(), token())

    @property
    def store(self) -> str | None:
        """The store's address with its reference resolved: for opening it, never for printing."""
        return None if self.settings.store is None else self.secret(self.settings.store)


def load(
    path: str | None = None,
    overrides: Mapping[str, str] = {},
    environ: Mapping[str, str] = os.environ,
) -> Loaded:
    """Read, shape and check a configuration; `overrides` are dotted fields from flags."""
    name = find(path, environ)
    absolute = os.path.abspath(name)
    data = _read(name)
    settings, lines = _parsed(name, absolute, data, cache_folder(environ))
    said: dict[str, str] = {}
    for variable, field in VARIABLES.items():
        if environ.get(variable):
            origin = f"environment {variable}"
            settings = _override(settings, field, _placed(field, environ[variable], variable), origin)
            said[field] = origin
    for field, text in overrides.items():
        origin = f"flag --set {field}"
        settings = _override(settings, field, _placed(field, text, None), origin)
        said[field] = origin
    loaded = Loaded(settings, absolute, name, lines, said)
    _require_files(loaded, lines)
    return loaded


def find(path: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The configuration file: the flag, then KFM_CONFIG, then one beside us. No walk upwards."""
    if path:
        return path
    if environ.get("KFM_CONFIG"):
        return environ["KFM_CONFIG"]
    here = [name for name in NAMES if os.access(name, os.F_OK)]
    if len(here) > 1:
        raise ConfigError(
            f"There are two: {here[0]} and {here[1]}.", remedy="Name one with --config, or remove one."
        )
    if not here:
        raise ConfigNotFound(f"Looked for {', '.join(NAMES)} in this folder.")
    return here[0]


def _read(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigNotFound(f"Looked for {name}.") from None
    except IsADirectoryError:
        raise ConfigNotFound(f"{name} is a folder; name the file in it.") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: the file can't be read: {_why(error)}") from None
    if len(data) > CONFIG_BYTES_MAX:
        raise ConfigError(f"{name}: the file is larger than {CONFIG_BYTES_MAX:,} bytes")
    return data


def _parsed(name: str, absolute: str, data: bytes, folder: str | None) -> tuple[Settings, dict[str, int]]:
    from kfm.config import cache

    entry = cache.recall(folder, absolute, data) if folder else None
    if entry is not None:
        return entry.settings, entry.lines
    from kfm.config.checks import check
    from kfm.config.document import read_document
    from kfm.config.shape import to_settings

    document = read_document(name, data)
    settings = to_settings(document)
    check(document, settings)
    if folder:
        cache.remember(folder, absolute, data, settings, document.lines)
    return settings, document.lines


# --- overrides -----------------------------------------------------------------------


def _placed(field: str, text: str, variable: str | None) -> str:
    """A value from outside the file: its paths are seen from here, its credentials stay where they are."""
    if field == "state":
        return os.path.abspath(text)
    if field == "store" and text.startswith("sqlite:"):
        return "sqlite:" + os.path.abspath(text.removeprefix("sqlite:"))
    if field == "store" and variable is not None and "@" in text and not text.startswith("file:"):
        return f"env:{variable}"  # it may hold a password: settings are printed, the environment is not
    return text


def _override(settings: Settings, field: str, text: str, origin: str) -> Settings:
    from kfm.config.checks import value_problem
    from kfm.model.wording import did_you_mean

    if field not in VARIABLES.values():
        hint = did_you_mean(field, sorted(VARIABLES.values()))
        raise UsageError(f"{origin}: `{field}` can't be set from outside the file{hint}")
    group, _, leaf = field.rpartition(".")
    holder = getattr(settings, group) if group else settings
    kind = type(holder).__annotations__[leaf]
    try:
        value: Any = msgspec.convert(text, _TYPES[str(kind)], strict=False)
        changed: Any = msgspec.structs.replace(holder, **{leaf: value})
    except msgspec.ValidationError:
        wanted = "a whole number" if kind == "int" else "a number"
        raise ConfigError(f"{origin}: `{leaf}` must be {wanted}, not `{text[:40]}`") from None
    settings = msgspec.structs.replace(settings, **{group: changed}) if group else changed
    problem = value_problem(settings, field)
    if problem:
        raise ConfigError(f"{origin}: {problem}")
    return settings


_TYPES: dict[str, type] = {"str": str, "str | None": str, "int": int, "float": float, "float | None": float}


def _require_files(loaded: Loaded, lines: dict[str, int]) -> None:
    """Files that the configuration names are there. Looked at each time: they come and go."""
    named = [
        (f"policies[{index}]", path)
        for index, path in enumerate(loaded.settings.policies)
        if not set(path) & set("*?[")  # a pattern may match nothing yet
    ]
    for index, source in enumerate(loaded.settings.sources):
        if source.contract is not None:
            named.append((f"sources[{index}].contract", source.contract))
        if source.pipeline is not None:
            named.append((f"sources[{index}].pipeline", source.pipeline.rpartition(":")[0]))
    missing = [
        ConfigError.at(loaded.name, lines.get(field, 1), f"there is no file `{path}`")
        for field, path in named
        if not os.access(loaded.resolve(path), os.R_OK)
    ] + [
        ConfigError.at(loaded.name, lines.get(field, 1), f"`{path}` is a folder, not a file")
        for field, path in named
        if field.startswith("sources") and os.path.isdir(loaded.resolve(path))  # of policies it means all
    ]
    if missing:
        from kfm.config.shape import gathered

        raise gathered(missing)


# --- secrets -------------------------------------------------------------------------


def resolve_secret(value: str, folder: str = ".", environ: Mapping[str, str] = os.environ) -> str:
    """The value behind `env:NAME` or `file:PATH`; any other text is returned unchanged."""
    kind, colon, place = value.partition(":")
    if not colon or kind not in ("env", "file") or (kind == "file" and place.startswith("//")):
        return value
    if kind == "env":
        if not environ.get(place):
            raise SecretNotFound(f"The environment variable {place} is not set.")
        return environ[place]
    path = place if place.startswith("/") else f"{folder}/{place}"
    try:
        with open(path, "rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
        if len(data) > SECRET_BYTES_MAX:
            raise SecretNotFound(f"The file {place} is too large to be a secret.")
        text = data.decode().rstrip("\r\n")
    except OSError as error:
        raise SecretNotFound(f"The file {place} can't be read: {_why(error)}.") from None
    except UnicodeDecodeError:
        raise SecretNotFound(f"The file {place} is not UTF-8 text.") from None
    if not text:
        raise SecretNotFound(f"The file {place} is empty.")
    return text


# --- other environment variables -----------------------------------------------------


class GitHub(NamedTuple):
    """The files that a GitHub Actions job reads results from."""

    output: str | None
    step_summary: str | None


def github(environ: Mapping[str, str] = os.environ) -> GitHub | None:
    if environ.get("GITHUB_ACTIONS") != "true":
        return None
    return GitHub(environ.get("GITHUB_OUTPUT") or None, environ.get("GITHUB_STEP_SUMMARY") or None)


def otlp(settings: TelemetrySettings, environ: Mapping[str, str] = os.environ) -> Otlp | None:
    """The collector of spans and metrics: OpenTelemetry's own variables, then the file."""
    from kfm.config.collectors import collector

    return collector(settings, environ)


def openlineage(environ: Mapping[str, str] = os.environ) -> OpenLineage:
    """The collector of lineage events, as OpenLineage's own variables name it."""
    from kfm.config.collectors import transport

    return transport(environ)


def wants_colour(choice: str, is_tty: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """`--color` beats NO_COLOR, which beats FORCE_COLOR, which beats the kind of terminal."""
    if choice in ("always", "never"):
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") not in (None, "", "0", "false"):
        return True
    return is_tty and environ.get("TERM") != "dumb"


def token(environ: Mapping[str, str] = os.environ) -> str | None:
    """Who is asking, where people have tokens; and what callers of our own servers must show."""
    return environ.get("KFM_TOKEN") or None


def log_format(environ: Mapping[str, str] = os.environ) -> str | None:
    """The form of messages on stderr; `--log-format` beats it."""
    return environ.get("KFM_LOG_FORMAT") or None


def pager(environ: Mapping[str, str] = os.environ) -> str | None:
    return environ.get("PAGER") or None


def completion_instruction(environ: Mapping[str, str] = os.environ) -> str | None:
    """What a shell asks for completion."""
    return environ.get(COMPLETE_VARIABLE) or None


def actor() -> str:
    """The account that the process runs under, not what the environment claims."""
    if sys.platform == "win32":
        return os.getlogin()
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def source_date_epoch_ms(environ: Mapping[str, str] = os.environ) -> int | None:
    """SOURCE_DATE_EPOCH of reproducible builds, where it is set."""
    text = environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) <= 253_402_300_799):
        raise UsageError(
            f"SOURCE_DATE_EPOCH must be seconds since 1970, not `{text[:40]}`.", remedy="Correct or unset it."
        )
    return int(text) * 1000


def cache_folder(environ: Mapping[str, str] = os.environ) -> str | None:
    base = environ.get("XDG_CACHE_HOME", "")
    if base.startswith("/"):
        return f"{base}/kfm"
    home = environ.get("HOME", "")
    return f"{home}/.cache/kfm" if home.startswith("/") else None


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Variables that begin with KFM_ and mean nothing to us: most likely misspelt."""
    known = {*VARIABLES, *OTHER_VARIABLES}
    return sorted(name for name in environ if name.startswith("KFM_") and name not in known)


def _why(error: OSError | ValueError) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
