"""Contracts: files that ship with kfm; JSON schemas and state machines (`states/*.json`) among them."""

from functools import cache
from typing import Any, Literal

import msgspec

from kfm.model.errors import IllegalTransition, SchemaViolation

_CONTRACTS = f"{__file__.rpartition('/model/')[0]}/contracts"


def contract(name: str) -> bytes:
    """One of the language-neutral contracts, by its path below `contracts`."""
    with open(f"{_CONTRACTS}/{name}", "rb") as file:
        return file.read()


def require_valid(schema: str, plain: object) -> None:
    """Raise unless the document matches the named schema."""
    problem = next(iter(_validator(schema).iter_errors(plain)), None)
    if problem is not None:
        where = "/".join(str(step) for step in problem.instance_path) or "the document"
        raise SchemaViolation(f"{schema}: {where}: {problem.message}")


@cache
def _validator(schema: str) -> Any:
    import jsonschema_rs  # imported late: start-up is measured

    return jsonschema_rs.validator_for(msgspec.json.decode(contract(f"schemas/{schema}.schema.json")))


MachineName = Literal["run", "node", "unit", "breaker", "invocation"]
MACHINES: tuple[MachineName, ...] = ("run", "node", "unit", "breaker", "invocation")


class Transition(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}
):
    """One allowed change. `source` is None where the record does not exist yet."""

    source: str | None
    target: str
    event: str
    note: str
    requirement: str


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    machine: str
    title: str
    states: tuple[str, ...]
    terminal: tuple[str, ...]
    transitions: tuple[Transition, ...]

    def allows(self, source: str | None, target: str, event: str | None = None) -> bool:
        return any(
            one.source == source and one.target == target and event in (None, one.event)
            for one in self.transitions
        )


@cache
def machine(name: MachineName) -> Machine:
    """The named machine; read once."""
    return msgspec.json.decode(contract(f"states/{name}.json"), type=Machine)


@cache
def _is_allowed(name: MachineName, source: str | None, target: str, event: str | None) -> bool:
    """A table never changes, and units ask by the thousand."""
    return machine(name).allows(source, target, event)


def check_transition(name: MachineName, source: str | None, target: str, event: str | None = None) -> None:
    """Raise IllegalTransition unless the table allows it (by this event, where one is named)."""
    if not _is_allowed(name, source, target, event):
        by = f" by {event}" if event else ""
        raise IllegalTransition(
            f"{name}: {source or 'nothing'} → {target}{by}.", machine=name, source=source, target=target
        )
