"""The last scenes: thousands of announced objects become a catalogue, whatever fails on the way."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import time
from collections import Counter
from importlib.util import find_spec

import weather
from project import Project
from telling import DemoFailed, Teller

DAMAGED, LOST, LATE = 100, 200, 50  # which file of the rain, which of the rain, which of the radar
TWICE_EVERY, CORRECTED_EVERY = 25, 40
SMALL_BATCH = 10  # so that there is time to kill it
KILL_AFTER = 300
WAIT_SECONDS_MAX = 60
MARIA = "a-token-that-only-maria-has-in-this-demo"
NEEDED = ("pystac_client", "starlette", "uvicorn")


def missing() -> list[str]:
    """What the last scene needs and this Python does not have."""
    return [name for name in NEEDED if find_spec(name) is None]


class Announced:
    def __init__(self, project: Project, teller: Teller) -> None:
        self.project = project
        self.teller = teller
        self.buckets = project.folder / "buckets"
        self.things = weather.everything()
        rain = [thing for thing in self.things if thing.bucket == weather.RAIN]
        self.damaged, self.lost = rain[DAMAGED], rain[LOST]
        self.late = [thing for thing in self.things if thing.bucket == weather.RADAR][LATE]
        self.bodies = weather.hostile(self.things[0])

    # --- the scenes ------------------------------------------------------------------

    def taken_in(self) -> None:
        teller, project = self.teller, self.project
        count = self._announce()
        teller.heading("Thousands of announcements, and a worker that is killed")
        teller.say(
            f"A day of weather: {len(self.things)} small files in four buckets, which are folders here, and "
            f"{count} announcements of them in another. Some come twice, some tell of a corrected file, "
            f"{len(self.bodies)} are hostile. One file is damaged, one is not there yet, and one message "
            "was lost."
        )
        with project.in_background("worker", "--batch", str(SMALL_BATCH)) as process:
            self._wait_for_items(KILL_AFTER)
            code = project.kill(process)
        held = len(project.ask("nodd", "units", "--status", "in_progress", "--limit", "1000")["units"])
        there = sum(self._items().values())
        teller.verify(
            f"it died in the middle of its work: {there} items are there, {held} units were in its hands",
            code == -signal.SIGKILL and KILL_AFTER <= there < len(self._data()) - SMALL_BATCH,
        )
        project.run("worker", "--until-idle")
        project.run("catalogue", "show")
        left_out = {self.damaged.uri, self.lost.uri, self.late.uri}
        wanted = Counter(_collection(thing) for thing in self._data() if thing.uri not in left_out)
        teller.verify(
            "every announced file that could be read is one item: none is missing, none is there twice",
            self._items() == wanted,
        )
        teller.say(
            "Why it matters: no count was kept by hand, and no clean-up was needed after the one that died."
        )

    def mended(self) -> None:
        teller, project = self.teller, self.project
        teller.heading("What could not be believed, was damaged, or never came")
        project.run("nodd", "dead", "list")
        dead = project.ask("nodd", "dead", "list")["dead"]
        teller.verify(
            f"{len(dead)} hostile messages are kept, each with what is wrong with it",
            len(dead) == len(self.bodies) and len({one["error_code"] for one in dead}) == len(dead),
        )
        project.run("nodd", "units", "--status", "quarantined")
        self._replay()
        teller.aside("the late file arrives, and is announced again; the message that was lost stays lost:")
        weather.put(self.buckets, self.late)
        weather.spool(project.folder / "spool", [weather.announcement(self.late, turn=1)])
        project.run("nodd", "reconcile", weather.RAIN, expect=1)
        why = ("--rationale", "a message was lost")
        project.run("nodd", "reconcile", weather.RAIN, "--open", *why)
        project.run("worker", "--until-idle")
        open_ones = [one for one in project.ask("nodd", "watermarks")["watermarks"] if one["open"]]
        teller.verify(
            "the bucket's listing gave away what no message told; nothing is left to do",
            open_ones == [] and self._items() == Counter(map(_collection, self._data())),
        )
        teller.say("Why it matters: queues lose messages and files are damaged; nothing of that is for ever.")

    def searched(self) -> None:
        teller, project = self.teller, self.project
        teller.heading("A catalogue that any STAC client searches")
        with project.in_background("catalogue", "serve", "--port", "0") as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            teller.output(line.rstrip("\n"))
            address = re.search(r"http://127\.0\.0\.1:\d+", line)
            if address is None:
                raise DemoFailed("the catalogue should be served")
            project.python_as("MARIA", MARIA, "search.py", address[0])
        found = json.loads((project.folder / "found.json").read_text())
        files = Counter(href for item in found for href in item["files"])
        data = [thing.uri for thing in self._data()]
        sidecars = len(self.things) - len(data)
        teller.verify(
            f"{len(data)} files of data are {len(data)} items; {sidecars} index files are each one more "
            "file of their item; nothing is there twice",
            len(found) == len({item["item"] for item in found}) == len(data)
            and files == Counter(thing.uri for thing in self.things)
            and sum(len(item["files"]) == 2 for item in found) == sidecars,
        )
        teller.say("Why it matters: the catalogue and the ledger are one database, so they never disagree.")

    def _replay(self) -> None:
        """The damaged file is sound again. Replaying quarantined units takes two persons."""
        teller, project = self.teller, self.project
        teller.aside("the provider mends the damaged file without a notice; maria may approve such things:")
        weather.put(self.buckets, self.damaged)
        config = project.folder / "kfm.yml"
        account = json.dumps(project.ask("whoami")["account"])
        mark = f"sha256:{hashlib.sha256(MARIA.encode()).hexdigest()}"
        config.write_text(
            f"{config.read_text()}\npeople:\n"
            f"  - {{subject: operator, roles: [read, operate], accounts: [{account}]}}\n"
            f"  - {{subject: maria, roles: [read, approve], tokens: ['{mark}']}}\n"
        )
        which = ("--dataset", "mrms", "--error-code", "GZIP_DAMAGED", "--mode", "backfill")
        project.run("replay", "dry-run", *which, "--selection-file", "replay.json")
        carry_out = ("replay", "run", "--selection-file", "replay.json", "--confirm")
        why = ("--rationale", "the file is mended")
        project.run(*carry_out, *why, expect=3)
        request = project.ask("approvals", "list")["requests"][0]["request_id"]
        project.run_as("MARIA", MARIA, "approvals", "approve", request, "--rationale", "I have looked at it")
        project.run(*carry_out, *why)
        teller.verify(
            "quarantined units come back as planned, after another person had approved that plan",
            project.ask("nodd", "units", "--status", "quarantined")["units"] == [],
        )

    # --- inside ----------------------------------------------------------------------

    def _announce(self) -> int:
        """Put the files in their buckets and the announcements in the spool; how many there are."""
        for thing in self.things:
            weather.put(self.buckets, thing)
        weather.put(self.buckets, self.damaged._replace(data=self.damaged.data[:40] + bytes(40)))
        (self.buckets / self.late.bucket / self.late.key).unlink()
        early = self.late._replace(data=self.late.data + b"\0")  # what was announced was never there
        told = [early if thing is self.late else thing for thing in self.things if thing is not self.lost]
        lines = [weather.announcement(thing) for thing in told]
        lines += lines[::TWICE_EVERY]
        scans = [thing for thing in told if thing.bucket == weather.GOES][::CORRECTED_EVERY]
        lines += [weather.announcement(scan._replace(data=scan.data + b"\0"), turn=1) for scan in scans]
        lines[LOST:LOST] = self.bodies
        return weather.spool(self.project.folder / "spool", lines)

    def _data(self) -> list[weather.Thing]:
        return [thing for thing in self.things if not thing.key.endswith(".idx")]

    def _items(self) -> Counter[str]:
        answer = self.project.ask("catalogue", "show")
        return Counter({one["id"]: one["kfm:items"] for one in answer["collections"]})

    def _wait_for_items(self, count: int) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while sum(self._items().values()) < count:
            if time.monotonic() > deadline:
                raise DemoFailed(f"the worker should have made {count} items by now")
            time.sleep(0.1)


def _collection(thing: weather.Thing) -> str:
    return {
        weather.GOES: "goes-abi",
        weather.RADAR: "nexrad-l2",
        weather.MODEL: "hrrr",
        weather.RAIN: "mrms",
    }[thing.bucket]
