"""The policy engine: Cedar files as one checked policy set, decisions, and licences that policies know."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kfm.model.errors import PolicyError
from kfm.model.gates import denied
from kfm.model.quantities import suggest
from kfm.model.records import GateResult
from kfm.model.settings import DatasetSettings, LicenceTerms

if TYPE_CHECKING:
    from kfm.policy.fixtures import FixtureResult


# A path, a folder or a glob; or a name and the text itself.
PolicySource = str | tuple[str, str]

GATES = ("care", "sovereignty", "licence", "policy")
SHIPPED = Path(__file__).parent.parent / "contracts" / "policies"

_FILE_BYTES_MAX = 1024 * 1024
_POLICIES_MAX = 1000
_LINES_SEARCHED_MAX = 200
CHANGES = (
    "rollback",
    "withdraw",
    "purge",
    "retire",
    "lift",
    "rename",
    "rewindow",
)  # of what is published, by a person
ACTIONS = ("run", "publish", "force", *CHANGES)
_TEXT_CONTEXT = ("rationale", "ticket")
_ENTITIES_KEPT_MAX = 256


class Policy(msgspec.Struct, frozen=True):
    """One policy with its annotations."""

    id: str
    gate: str
    effect: str
    message: str
    lift: str
    lift_command: str  # a template: {source}, {window} and {held} are filled in where they are known
    body: dict[str, Any]
    text: str = ""  # as it was written


class PolicyBundle(msgspec.Struct, frozen=True):
    """Every policy in force."""

    id: str  # sha256 over all texts
    policies: dict[str, Policy]
    policy_set: Any
    schema: Any
    change_set: Any  # for CHANGES: what forbids everything stops publishing, not removing


def read_files(sources: Sequence[PolicySource], folder: Path) -> list[tuple[str, str]]:
    """Name and text of each file that the sources mean, in a fixed order."""
    found: dict[str, str] = {}
    for pattern in sources:
        if isinstance(pattern, tuple):
            found[pattern[0]] = pattern[1]
            continue
        paths = _matching(pattern, folder)
        if not paths:
            raise PolicyError.of_file(pattern, f"there is no such file in {folder}")
        for path in paths:
            found[str(path)] = _text(path)
    return list(found.items())


def _matching(pattern: str, folder: Path) -> list[Path]:
    path = folder / pattern
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(path.glob("*.cedar"))
    try:
        if Path(pattern).is_absolute():
            root = Path(Path(pattern).anchor)
            return sorted(item for item in root.glob(str(Path(pattern).relative_to(root))) if item.is_file())
        return sorted(item for item in folder.glob(pattern) if item.is_file())
    except (ValueError, NotImplementedError) as error:
        raise PolicyError.of_file(pattern, str(error)) from None


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyError.of_file(path, str(error.strerror)) from None
    if len(data) > _FILE_BYTES_MAX:
        raise PolicyError.of_file(path, f"larger than {_FILE_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        line = data.count(b"\n", 0, len(data)) + 1
        raise PolicyError.at(path, line, "not UTF-8 text") from None


def shipped_files() -> list[tuple[str, str]]:
    return [(path.name, path.read_text("utf-8")) for path in sorted(SHIPPED.glob("*.cedar"))]


def build(user_files: Sequence[tuple[str, str]]) -> PolicyBundle:
    """The shipped policies and those of the user, parsed and checked against the schema."""
    import cedarpy

    schema_text = (SHIPPED / "kfm.cedarschema").read_text("utf-8")
    schema = cedarpy.Schema.from_str(schema_text)
    shipped = shipped_files()
    policies: dict[str, Policy] = {}
    for name, text in [*shipped, *user_files]:
        for line, statement in statements(text):
            policy = _policy(name, line, statement, schema)
            if policy.id in policies:
                raise PolicyError.at(name, line, f"there is already a policy {policy.id!r}")
            policies[policy.id] = policy
            if len(policies) > _POLICIES_MAX:
                raise PolicyError.at(name, line, f"more than {_POLICIES_MAX} policies")
    return PolicyBundle(
        id=_digest([("kfm.cedarschema", schema_text), *shipped, *user_files]),
        policies=policies,
        policy_set=_policy_set(policies.values()),
        schema=schema,
        change_set=_policy_set(
            one for one in policies.values() if one.effect == "permit" or _names_action(one)
        ),
    )


def _policy_set(policies: Iterable[Policy]) -> Any:
    import cedarpy

    bodies = {policy.id: policy.body for policy in policies}
    document = {"templates": {}, "staticPolicies": bodies, "templateLinks": []}
    return cedarpy.PolicySet.from_json_str(json.dumps(document))


def _names_action(policy: Policy) -> bool:
    return bool(policy.body.get("action", {}).get("op") != "All")


def _digest(files: Sequence[tuple[str, str]]) -> str:
    # Names are left out: where a policy file lies does not change what it says.
    digest = hashlib.sha256()
    for _name, text in files:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Each policy with the line on which it begins. Only a semicolon outside text and comments ends one."""
    start = position = 0
    while position < len(text):
        char = text[position]
        if char == '"':
            position = _string_end(text, position)
        elif text.startswith("//", position):
            position = text.find("\n", position)
            if position < 0:
                break
        elif char == ";":
            yield _placed(text, start, position + 1)
            start = position + 1
        position += 1
    rest = _placed(text, start, len(text))
    if rest[1]:
        yield rest


def _string_end(text: str, position: int) -> int:
    position += 1
    while position < len(text) and text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position


def _placed(text: str, start: int, end: int) -> tuple[int, str]:
    # Leading blanks and comments belong to no policy: the line is that of the first word.
    while start < end:
        if text[start].isspace():
            start += 1
        elif text.startswith("//", start):
            line_end = text.find("\n", start, end)
            start = end if line_end < 0 else line_end + 1
        else:
            break
    return text.count("\n", 0, start) + 1, text[start:end]


def _policy(name: str, line: int, statement: str, schema: Any) -> Policy:
    import cedarpy

    try:
        document = json.loads(cedarpy.policies_to_json_str(statement))
    except ValueError as error:
        raise PolicyError.at(name, line + _fault_offset(statement, str(error)), str(error)) from None
    if document["templates"]:
        raise PolicyError.at(name, line, "templates (?principal, ?resource) are not supported")
    bodies = list(document["staticPolicies"].values())
    if len(bodies) != 1:
        raise PolicyError.at(name, line, "a policy is expected")
    policy = _described(name, line, bodies[0])
    verdict = cedarpy.validate_policies(statement, schema)
    if not verdict.validation_passed:
        problem = str(verdict.errors[0].error).replace("for policy `policy0`, ", "")
        raise PolicyError.at(name, line, f"{policy.id}: {problem}")
    return msgspec.structs.replace(policy, text=statement.strip())


def _described(name: str, line: int, body: dict[str, Any]) -> Policy:
    notes: dict[str, str] = body.get("annotations") or {}
    policy_id = (notes.get("id") or "").strip()
    if not policy_id:
        raise PolicyError.at(name, line, 'the policy has no name; write @id("team.rule") before it')
    known = ("id", "gate", "message", "lift", "lift_command")
    for word in notes:
        close = suggest(word, known, similar_min=0.7)  # annotations of others are allowed
        if word not in known and close:
            raise PolicyError.at(name, line, f"{policy_id}: @{word} is unknown; did you mean @{close}?")
    gate = notes.get("gate") or "policy"
    if gate not in GATES:
        close = suggest(gate, GATES)
        hint = f"; did you mean {close!r}?" if close else f"; there are {', '.join(GATES)}"
        raise PolicyError.at(name, line, f"{policy_id}: there is no gate {gate!r}{hint}")
    return Policy(
        id=policy_id,
        gate=gate,
        effect=body["effect"],
        message=notes.get("message") or f"The policy {policy_id} forbids it.",
        lift=notes.get("lift") or "The maintainer of the policies can change it.",
        lift_command=notes.get("lift_command") or "",
        body=body,
    )


def _fault_offset(statement: str, problem: str) -> int:
    """How many lines into the statement the fault is: the first prefix that fails in the same way."""
    import cedarpy

    lines = statement.splitlines()
    for count in range(1, min(len(lines), _LINES_SEARCHED_MAX) + 1):
        try:
            cedarpy.policies_to_json_str("\n".join(lines[:count]))
        except ValueError as error:
            if str(error) == problem:
                return count - 1
    return 0


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
            if dataset.formerly:
                return self._decide_by_names(action, dataset, principal, context)
            return self._decide(action, dataset, principal, context)
        except UnicodeEncodeError:
            # Half a character can't be handed to Cedar: a fact that can't be told forbids.
            return _unevaluated("a name or a text is not Unicode")

    def _decide_by_names(
        self, action: str, dataset: DatasetSettings, principal: str, context: Mapping[str, Any]
    ) -> list[GateResult]:
        """A rule about any name of a renamed dataset is about the dataset: what one of them forbids is
        forbidden."""
        results: list[GateResult] = []
        for name in dataset.names:
            named = msgspec.structs.replace(dataset, id=name, formerly=())
            approvals = [name if one in dataset.names else one for one in context.get("approvals", ())]
            found = self._decide(action, named, principal, {**context, "approvals": approvals})
            results = [
                after if before.allowed else before
                for before, after in zip(results or found, found, strict=True)
            ]
        return results

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
        policy_set = bundle.change_set if action in CHANGES else bundle.policy_set
        answer = cedarpy.is_authorized(request, policy_set, self._entities_of(dataset), bundle.schema)
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
    known = {"trigger", "approvals", "halted", "is_dry_run", "named", "people", *_TEXT_CONTEXT}
    unknown = set(context) - known
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
    if "people" in context:
        built["people"] = bool(context["people"])
    for word in _TEXT_CONTEXT:
        value = context.get(word)
        # A rationale of blanks is none.
        if isinstance(value, str) and value.strip():
            built[word] = value.strip()
    return built


def _entities(dataset: DatasetSettings) -> list[dict[str, Any]]:
    rights = dataset.rights
    found = licence(rights.license, rights.terms) if rights else licence("undeclared")
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
        found = licence(dataset.rights.license, dataset.rights.terms)
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
    groups: tuple[str, ...]  # "open", "conditional", "unclassified", "closed", or none
    nearest: str | None = None  # the known licence whose name is most like it


GROUPS = ("open", "conditional", "unclassified")
# What the shipped policies make of a licence that the configuration declares.
TERM_GROUPS: dict[str, str] = {
    "open": "open",
    "attribution": "open",
    "share-alike": "open",
    "non-commercial": "conditional",
    "no-derivatives": "conditional",
    "closed": "closed",
}


@lru_cache(maxsize=1)
def _known() -> tuple[dict[str, str], dict[str, str]]:
    """(folded spelling → identifier, identifier → group)."""
    document = json.loads((SHIPPED / "licences.json").read_text("utf-8"))
    groups = {name: group for group in GROUPS for name in document[group]}
    spellings = {_folded(name): name for name in groups}
    spellings.update({_folded(alias): name for alias, name in document["aliases"].items()})
    return spellings, groups


def _folded(text: str) -> str:
    folded = " ".join(text.split()).casefold()
    return folded.replace("https://", "http://").removesuffix("legalcode").rstrip("/")


@lru_cache(maxsize=256)
def licence(text: str, terms: LicenceTerms | msgspec.UnsetType = msgspec.UNSET) -> Licence:
    """SPDX identifiers in any case, a few everyday names, the addresses of common licences, and what the
    configuration declares: by its terms."""
    if isinstance(terms, LicenceTerms):
        return Licence(text, (TERM_GROUPS[terms.terms],))
    spellings, groups = _known()
    name = spellings.get(_folded(text))
    if name is not None:
        return Licence(name, (groups[name],))
    by_folded = {_folded(identifier): identifier for identifier in groups}
    close = suggest(_folded(text), by_folded, similar_min=0.5)  # names of licences are abbreviated freely
    return Licence(text, (), by_folded[close] if close else None)
