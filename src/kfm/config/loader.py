"""Loads a configuration: from a file and the environment (read nowhere else) to frozen settings."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from kfm import __version__
from kfm.config.state_folder import StateFolder
from kfm.model.errors import ConfigError, ConfigNotFound, KfmError, RoleMissing, SecretNotFound, UsageError
from kfm.model.roles import Role, decide, refusal_entry, who_could
from kfm.model.settings import Settings, TelemetrySettings, identified, with_declared_licences

if TYPE_CHECKING:
    from kfm.model.redaction import Discretion
    from kfm.model.roles import Identity, KnownPerson
    from kfm.ports import Clock


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
    "KFM_LIMITS_RUN_SECONDS": "limits.run_seconds",
    "KFM_LIMITS_STORE_CONNECTIONS": "limits.store_connections",
}
OTHER_VARIABLES = ("KFM_CONFIG", "KFM_TOKEN", "KFM_LOG_FORMAT")
COMPLETE_VARIABLE = "_KFM_COMPLETE"


class Loaded:
    """Settings, the file they came from, and where each value was said."""

    def __init__(
        self,
        settings: Settings,
        path: str,
        name: str,
        lines: dict[str, int],
        said: dict[str, str],
        data: bytes = b"",
        reread: Callable[[bytes], Settings] | None = None,
        *,
        is_file: bool = True,
        cache: str | None = None,
    ) -> None:
        self.written = settings  # as the file has it
        self.settings = identified(settings)
        self.is_file = is_file  # False: there is none, and the settings are the defaults
        self.path = path
        self.name = name
        self.folder = path.rpartition("/")[0] or "/"
        self.lines = lines
        self.data = data  # the file's bytes, which the settings were made of
        self.cache = cache  # the folder of what is remembered of files; None: nothing is
        self._said = said
        self._newest = (data, self.settings)
        self._reread = reread
        self._discretion: Discretion | None = None
        self._known: list[str] | None = None

    def current(self) -> Settings:
        """The settings as the file says now; a ConfigError that may pass, where it can't be used."""
        if self._reread is None or not _is_regular(self.path):
            return self.settings  # there is no file, or one that can be read once only
        try:
            data = _read(self.path)
            # By its bytes: two edits within one tick of a clock have the same time.
            if data != self._newest[0]:
                self._newest = (data, identified(self._reread(data)))
        except ConfigError as error:
            error.facts |= {"transient": True, "cause": "configuration"}
            raise
        return self._newest[1]

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
        """All secrets that this process knows, read when first asked for: most commands need none."""
        if self._known is None:
            from kfm.config.secrets import environment_secrets

            self._known = [*self.referenced_secrets(), *environment_secrets(os.environ)]
        return self._known

    def learn(self, secrets: Iterable[str]) -> None:
        """Values that references have from now on: redacted beside those that they had."""
        known = self.known_secrets()
        known += [secret for secret in secrets if secret not in known]
        for secret in known:
            self.discretion.learn(secret)

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
            for field in fields(self.written)
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
        from kfm.config.section_checks import known_people

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
    *,
    bare: bool = False,
) -> Loaded:
    """Read, shape and check a configuration; `overrides` are dotted fields from flags.

    `bare`: where no file is named and none is here, the defaults, with the state in this folder.
    """
    try:
        name = find(path, environ)
    except ConfigNotFound:
        if not bare:
            raise
        settings, said = _overridden(Settings(), overrides, environ)
        return Loaded(settings, os.path.abspath(NAMES[0]), NAMES[0], {}, said, is_file=False)
    absolute = os.path.abspath(name)
    data = _read(name)

    folder = cache_folder(environ)

    def reread(data: bytes) -> Settings:
        settings, _lines = _parsed(name, absolute, data, folder)
        return _overridden(settings, overrides, environ)[0]

    parsed, lines = _parsed(name, absolute, data, folder)
    settings, said = _overridden(parsed, overrides, environ)
    loaded = Loaded(settings, absolute, name, lines, said, data, reread, cache=folder)
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
        raise ConfigError.of_file(name, f"the file can't be read: {_why(error)}") from None
    if len(data) > CONFIG_BYTES_MAX:
        raise ConfigError.of_file(name, f"the file is larger than {CONFIG_BYTES_MAX:,} bytes")
    return data


def _parsed(name: str, absolute: str, data: bytes, folder: str | None) -> tuple[Settings, dict[str, int]]:

    entry = recall(folder, CachedConfig, absolute, data)
    if entry is not None:
        return entry.settings, entry.lines
    from kfm.config.checks import check
    from kfm.config.document import read_document, to_settings
    from kfm.config.source_defaults import apply_source_defaults

    document = read_document(name, data)
    apply_source_defaults(document)
    settings = to_settings(document)
    check(document, settings)
    settings = with_declared_licences(settings)
    remember(folder, CachedConfig(__version__, absolute, data, settings, document.lines))
    return settings, document.lines


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True  # reading it says why not


# --- overrides -----------------------------------------------------------------------


def _overridden(
    settings: Settings, overrides: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[Settings, dict[str, str]]:
    """The settings with what the environment and flags say, and where each of those was said."""
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
    return settings, said


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
    from kfm.model.quantities import did_you_mean

    if field not in VARIABLES.values():
        hint = did_you_mean(field, sorted(VARIABLES.values()))
        raise UsageError(f"{origin}: `{field}` can't be set from outside the file{hint}")
    group, _, leaf = field.rpartition(".")
    holder = getattr(settings, group) if group else settings
    kind = type(holder).__annotations__[leaf]
    try:
        value: Any = msgspec.convert(text, _TYPES[kind], strict=False)
        changed: Any = msgspec.structs.replace(holder, **{leaf: value})
    except msgspec.ValidationError:
        wanted = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{origin}: `{leaf}` must be {wanted}, not `{text[:40]}`") from None
    settings = msgspec.structs.replace(settings, **{group: changed}) if group else changed
    problem = value_problem(settings, field)
    if problem:
        raise ConfigError(f"{origin}: {problem}")
    return settings


_TYPES: dict[Any, type] = {str: str, str | None: str, int: int, float: float, float | None: float}


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
        from kfm.config.document import gathered

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

    return collector(settings, environ)


def openlineage(environ: Mapping[str, str] = os.environ) -> OpenLineage:
    """The collector of lineage events, as OpenLineage's own variables name it."""

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
    """The token of the caller, where people have tokens; also what callers of our own servers must show."""
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


ENTRY_BYTES_MAX = 8 * 1024 * 1024


class CachedFile(msgspec.Struct, frozen=True):
    """What was made of a file that was read, shaped and checked without complaint."""

    kfm_version: str
    path: str
    source: bytes  # all that it was made of


class CachedConfig(CachedFile, frozen=True):
    settings: Settings
    lines: dict[str, int]


Cached = TypeVar("Cached", bound=CachedFile)


def _place(folder: str, kind: type[CachedFile], path: str) -> str:
    # One entry a file, so that the cache does not grow with every edit.
    name = kind.__name__.removeprefix("Cached").lower()
    return f"{folder}/{name}-{crc32(path.encode('utf-8', 'surrogateescape')):08x}.json"


def recall(folder: str | None, kind: type[Cached], path: str, source: bytes) -> Cached | None:
    """The entry made from exactly these bytes by this release, or None."""
    if folder is None:
        return None
    try:
        handle = os.open(_place(folder, kind, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            facts = os.fstat(handle)
            if not _ours(facts) or facts.st_size > ENTRY_BYTES_MAX:
                return None
            data = os.read(handle, facts.st_size)
        finally:
            os.close(handle)
        entry = msgspec.json.decode(data, type=kind)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    same = entry.kfm_version == __version__ and entry.source == source and entry.path == path
    return entry if same else None


def remember(folder: str | None, entry: CachedFile) -> None:
    """Keep an entry; no cache is no failure."""
    if folder is None:
        return
    place = _place(folder, type(entry), entry.path)
    draft = f"{place}.{os.getpid()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not _ours(os.stat(folder)):
            return
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(handle, msgspec.json.encode(entry))
        finally:
            os.close(handle)
        os.rename(draft, place)
    except OSError:
        return


def _ours(facts: os.stat_result) -> bool:
    return facts.st_uid == os.getuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def require_role(loaded: Loaded, role: Role, what: str, clock: Clock) -> None:
    """Raise RoleMissing where people have roles and the caller lacks this one; the ledger records it.

    Reading without a token is open, and a refused reading leaves no record.
    """
    if not loaded.settings.people or (role == "read" and token() is None):
        return
    identity = loaded.identity()
    access = decide(identity, role, loaded.people(), what=f"`{what}`")
    if access.allowed:
        return
    if role != "read":
        # The refusal holds also where the ledger can't be written.
        with suppress(KfmError, OSError), closing(StateFolder.of(loaded, clock).open_ledger()) as store:
            store.append_governance([refusal_entry(identity, role, what, access.reason, store.now_ms())])
    raise RoleMissing(access.reason, remedy=who_could(access.others))


class Otlp(msgspec.Struct, frozen=True):
    """A collector of spans and metrics. Header values may be references."""

    endpoint: str
    headers: dict[str, str]
    service: str


def collector(settings: TelemetrySettings, environ: Mapping[str, str]) -> Otlp | None:
    """The collector that the environment or the file names; None without one, or if OpenTelemetry is off."""
    named = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    endpoint = named or settings.otlp
    if not endpoint or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    from urllib.parse import unquote  # late: only needed with a collector

    # Another collector than the file's: the file's credentials are not for it.
    headers = {} if named else dict(settings.headers)
    for pair in environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","):
        name, equals, value = pair.partition("=")
        if equals and name.strip():
            headers[unquote(name.strip())] = unquote(value.strip())
    return Otlp(endpoint, headers, environ.get("OTEL_SERVICE_NAME") or settings.service)


PREFIX = "OPENLINEAGE__TRANSPORT__"


class OpenLineage(msgspec.Struct, frozen=True):
    transport: dict[str, Any]  # empty: they name no collector that we could use
    disabled: bool = False
    ignored: str | None = None  # a kind of transport that is not ours


def transport(environ: Mapping[str, str]) -> OpenLineage:
    """OPENLINEAGE_URL, _ENDPOINT, _API_KEY and _DISABLED, and OPENLINEAGE__TRANSPORT__* above them."""
    found: dict[str, Any] = {}
    if environ.get("OPENLINEAGE_URL"):
        found["url"] = environ["OPENLINEAGE_URL"]
        if environ.get("OPENLINEAGE_ENDPOINT"):
            found["endpoint"] = environ["OPENLINEAGE_ENDPOINT"]
        if environ.get("OPENLINEAGE_API_KEY"):
            found["auth"] = {"type": "api_key", "apiKey": environ["OPENLINEAGE_API_KEY"]}
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        place, steps = found, name.removeprefix(PREFIX).lower().split("__")
        for step in steps[:-1]:
            inner = place.get(step)
            place[step] = place = dict(inner) if isinstance(inner, dict) else {}
        place[steps[-1]] = _json_or_text(environ[name])
    kind = found.pop("type", "http")
    if kind not in ("http", "noop"):
        return OpenLineage({}, ignored=str(kind))  # meant for another program of this machine
    off = kind == "noop" or environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true"
    return OpenLineage({} if off else found, off)


def _json_or_text(text: str) -> Any:
    """Values may be JSON, as OpenLineage's clients read them; anything else is the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
