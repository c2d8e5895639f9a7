"""Rules about what is kept for strangers: the audit chain, the seals in it, and bundles of a run."""

from __future__ import annotations

import io
import json
import random
import zipfile
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kfm.audit.chain import verify_seals
from kfm.audit.records import compare_records
from kfm.db.ledger_reader import LedgerReader
from kfm.evidence_bundle.bundle import export_run
from kfm.model import audit
from kfm.model.audit import from_details
from kfm.model.redaction import is_masked
from kfm.model.runs import ChainLink
from kfm.runs.kernel import Kernel
from tests.power import PowerCutFiles
from tests.simulation.judging import read, require
from tests.simulation.pipelines import SECRET

if TYPE_CHECKING:
    from tests.simulation.world import World

EVERYTHING = 100_000
EXPORTS = 0.15  # of the worlds
FORGERIES = 12


class ChainChecks:
    def __init__(self, world: World, ledger: LedgerReader) -> None:
        self._world = world
        self._ledger = ledger
        self._dice = random.Random(f"chain {world.seed}")  # what is tried here decides no other fate
        self._anchors: list[audit.Anchor] = []
        self._links: list[ChainLink] = []

    # --- at every commit -------------------------------------------------------------------

    def on_commit(self) -> None:
        """The chain only grows, link by link."""
        before = self._links
        fresh = self._ledger.chain(len(before))
        if not fresh:
            return
        previous, number = (before[-1].hash, before[-1].number) if before else (audit.ZEROS, 0)
        for link in fresh:
            require(link.number == number + 1, "the chain has no gap", number=link.number)
            same = audit.link(previous, link.number, link.entry) == link
            require(same, "a link is what its entry and the link before make it", number=link.number)
            previous, number = link.hash, link.number
        before += fresh
        head = self._ledger.chain_head()
        require(head == (number, previous), "the chain's head is its last link", head=head)
        if self._dice.random() < 0.1:
            self._anchors.append(self._anchor(fresh[-1]))

    def _anchor(self, link: ChainLink) -> audit.Anchor:
        return audit.Anchor(number=link.number, hash=link.hash, environment="sim", at="2026-09-21T00:00:00Z")

    # --- when everything is at rest ------------------------------------------------------------

    def seal(self, kernel: Kernel) -> None:
        """Everything that was posted can be vouched for."""
        for _ in range(100):
            if kernel.store.seal("sim", limit=self._dice.choice((7, 100))) is None:
                break
        seals = verify_seals(self._ledger, self._ledger.chain(0, EVERYTHING))
        require(seals.sound and seals.unsealed == 0, "every event is sealed as it was posted", seals=seals)
        if self._dice.random() < 0.3:
            self._forged_event()

    def _forged_event(self) -> None:
        """An event that was changed after it was sealed is found."""
        found = self._ledger.events_between(1, EVERYTHING, EVERYTHING)
        chosen = self._dice.choice(found)
        changed = replace(chosen, body=chosen.body.replace("START", "start").replace("COMPLETE", "FAIL"))
        if changed == chosen:
            return
        forged: Any = _Forged([changed if one.number == chosen.number else one for one in found])
        seals = verify_seals(forged, self._ledger.chain(0, EVERYTHING))
        require(not seals.sound, "a changed event breaks its seal", number=chosen.number)
        link = next(one for one in self._ledger.chain(0, EVERYTHING) if one.number == seals.broken_seal)
        seal = from_details("outbox", link.entry.details)
        holds = any(first <= chosen.number <= last for first, last in seal.members)
        require(holds, "and it is the seal that holds it", seal=seal)

    def at_the_end(self) -> None:
        links = self._ledger.chain(0, EVERYTHING)
        verdict = audit.verify(links, self._anchors, self._ledger.chain_head())
        require(verdict.sound and verdict.unchained == 0, "the chain verifies", finding=verdict.finding)
        require(links == self._links, "no link is lost", rows=verdict.rows)
        records = compare_records(self._ledger)
        require(records.sound, "records are what chain and history tell of them", records=records.findings)
        anchors = [*self._anchors, self._anchor(links[-1])]
        copies = [audit.copied(link, withhold=self._dice.random() < 0.3) for link in links]
        shown = audit.verify(copies, anchors)
        require(shown.sound, "a copy verifies without what is withheld", finding=shown.finding)
        require(shown.unanchored_since is None, "what was anchored is known", shown=shown)
        for _ in range(FORGERIES):
            forged = self._forged(links)
            if forged != links:
                found = audit.verify(forged, anchors)
                require(not found.sound, "a forged chain is found out", kept=len(forged), of=len(links))

    def _forged(self, links: list[ChainLink]) -> list[ChainLink]:
        dice, at = self._dice, self._dice.randrange(len(links))
        one, kind = links[at], self._dice.randrange(6)
        if kind == 0:
            return [*links[:at], replace(one, entry=replace(one.entry, actor="mallory")), *links[at + 1 :]]
        if kind == 1:
            return links[:at] + links[at + 1 :]
        if kind == 2:
            return links[:at]
        if kind == 3:
            other = dice.randrange(len(links))
            swapped = list(links)
            swapped[at], swapped[other] = swapped[other], swapped[at]
            return swapped
        if kind == 4:  # all that follows is written anew, as only the owner of the database can
            entries = [link.entry for link in links[at:]]
            entries[0] = replace(entries[0], rationale="as if")
            before = links[at - 1] if at else None
            return [*links[:at], *audit.chained(entries, before.hash if before else audit.ZEROS, at)]
        hashes = "".join("f" if char != "f" else "0" for char in one.hash)
        return [*links[:at], replace(one, hash=hashes), *links[at + 1 :]]

    # --- bundles ---------------------------------------------------------------------------------

    def export(self, kernel: Kernel) -> None:
        """What is handed to a stranger is whole, and tells no more than it may."""
        if self._dice.random() > EXPORTS:
            return
        runs = [run for run in self._world.checks.runs() if run.dataset_id != "orphan"]
        run = self._dice.choice(runs)
        kernel.files.make_dirs("/exports")
        export_run(
            kernel.ledger,
            kernel.files,
            kernel.settings,
            run.run_id,
            "/exports/run.zip",
            runs_folder=kernel.runs_folder,
        )
        files = PowerCutFiles(self._world.rng, self._world.root)
        with zipfile.ZipFile(io.BytesIO(read(files, "/exports/run.zip"))) as bundle:
            texts = {name: bundle.read(name) for name in bundle.namelist()}
        crate = next(data for name, data in texts.items() if name.endswith("ro-crate-metadata.json"))
        require("@graph" in json.loads(crate), "a bundle says what it holds")
        dataset = self._world.settings.dataset(run.dataset_id)
        for name, data in texts.items():
            require(SECRET.encode() not in data, "no secret is in a bundle", name=name)
            hidden = is_masked(dataset) and str(dataset.title).encode() in data
            require(not hidden, "a bundle does not name what is masked", name=name)


class _Forged:
    """A ledger with other events."""

    def __init__(self, messages: list[Any]) -> None:
        self._messages = messages

    def events_between(self, first: int, last: int, limit: int = 1000) -> list[Any]:
        return [one for one in self._messages if first <= one.number <= last][:limit]

    def events_posted(self, after: int = 0, limit: int = 2**62) -> int:
        return sum(one.number > after for one in self._messages)
