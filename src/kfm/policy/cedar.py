"""The policy engine: Cedar, and the names of licences that policies know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kfm.model.errors import PolicyError
from kfm.model.gates import denied
from kfm.model.records import GateResult
from kfm.model.settings import DatasetSettings
from kfm.model.wording import suggest
from kfm.policy.bundle import GATES, SHIPPED, Policy, PolicySource, build, read_files

if TYPE_CHECKING:
    from kfm.policy.fixtures import FixtureResult


ACTIONS = ("run", "publish", "force")
_TEXT_CONTEXT = ("rationale", "ticket")
_ENTITIES_KEPT_MAX = 256


class CedarPolicies:
    """Shipped and own policies, parsed once. A policy may forbid more, never less: a forbid always wins."""

    def __init__(self, own: Sequence[PolicySource] = (), folder: str | Path = ".") -> None:
        """`own`: paths, folders and globs, from the configuration's folder; or pairs of name and text."""
        self._bundle = build(read_files(own, Path(folder)))
        self._entities: dict[bytes, Any] = {}

    @property
    def bundle_id(self) -> str:
        """SHA-256 of all policy texts: which policies were in force."""
        return self._bundle.id

    @property
    def policy_ids(self) -> tuple[str, ...]:
        return tuple(self._bundle.policies)

    @property
    def texts(self) -> dict[str, str]:
        """Policy id → the policy as it was written."""
        return {name: policy.text for name, policy in self._bundle.policies.items()}

    def decide(
        self, action: str, dataset: DatasetSettings, principal: str, context: Mapping[str, Any]
    ) -> list[GateResult]:
        """One result per gate: care, sovereignty, licence, policy.

        Context: `trigger`, `rationale`, `ticket`, `approvals` (ids of datasets
        whose release is approved), `halted`, `is_dry_run`; `named`: the source, window and held run
        that a rule's command is filled with. Anything else is a mistake.
        """
        if action not in ACTIONS:
            raise PolicyError(f"there is no action {action!r}; there are {', '.join(ACTIONS)}")
        try:
            return self._decide(action, dataset, principal, context)
        except UnicodeEncodeError:
            # Half a character can't be handed to Cedar: a fact that can't be told forbids.
            return _unevaluated("a name or a text is not Unicode")

    def _decide(
        self, action: str, dataset: DatasetSettings, principal: str, context: Mapping[str, Any]
    ) -> list[GateResult]:
        import cedarpy

        request = {
            "principal": {"type": "User", "id": principal},
            "action": {"type": "Action", "id": action},
            "resource": {"type": "Dataset", "id": dataset.id},
            "context": _context(context),
        }
        bundle = self._bundle
        answer = cedarpy.is_authorized(request, bundle.policy_set, self._entities_of(dataset), bundle.schema)
        reasons = sorted(answer.diagnostics.reasons)
        faults = [str(fault) for fault in answer.diagnostics.errors]
        if faults or (not answer.allowed and not reasons):
            # Cedar skips a policy that fails; here a rule that can't be evaluated forbids.
            return _unevaluated("; ".join(faults)[:300] or "no policy permits it")
        decisive = [bundle.policies[name] for name in reasons]
        if answer.allowed:
            return [_allowed(gate, decisive) for gate in GATES]
        named = context.get("named") or {}
        return [
            _for_gate(gate, [policy for policy in decisive if policy.gate == gate], dataset, named)
            for gate in GATES
        ]

    def evaluate_fixtures(self, path: str | Path) -> list[FixtureResult]:
        """Try every fixture of a YAML or JSON file; PolicyError, with the line, if it can't be read."""
        from kfm.policy.fixtures import evaluate_fixtures

        return evaluate_fixtures(self, Path(path))

    def _entities_of(self, dataset: DatasetSettings) -> Any:
        """Parsing the entities is half the cost of a decision, and datasets come back."""
        import cedarpy

        key = msgspec.json.encode(dataset)
        found = self._entities.get(key)
        if found is None:
            if len(self._entities) >= _ENTITIES_KEPT_MAX:
                self._entities.clear()
            found = cedarpy.Entities.from_json_str(json.dumps(_entities(dataset)))
            self._entities[key] = found
        return found


def _context(context: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(context) - {"trigger", "approvals", "halted", "is_dry_run", "named", *_TEXT_CONTEXT}
    if unknown:
        raise PolicyError(f"the context has no {', '.join(sorted(map(str, unknown)))}")
    approvals = context.get("approvals") or []
    if not isinstance(approvals, (list, tuple, set, frozenset)):
        raise PolicyError("approvals must be a list of dataset ids")
    built: dict[str, Any] = {
        "trigger": str(context.get("trigger") or "manual"),
        "isDryRun": bool(context.get("is_dry_run", False)),
        "halted": bool(context.get("halted", False)),
        "approvals": [{"__entity": {"type": "Dataset", "id": str(name)}} for name in approvals],
    }
    for word in _TEXT_CONTEXT:
        value = context.get(word)
        # A rationale of blanks is none.
        if isinstance(value, str) and value.strip():
            built[word] = value.strip()
    return built


def _entities(dataset: DatasetSettings) -> list[dict[str, Any]]:
    rights = dataset.rights
    found = licence(rights.license if rights else "undeclared")
    attributes: dict[str, Any] = {
        "domain": dataset.domain,
        "keywords": list(dataset.keywords),
        "license": {"__entity": {"type": "License", "id": found.id}},
        "care": {
            "label": rights.care.label if rights else "",
            "level": rights.care.level if rights else "undeclared",
        },
    }
    if rights and rights.local_contexts:
        attributes["localContexts"] = rights.local_contexts
    if rights and rights.sovereignty:
        consent: dict[str, Any] = {
            "authority": rights.sovereignty.authority,
            "consent": rights.sovereignty.consent,
        }
        if rights.sovereignty.agreement:
            consent["agreement"] = rights.sovereignty.agreement
        attributes["sovereignty"] = consent
    parents = [{"type": "LicenseGroup", "id": group} for group in found.groups]
    return [
        {"uid": {"type": "Dataset", "id": dataset.id}, "attrs": attributes, "parents": []},
        {"uid": {"type": "License", "id": found.id}, "attrs": {}, "parents": parents},
    ]


def _allowed(gate: str, permits: Sequence[Policy]) -> GateResult:
    ids = tuple(policy.id for policy in permits) if gate == "policy" else ()
    return GateResult(gate=gate, allowed=True, reason=f"No {gate} rule forbids it.", policy_ids=ids)


def _unevaluated(detail: str) -> list[GateResult]:
    cause = f"The policies could not be evaluated: {detail}."
    return [denied(gate, "policies-failed", cause) for gate in GATES]


def _for_gate(
    gate: str, forbids: Sequence[Policy], dataset: DatasetSettings, named: Mapping[str, str]
) -> GateResult:
    if not forbids:
        return _allowed(gate, ())
    first = forbids[0]
    cause = _stop(first.message)
    if gate == "licence" and dataset.rights is not None:
        found = licence(dataset.rights.license)
        if found.nearest is not None:
            cause += f" It says {found.id!r}; did you mean {found.nearest!r}?"
    if len(forbids) > 1:
        cause += f" Also forbidden by {', '.join(policy.id for policy in forbids[1:])}."
    command = _filled(first.lift_command, {"source": "ID", "window": "W", "held": "ID", **named})
    return denied(
        gate,
        "rule",
        cause,
        remedy=_stop(_filled(first.lift, {"command": command})),
        command=command or None,
        policy_ids=tuple(policy.id for policy in forbids),
    )


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Only what is known by name is filled in: a policy's text may hold any other brace."""
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    return template


def _stop(text: str) -> str:
    line = " ".join(text.split())
    return line if line.endswith((".", "!", "?")) else line + "."


class Licence(NamedTuple):
    """A licence as policies see it."""

    id: str
    groups: tuple[str, ...]  # "open", "conditional", or none
    nearest: str | None = None  # the known licence whose name is most like it


@lru_cache(maxsize=1)
def _known() -> tuple[dict[str, str], dict[str, str]]:
    """(folded spelling → identifier, identifier → group)."""
    document = json.loads((SHIPPED / "licences.json").read_text("utf-8"))
    groups = {name: group for group in ("open", "conditional") for name in document[group]}
    spellings = {_folded(name): name for name in groups}
    spellings.update({_folded(alias): name for alias, name in document["aliases"].items()})
    return spellings, groups


def _folded(text: str) -> str:
    folded = " ".join(text.split()).casefold()
    return folded.replace("https://", "http://").removesuffix("legalcode").rstrip("/")


@lru_cache(maxsize=256)
def licence(text: str) -> Licence:
    """SPDX identifiers in any case, a few everyday names, and the addresses of common licences."""
    spellings, groups = _known()
    name = spellings.get(_folded(text))
    if name is not None:
        return Licence(name, (groups[name],))
    by_folded = {_folded(identifier): identifier for identifier in groups}
    close = suggest(_folded(text), by_folded, similar_min=0.5)  # names of licences are abbreviated freely
    return Licence(text, (), by_folded[close] if close else None)
