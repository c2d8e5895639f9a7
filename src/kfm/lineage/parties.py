"""Who had a part in an activity, under which plan, and what it cost: the lesser things of a PROV document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from kfm.core import urns
from kfm.core.evidence import Energy, Retry
from kfm.core.records import GateResult, Invocation
from kfm.lineage.gathering import Heard
from kfm.lineage.linked import Thing, checksum, flag, is_sha256, known, ref, refs, whole

UNKNOWN = "unknown"
NO_POLICIES = "It is not on record which policies were in force."
NO_TEXTS = "The texts of these policies were not kept."
NO_VERSION = "It is not on record which version did the work."


def plan_urn(bundle_id: str | None) -> str:
    return urns.policies_urn(bundle_id or UNKNOWN)


def association(heard: Heard, actors: Sequence[str], approvers: Sequence[str]) -> Thing:
    """The runner with its plan; who asked; who answered for it."""
    runner = urns.software_urn(heard.producer)
    qualified = [
        {
            "@type": "prov:Association",
            "prov:agent": ref(runner),
            "prov:hadRole": ref("kfm:runner"),
            "prov:hadPlan": ref(plan_urn(heard.policies)),
        }
    ]
    people = [(name, "kfm:requester") for name in actors] + [(name, "kfm:approver") for name in approvers]
    for name, role in people:
        qualified.append(
            {
                "@type": "prov:Association",
                "prov:agent": ref(urns.agent_urn(name)),
                "prov:hadRole": ref(role),
            }
        )
    return {
        "prov:wasAssociatedWith": refs([runner, *(urns.agent_urn(name) for name, _ in people)]),
        "prov:qualifiedAssociation": qualified,
    }


def agents(
    calls: Iterable[Invocation], approvers: Iterable[str], producers: Iterable[str | None]
) -> list[Thing]:
    things: dict[str, Thing] = {}
    for version in [*producers] or [None]:
        name = urns.software_urn(version)
        things[name] = {
            "@id": name,
            "@type": ["prov:Agent", "prov:SoftwareAgent"],
            "rdfs:label": "kfm",
            **known(kfm_version=version, kfm_noEvidence=None if version else NO_VERSION),
        }
    for call in calls:
        thing = _agent(things, call.actor, "prov:Agent")
        if call.claimed_actor:
            claimed = _agent(things, call.claimed_actor, "prov:Agent")
            claimed["kfm:claimed"] = flag(True)  # nobody checked that it is so
            behalf = {one["@id"] for one in thing.get("prov:actedOnBehalfOf", ())} | {claimed["@id"]}
            thing["prov:actedOnBehalfOf"] = refs(behalf)
    for name in approvers:
        _agent(things, name, "prov:Person")
    return [things[name] for name in sorted(things)]


def _agent(things: dict[str, Thing], name: str, kind: str) -> Thing:
    """An actor may be a job: only who gave a reason for an exception is known to be a person."""
    urn = urns.agent_urn(name)
    thing = things.setdefault(urn, {"@id": urn, "@type": ["prov:Agent"], "rdfs:label": name})
    if kind not in thing["@type"]:
        thing["@type"].append(kind)
    return thing


def plans(
    bundles: Iterable[str | None], texts: Mapping[str, Mapping[str, str] | None], *, named: bool
) -> list[Thing]:
    """The policies in force, by the hash of all and the hash of each. Texts stay in the ledger."""
    things: dict[str, Thing] = {}
    for bundle in bundles:
        urn = plan_urn(bundle)
        kept = texts.get(bundle) if bundle else None
        gap = NO_POLICIES if bundle is None else NO_TEXTS if kept is None else None
        policies = {}
        for policy_id, text in (kept or {}).items() if named else ():
            name = urns.policy_urn(bundle or UNKNOWN, policy_id)
            policies[name] = {
                "@id": name,
                "@type": ["prov:Entity", "kfm:Policy"],
                "dcterms:identifier": policy_id,
                "dcterms:isPartOf": ref(urn),
                "spdx:checksum": checksum(sha256(text.encode("utf-8", "replace")).hexdigest()),
            }
        things[urn] = {
            "@id": urn,
            "@type": ["prov:Entity", "prov:Plan", "kfm:PolicyBundle"],
            **known(
                spdx_checksum=checksum(bundle) if bundle and is_sha256(bundle) else None,
                kfm_noEvidence=gap,
                kfm_policy=refs(policies),
            ),
        }
        things |= policies
    return [things[name] for name in sorted(things)]


def roles() -> list[Thing]:
    return [{"@id": f"kfm:{name}", "@type": "prov:Role"} for name in ("approver", "requester", "runner")]


def gate(result: GateResult) -> Thing:
    return {
        "@type": "kfm:GateResult",
        "kfm:gate": result.gate,
        "kfm:allowed": flag(result.allowed),
        "kfm:overridden": flag(result.overridden),
        "kfm:halts": flag(result.halts),
        **known(kfm_policyId=sorted(result.policy_ids)),
    }


def energy(figure: Energy) -> Thing:
    return {
        "@type": "kfm:Energy",
        "kfm:cpuMicroseconds": whole(figure.cpu_us),
        "kfm:microwattHours": whole(figure.energy_uwh),
        "kfm:co2Micrograms": whole(figure.co2_ug),
        "kfm:method": figure.method,
        "kfm:assumption": figure.assumption,
        **known(kfm_packageMicrowattHours=None if figure.package_uwh is None else whole(figure.package_uwh)),
    }


def validation(summary: Mapping[str, int]) -> Thing:
    return {
        "@type": "kfm:Validation",
        **{f"kfm:{name}": whole(summary.get(name, 0)) for name in ("checks", "passed", "failed")},
    }


def retry(one: Retry) -> Thing:
    return {
        "@type": "kfm:Retry",
        "kfm:call": whole(one.call),
        "kfm:try": whole(one.number),
        "kfm:delayMs": whole(one.delay_ms),
        "kfm:errorClass": one.error_class,
        "kfm:outcome": one.outcome,
    }
