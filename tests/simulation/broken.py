"""Patches that break the protocol. Each must be caught, or the simulation proves nothing.

A patch is a change of the production source text. The changed functions lend their code to the
originals for as long as the patch is applied, wherever those are referred to.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType, ModuleType
from typing import Any

from kfm.db.queries import queries
from tests.simulation.broken_evidence import EVIDENCE
from tests.simulation.broken_incidents import INCIDENTS
from tests.simulation.broken_retries import RETRIES
from tests.simulation.conditions import CRASHES, CUTS, QUIET, SHOWN, STALLS, Patch

PATCHES = (
    Patch(
        "a promotion does not compare the fence",
        "kfm.db.promotion",
        (
            ("if not ours:", "if False:"),
            (
                "fence=request.fence,\n        end_time_ms=now_ms,",
                "fence=lock.fence,\n        end_time_ms=now_ms,",
            ),
        ),
        chances=STALLS,
    ),
    Patch(
        "a takeover does not raise the fence",
        "kfm.db.admission",
        (
            (
                "one.seen.fence if one.seen else 0 for one in every_one)) + 1",
                "one.seen.fence if one.seen else 1 for one in every_one))",
            ),
        ),
        chances=STALLS,
    ),
    Patch(
        "a live lease is taken",
        "kfm.db.admission",
        (("if held.holder is not None and not leases.is_gone(held, now_ms, dead):", "if False:"),),
    ),
    Patch(
        "a promotion does not compare the policy epoch",
        "kfm.db.promotion",
        (("if governance.held_epoch(session) != request.policy_epoch:", "if False:"),),
        chances=STALLS,
    ),
    Patch(
        "a promotion leaves its run running",
        "kfm.db.promotion",
        (('"runs.succeed",', '"runs.by_id",'),),
    ),
    Patch(
        "the gates are not asked at promotion",
        "kfm.runs.gates",
        (
            (
                "return combine(results, force_request(subject))",
                "return GateDecision(allowed=True, results=())",
            ),
        ),
        last=True,
    ),
    Patch(
        "the contract is not checked",
        "kfm.runs.preparation",
        (("if not contracts and rows_min is None:", "if True:"),),
    ),
    Patch(
        "bytes are staged before the key is stored",
        "kfm.runs.executor",
        (
            (
                "            answer = admission.admit(self._subject)\n",
                "            found, kernel = self._discover().found, self._kernel\n"
                "            preparation.fetch_all(self._source(), found, kernel.objects, kernel.clock, "
                "kernel.guard, kernel.settings.limits, lambda *_: None, lambda: None)\n"
                "            answer = admission.admit(self._subject)\n",
            ),
        ),
    ),
    Patch(
        "late data counts as unchanged",
        "kfm.model.admission",
        (("    if facts.fingerprint != run.fingerprint:\n", "    if False:\n"),),
    ),
    Patch(
        "a projector shows the version that it had in hand",
        "kfm.publish.targets.folder",
        (
            (
                "        self._files.mkdir(ticket)\n",
                "        held = head()\n        self._files.mkdir(ticket)\n",
            ),
            ("            found = head()  # only now", "            found = held  # only now"),
            ("if shown is not None and shown.sequence >= promotion.sequence:", "if False:"),
        ),
        chances=SHOWN,
    ),
    Patch(
        "a projector does not remove the tickets of others",
        "kfm.publish.targets.folder",
        (("            self._kill_others(folder, ticket)\n", "            pass\n"),),
        chances=STALLS,
    ),
    Patch(
        "a version is built where readers look",
        "kfm.publish.targets.folder",
        (
            ("self._objects, building, linking=", "self._objects, final, linking="),
            ("builder.build(plan)\n", "builder.build(plan); return\n"),
        ),
        chances=CRASHES,
    ),
    Patch(
        "a bucket's pointer is put without a condition",
        "kfm.publish.targets.bucket_objects",
        (
            (
                "return self._bucket.put(self._root + key, data, if_match=etag, attributes=attributes)",
                "return self._bucket.put(self._root + key, data, attributes=attributes)",
            ),
        ),
        chances=SHOWN,
    ),
    Patch(
        "a target is recorded as up to date before it is",
        "kfm.runs.target_updates",
        (
            (
                "            sequence = self._target.project(name,",
                "            store, mine = self._kernel.store, self._dataset_id\n"
                "            store.raise_projected(mine, self._target.name, store.head(mine)[0].sequence)\n"
                "            sequence = self._target.project(name,",
            ),
        ),
        chances=CRASHES,
    ),
    Patch(
        "objects are not synced before they get their name",
        "kfm.objects.local",
        (("self._writer.fsync()", "None"),),
        chances=CUTS,
    ),
    Patch(
        "garbage is collected under running runs",
        "kfm.db.ledger",
        (("            if live:\n", "            if False:\n"),),
        also=(
            (
                "kfm.runs.gc",
                "return min(now_ms - grace_ms, oldest_ms) - CLOCK_MARGIN_MS",
                "return now_ms",
            ),
        ),
        chances=QUIET,
    ),
    Patch(
        "garbage is what the head does not need",
        "kfm.runs.gc",
        (("limit=min(keep, PROMOTIONS_MAX)", "limit=1"),),
        chances=QUIET,
    ),
    Patch(
        "a plan that drifted is applied",
        "kfm.runs.executor",
        (("        if drift:\n", "        if False:\n"),),
        chances=QUIET,
    ),
    Patch(
        "a force passes every gate",
        "kfm.model.gates",
        (
            (
                "return result.overridable and not result.halts and result.gate in OVERRIDABLE_GATES",
                "return True",
            ),
        ),
        chances=QUIET,
    ),
    Patch(
        "freezes are not asked",
        "kfm.runs.gates",
        (("freeze_gate(kernel.settings.freezes,", "freeze_gate((),"),),
        chances=QUIET,
    ),
    Patch(
        "a dry-run stages where runs do",
        "kfm.runs.preview",
        (("objects = kernel.scratch()", "objects = kernel.objects"),),
        chances=QUIET,
    ),
    Patch(
        "paths of what is not public are traced",
        "kfm.publish.publisher",
        (("if self._restricted and facts", "if False and facts"),),
        chances=QUIET,
    ),
    Patch(
        "a job's summary names what is restricted",
        "kfm.publish.targets.github_actions",
        (("hidden = header.rights.care.level in", "hidden = header.rights.care.level not in"),),
        chances=QUIET,
    ),
    Patch(
        "a breaker does not wait",
        "kfm.model.breaker",
        (
            (
                "(breaker.opened_at_ms or 0) + limits.cool_down_ms - now_ms",
                "(breaker.opened_at_ms or 0) - now_ms",
            ),
        ),
        chances=QUIET,
    ),
    Patch(
        "an old webhook passes as new",
        "kfm.model.webhook_signatures",
        (("return found if fresh.ok else fresh", "return found"),),
        chances=QUIET,
    ),
    Patch(
        "a retry goes past its budget",
        "kfm.model.retry",
        (("if now_ms + delay_ms >= budget_end_ms:", "if False:"),),
        chances=QUIET,
    ),
    Patch(
        "an object has as many ids as spellings",
        "kfm.model.units",
        (("{unquote(key)}", "{key}"),),
        chances=QUIET,
    ),
    Patch(
        "windows overlap where clocks change",
        "kfm.model.windows",
        (
            (
                "return start_ms, min(start_ms + duration.time_ms, day_end)",
                "return start_ms, start_ms + duration.time_ms",
            ),
        ),
        chances=QUIET,
    ),
    Patch(
        "values are read but not compared",
        "kfm.publish.contract.columns",
        (("if not test.admits(parsed):", "if False:"),),
        chances=QUIET,
    ),
    *EVIDENCE,
    *RETRIES,
    *INCIDENTS,
)


@contextmanager
def applied(patch: Patch) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(_changed(patch, patch.module, patch.changes))
        for name, old, new in patch.also:
            stack.enter_context(_changed(patch, name, ((old, new),)))
        for name, old, new in patch.sql:
            stack.enter_context(_said_otherwise(patch, name, old, new))
        yield


@contextmanager
def _said_otherwise(patch: Patch, name: str, old: str, new: str) -> Iterator[None]:
    statements = queries("sqlite")
    text = statements[name]
    assert old in text, f"{patch.name}: {name} no longer says {old!r}"
    statements[name] = text.replace(old, new)
    try:
        yield
    finally:
        statements[name] = text


@contextmanager
def _changed(patch: Patch, name: str, changes: tuple[tuple[str, str], ...]) -> Iterator[None]:
    module = importlib.import_module(name)
    text = inspect.getsource(module)
    for old, new in changes:
        assert old in text, f"{patch.name}: {name} no longer says {old!r}"
        if patch.last:
            before, _, after = text.rpartition(old)
            text = before + new + after
        else:
            text = text.replace(old, new)
    broken = ModuleType(name)
    broken.__file__ = module.__file__
    exec(compile(text, module.__file__ or name, "exec"), broken.__dict__)
    pairs = list(_functions(module, broken))
    originals = [(function, function.__code__) for function, _ in pairs]
    for function, changed in pairs:
        function.__code__ = changed.__code__
    try:
        yield
    finally:
        for function, code in originals:
            function.__code__ = code


def _functions(module: ModuleType, broken: ModuleType) -> Iterator[tuple[FunctionType, FunctionType]]:
    for name, value in vars(module).items():
        twin: Any = vars(broken).get(name)
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            yield value, twin
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for method_name, method in vars(value).items():
                method = getattr(method, "fget", method)
                other = vars(twin).get(method_name)
                other = getattr(other, "fget", other)
                both = isinstance(method, FunctionType) and isinstance(other, FunctionType)
                if both and method.__code__.co_freevars == other.__code__.co_freevars:
                    yield method, other
