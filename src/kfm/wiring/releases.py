"""What `kfm release` needs of the outside: the ledger, the names that may be told, a command that signs."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kfm import __version__
from kfm.config import Loaded, source_date_epoch_ms
from kfm.core.errors import SigningFailed, UsageError
from kfm.core.masking import MASK_KEY, hidden_names, mask
from kfm.core.settings import Settings
from kfm.ports import Ids, LedgerReader, PolicyEngine, Store
from kfm.release.attestation import Origin
from kfm.release.making import Made, Wanted, make
from kfm.release.names import checked_version
from kfm.release.verifying import Verified, verify
from kfm.telemetry.aggregates import Bounds, Names
from kfm.telemetry.public_names import PublicNames

EVERYTHING = Bounds()
FOLDER = "releases"  # beside the configuration
SIGN_SECONDS_MAX = 300
SIGNATURE_BYTES_MAX = 1024 * 1024
STDERR_SHOWN_CHARS = 300


class Surroundings(Protocol):
    """As much of the application as this needs."""

    loaded: Loaded
    settings: Settings
    ids: Ids
    ledger: LedgerReader
    store: Store | None

    @property
    def actor(self) -> str: ...
    @property
    def policies(self) -> PolicyEngine: ...


def make_release(
    app: Surroundings,
    version: str,
    *,
    to: str | None = None,
    bounds: Bounds = EVERYTHING,
    sign: str | None = None,
    replace: bool = False,
    rationale: str | None = None,
) -> Made:
    """Make releases/<version>/ from what the ledger holds."""
    assert app.store is not None, "a release is recorded"
    wanted = Wanted(
        version=checked_version(version),
        parent=os.path.abspath(to) if to else app.loaded.resolve(FOLDER),
        bounds=bounds,
        actor=app.actor,
        unique=app.ids.new(),
        epoch_ms=source_date_epoch_ms(),
        replace=replace,
        rationale=rationale and app.loaded.discretion.said(rationale),
    )
    origin = Origin(
        kfm_version=__version__,
        environment=app.settings.environment,
        policies=app.policies.bundle_id,
    )
    return make(wanted, app.ledger, app.store, _names(app), origin, _signer(sign) if sign else None)


def _names(app: Surroundings) -> Names:
    assert app.store is not None
    key = app.store.mark(MASK_KEY) or app.store.ensure_mark(MASK_KEY, app.ids.new() + app.ids.new())
    public = PublicNames(app.settings, app.store)
    return Names(
        hidden=lambda dataset_id: public(dataset_id) != dataset_id,
        mask=lambda name: mask(name, key),
        hidden_units=lambda dataset: public.of_units(dataset) != dataset,
        hidden_pipeline=hidden_names(app.settings.datasets) or (lambda _name: False),
    )


def _signer(command: str) -> Callable[[bytes], bytes]:
    try:
        words: Sequence[str] = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--sign can't be read: {error}.") from None
    if not words:
        raise UsageError("--sign names no command.")

    def sign(attestation: bytes) -> bytes:
        try:
            done = subprocess.run(
                words, input=attestation, capture_output=True, timeout=SIGN_SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            raise SigningFailed(f"`{words[0]}` did not end within {SIGN_SECONDS_MAX} s.") from None
        except OSError as error:
            raise SigningFailed(
                f"`{words[0]}` can't be run: {(error.strerror or str(error)).lower()}."
            ) from None
        if done.returncode != 0:
            said = " ".join(done.stderr.decode("utf-8", "replace").split())[:STDERR_SHOWN_CHARS]
            raise SigningFailed(f"`{words[0]}` ended with {done.returncode}{': ' + said if said else '.'}")
        if not 0 < len(done.stdout) <= SIGNATURE_BYTES_MAX:
            raise SigningFailed(f"`{words[0]}` printed {len(done.stdout)} bytes, which is no signature.")
        return done.stdout

    return sign


def verify_release(path: str) -> Verified:
    """Check a release's folder; neither configuration nor ledger is needed."""
    return verify(path, _problem)


def _problem(schema: str, document: Any) -> str | None:
    """What a document breaks of its schema."""
    from importlib.resources import files

    import jsonschema_rs
    import msgspec

    text = files("kfm").joinpath("contracts", "schemas", f"{schema}.schema.json").read_bytes()
    validator = jsonschema_rs.validator_for(msgspec.json.decode(text), validate_formats=True)
    for error in validator.iter_errors(document):
        place = "/".join(str(part) for part in error.instance_path)
        return f"{place or 'the document'}: {error.message}"[:STDERR_SHOWN_CHARS]
    return None
