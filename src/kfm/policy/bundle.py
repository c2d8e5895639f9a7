"""Policy bundle: Cedar files as one checked policy set. A fault names its file and line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kfm.model.errors import PolicyError
from kfm.model.wording import suggest

# A path, a folder or a glob; or a name and the text itself.
PolicySource = str | tuple[str, str]

GATES = ("care", "sovereignty", "licence", "policy")
SHIPPED = Path(__file__).parent.parent / "contracts" / "policies"

_FILE_BYTES_MAX = 1024 * 1024
_POLICIES_MAX = 1000
_LINES_SEARCHED_MAX = 200


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


def read_files(sources: Sequence[PolicySource], folder: Path) -> list[tuple[str, str]]:
    """Name and text of each file that the sources mean, in a fixed order."""
    found: dict[str, str] = {}
    for pattern in sources:
        if isinstance(pattern, tuple):
            found[pattern[0]] = pattern[1]
            continue
        paths = _matching(pattern, folder)
        if not paths:
            raise PolicyError(f"{pattern}: there is no such file in {folder}")
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
        raise PolicyError(f"{pattern}: {error}") from None


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}") from None
    if len(data) > _FILE_BYTES_MAX:
        raise PolicyError(f"{path}: larger than {_FILE_BYTES_MAX} bytes")
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
    document = {
        "templates": {},
        "staticPolicies": {policy.id: policy.body for policy in policies.values()},
        "templateLinks": [],
    }
    return PolicyBundle(
        id=_digest([("kfm.cedarschema", schema_text), *shipped, *user_files]),
        policies=policies,
        policy_set=cedarpy.PolicySet.from_json_str(json.dumps(document)),
        schema=schema,
    )


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
