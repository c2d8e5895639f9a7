"""The life of datasets in thirteen scenes, each of which is verified: `make demo`.

Every command is really run, in `examples/demo/.work`, against a server on this machine that misbehaves
on purpose. A scene that does not do what it claims ends the demo with exit code 1. Another folder than
`.work` may be given as the only argument.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from datetime import date
from pathlib import Path

import kansas
from announced import Announced, missing
from project import HERE, WORK, Project, alone, seen_from
from served import Served
from server import Fault, Heard, Provider, serving
from telling import DemoFailed, Teller

FIRST_DAY, NEXT_DAY = date(2026, 3, 14), date(2026, 3, 15)
FIRST, NEXT = f"{FIRST_DAY}/P1D", f"{NEXT_DAY}/P1D"
SILENT_SITE, BROKEN_SITE = "99000105", "99000202"
DATA_SOURCES = ("streamflow", "gauges", "counties", "rainfall")
EVERYTHING = tuple(word for source in DATA_SOURCES for word in ("--source", source))
CUT_AFTER, HANG_AFTER = 600_000, 700_000
HANG_SECONDS_MAX = 20


class Demo:
    def __init__(self, project: Project, provider: Provider, teller: Teller) -> None:
        self.project = project
        self.provider = provider
        self.teller = teller

    def heard(self, since: int) -> list[Heard]:
        return self.provider.heard[since:]

    def show_server(self, since: int) -> None:
        """What was remarkable about the server's answers."""
        told = [heard for heard in self.heard(since) if heard.odd]
        self.teller.aside("seen from the server:")
        self.teller.table([(heard.method, heard.target, str(heard.status), heard.note) for heard in told])

    # --- the scenes ------------------------------------------------------------------

    def first_update(self) -> None:
        teller, provider, project = self.teller, self.provider, self.project
        teller.heading("A first update, from a server that misbehaves")
        provider.silent_from[SILENT_SITE] = 18
        provider.misbehave("/streamflow.csv", Fault("busy", seconds=1))
        provider.misbehave("/api/gauges", Fault("slow", seconds=0.4))
        provider.misbehave("/rainfall.asc", Fault("cut", after=CUT_AFTER))
        project.run("run", *EVERYTHING, "--window", FIRST)
        self.show_server(0)
        heard = self.heard(0)
        resumed = [h for h in heard if h.status == 206]
        busy = [h for h in heard if h.status == 503]
        teller.verify(
            "the busy server was asked again, and the cut download went on near where it broke off",
            len(busy) == 1 and len(resumed) == 1,
        )
        grid = project.current("ks-rainfall") / "data/2026/03/2026-03-14-rain.asc"
        teller.verify(
            "the grid that was cut is published byte for byte as the server has it",
            grid.read_bytes() == kansas.rainfall(FIRST_DAY),
        )
        versions = {source: project.version(f"ks-{source}") for source in DATA_SOURCES}
        if set(versions.values()) != {1}:
            raise DemoFailed(f"every dataset should be at version 1: {versions}")
        teller.say("Why it matters: upstreams fail every day; no person had to notice, retry or clean up.")

    def unchanged(self) -> None:
        teller, project = self.teller, self.project
        teller.heading("The same again: unchanged")
        before, since = project.digest("published"), len(self.provider.heard)
        project.run("run", *EVERYTHING, "--window", FIRST)
        bodies = [h for h in self.heard(since) if h.method == "GET" and not h.target.startswith("/api/")]
        calls = project.ask("show", project.runs("rainfall")[0]["run_id"])["invocations"]
        if sorted(call["outcome"] for call in calls) != ["noop", "success"]:
            raise DemoFailed(f"the second call should be on record as a no-op: {calls}")
        teller.verify(
            "no file was downloaded and nothing in the published tree was touched",
            bodies == [] and project.digest("published") == before,
        )
        teller.say("Why it matters: schedules, webhooks and people may all ask; the work is done once.")

    def late_data(self) -> None:
        teller, project = self.teller, self.project
        teller.heading("Late data opens a revision")
        first = project.current("ks-streamflow")
        teller.say(f"Gauge {SILENT_SITE} had fallen silent at 18:00. Now its missing readings arrive.")
        self.provider.silent_from.clear()
        project.run("run", "--source", "streamflow", "--window", FIRST)
        newest, oldest = project.runs("streamflow")
        summary = "data/2026/03/2026-03-14-summary.csv"
        readings = [_readings(each / summary) for each in (first, project.current("ks-streamflow"))]
        teller.verify(
            f"the window has a revision {newest['revision']}: {readings[0]} readings of the gauge became "
            f"{readings[1]}; version 1 is kept",
            (oldest["revision"], newest["revision"], readings) == (0, 1, ["72", "96"])
            and project.version("ks-streamflow") == 2,
        )
        teller.say("Why it matters: late data is neither ignored nor does it silently replace what was read.")

    def broken_contract(self) -> None:
        teller, project = self.teller, self.project
        teller.heading("A broken contract is stopped at the gate")
        before, shown = project.digest("published"), project.current("ks-streamflow").name
        teller.say(f"The next day the logger of gauge {BROKEN_SITE} writes fill values, and a line twice.")
        self.provider.broken_on[NEXT_DAY] = BROKEN_SITE
        project.run("run", "--source", "streamflow", "--window", NEXT, expect=3)
        run = project.runs("streamflow")[0]
        if (run["status"], run["error_code"]) != ("failed", "KFM303"):
            raise DemoFailed(f"the run should have failed with KFM303: {run}")
        project.shell("readlink", "published/ks-streamflow/current")
        teller.verify(
            "readers still see version 2; no byte of the published tree has changed",
            project.digest("published") == before and project.current("ks-streamflow").name == shown,
        )
        teller.say("Why it matters: the check is made on the very bytes, before anybody can read them.")

    def plan_and_apply(self) -> None:
        teller, project = self.teller, self.project
        teller.heading("Look first, then apply exactly that")
        self.provider.broken_on.clear()
        teller.say("The provider has repaired the file.")
        before = project.digest("published", ".kfm")
        project.run("diff", "--source", "streamflow", "--window", NEXT, "--plan", "plan.jsonl")
        teller.verify(
            "the preview changed nothing: not the published tree, not kfm's own state",
            project.digest("published", ".kfm") == before,
        )
        header = json.loads((project.folder / "plan.jsonl").read_text().partition("\n")[0])
        project.run("run", "--plan", "plan.jsonl")
        run = project.runs("streamflow")[0]
        teller.verify(
            "what was promoted is the planned version, to the last byte",
            run["version_id"] == header["version_id"] and project.version("ks-streamflow") == 3,
        )
        teller.say("Why it matters: what was reviewed is what happens; had anything moved, it would refuse.")

    def killed(self) -> None:
        teller, project, provider = self.teller, self.project, self.provider
        teller.heading("Killed half-way: machines wait, a person goes on")
        before, since = project.digest("published"), len(provider.heard)
        provider.misbehave("/rainfall.asc", Fault("hang", after=HANG_AFTER))
        with project.in_background("run", "--source", "rainfall", "--window", NEXT) as process:
            if not provider.hanging.wait(HANG_SECONDS_MAX):
                raise DemoFailed("the run should have begun to download")
            code = project.kill(process)
        left = project.runs("rainfall")[0]
        teller.verify(
            "it died in the middle of a download: readers see nothing of it",
            (code, left["status"]) == (-signal.SIGKILL, "running") and project.digest("published") == before,
        )
        again = ("run", "--source", "rainfall", "--window", NEXT)
        teller.say("The next attempt has its time. A script, as this one, is told to wait for it:")
        project.run(*again, expect=5)
        teller.say("A person need not, and says why.")
        project.run(*again, "--now", "--rationale", "the power is back")
        self.show_server(since)
        after = project.runs("rainfall")[0]
        grid = project.current("ks-rainfall") / "data/2026/03/2026-03-15-rain.asc"
        teller.verify(
            "the same run, now its attempt 2, was finished; the file is whole",
            (after["run_id"], after["attempts"], after["status"]) == (left["run_id"], 2, "success")
            and grid.read_bytes() == kansas.rainfall(NEXT_DAY),
        )
        teller.say("Why it matters: no lock to break, nothing to repair, whenever the power goes.")

    def pipeline(self) -> None:
        teller, project = self.teller, self.project
        teller.heading("A pipeline: only what a change or a revert reaches runs again")
        run = ("pipeline", "run", "pipelines/march.py")
        project.run(*run)
        everything = project.ran("march")
        project.run(*run)
        nothing = project.ran("march")
        file = project.folder / "pipelines/march.py"
        teller.aside("the unit changes from cfs to m3/s in pipelines/march.py:")
        file.write_text(file.read_text().replace('{"unit": "cfs"}', '{"unit": "m3/s"}'))
        project.run(*run)
        reached = project.ran("march")
        teller.verify(
            "unchanged, nothing ran; after the change its node and the one that reads from it, no other",
            (len(everything), nothing, reached) == (3, [], ["march.flow", "march.page"]),
        )
        project.run("branch", "revert", "main", "--rationale", "the unit was not agreed on")
        project.run(*run)
        teller.verify(
            "the revert took back two results: exactly those two were made again",
            project.ran("march") == reached,
        )
        teller.say("Why it matters: no person keeps in mind what is stale, and nothing is made twice.")

    def governance(self) -> None:
        teller, project = self.teller, self.project
        teller.heading("Governance: a refusal, and a kill switch")
        since = len(self.provider.heard)
        project.run("run", "--source", "heritage", "--window", FIRST, expect=3)
        refused = project.ask("diff", "--source", "heritage", "--window", FIRST)["results"][0]
        deciding = [name for gate in refused["gates"] for name in gate["policy_ids"] if not gate["allowed"]]
        teller.verify(
            f"refused by the rule {', '.join(deciding)}; upstream was not even asked",
            deciding == ["care.restricted-needs-approval"]
            and self.heard(since) == []
            and not (project.published / "ks-heritage-sites").exists(),
        )
        hydrology = ("--domain", "hydrology", "--rationale")
        streamflow = ("run", "--source", "streamflow", "--window", NEXT)
        project.run("switch", "set", "stopped", *hydrology, "gauges are being recalibrated")
        project.run(*streamflow, expect=3)
        blocked = project.ask("status")["headline"]
        project.run("switch", "set", "running", *hydrology, "recalibration is done")
        project.run(*streamflow)
        teller.verify(
            "while the switch was thrown nothing of its domain ran; lifted, the same command does",
            blocked["state"] == "blocked" != project.ask("status")["headline"]["state"],
        )
        teller.say("Why it matters: who stopped what, when and why is on record, and so is who lifted it.")

    def evidence(self) -> None:
        teller, project = self.teller, self.project
        teller.heading("Evidence: what a stranger can check")
        killed = project.runs("rainfall")[0]["run_id"]
        project.run("lineage", "show", killed[:13])
        ends: dict[str, list[str]] = {}
        for line in (project.folder / ".kfm/lineage/openlineage.jsonl").read_text().splitlines():
            event = json.loads(line)
            ends.setdefault(event["run"]["runId"], []).append(event["eventType"])
        teller.verify(
            f"{len(ends)} attempts of runs and nodes: each began once and ended once, the killed one too",
            all(len(told) == 2 and told[0] == "START" != told[1] for told in ends.values())
            and any(told[1] == "ABORT" for told in ends.values()),
        )
        project.run("audit", "seal")
        project.run("audit", "anchor")
        project.run("audit", "verify")
        project.run("export", killed, "--to", "evidence")
        project.run("export", "--verify", "evidence")
        teller.aside("one date in evidence/prov.jsonld is changed:")
        prov = project.folder / "evidence/prov.jsonld"
        prov.write_bytes(prov.read_bytes().replace(b"2026-03-15", b"2026-03-16", 1))
        project.python("-I", "evidence/verify.py", "evidence", expect=1)
        teller.verify(
            "the ledger is a sound chain; a bundle with one changed date is found out, without kfm",
            project.ask("audit", "verify")["sound"],
        )
        teller.say("Why it matters: the record can be checked without trust, by you and by others.")

    def the_end(self) -> None:
        teller, project = self.teller, self.project
        teller.section("Where everything stands")
        project.run("status", "--all")
        collection = project.published / "ks-streamflow" / "current" / "collection.json"
        described = json.loads(collection.read_text())
        if (described["type"], described["id"]) != ("Collection", "ks-streamflow"):
            raise DemoFailed(f"{collection} should be a STAC collection")


def _readings(summary: Path) -> str:
    """How many readings of the gauge in question a summary counts."""
    lines = summary.read_text().splitlines()
    return next(line.split(",")[1] for line in lines if line.startswith(SILENT_SITE))


def what_next(project: Project, teller: Teller, address: str) -> None:
    """Commands that work as typed, from where the demo was started."""
    kfm, python = (" ".join(seen_from(word) for word in words) for words in (project.kfm, [sys.executable]))
    folder, config = seen_from(project.folder), seen_from(project.folder / "kfm.yml")
    readers = seen_from(project.published / "ks-streamflow" / "current")
    killed = project.runs("rainfall")[0]["run_id"][:13]
    server = f"{seen_from(HERE / 'server.py')} {address.rpartition(':')[2]}"
    teller.section("What readers see")
    for what, where in (
        ("files", "data/"),
        ("STAC collection", "collection.json"),
        ("DCAT record", "dcat.jsonld"),
        ("root of the version", "manifest.json"),
    ):
        teller.output(f"{what:20}{readers}/{where}")
    teller.section("What to try next")
    for why, command in (
        ("what happened to the run that was killed", f"{kfm} explain {killed} -c {config}"),
        ("what an error code means", f"{kfm} explain KFM303"),
        (
            "do the policies decide what they should?",
            f"{kfm} gate test -c {config} {folder}/policies/fixtures.yaml",
        ),
        ("begin a project of your own", f"{kfm} init ~/my-data"),
        ("the server again, for more days", f"{python} {server} &"),
        ("another day", f"{kfm} run -c {config} --source streamflow --window 2026-03-16/P1D"),
    ):
        teller.aside(f"# {why}")
        teller.typed(command)


def play(teller: Teller, folder: Path) -> None:
    begun = time.monotonic()
    if lacking := missing():
        raise DemoFailed(f"the last scenes need {', '.join(lacking)}; `make demo` installs what it needs")
    provider = Provider()
    with alone(folder), serving(provider) as address:
        project = Project(folder, address, teller)
        teller.line("kfm, in thirteen scenes", "bold")
        teller.output(f"project   {seen_from(folder)}, made anew each time; its kfm.yml is worth reading")
        teller.output(f"upstream  {address}, invented data from a server that misbehaves on purpose")
        teller.output(f"commands  are run in the project's folder; kfm is {seen_from(project.kfm[0])}")
        demo, announced = Demo(project, provider, teller), Announced(project, teller)
        for scene in (
            demo.first_update,
            demo.unchanged,
            demo.late_data,
            demo.broken_contract,
            demo.plan_and_apply,
            demo.killed,
            demo.pipeline,
            demo.governance,
            demo.evidence,
            Served(project, teller).asked_for,
            announced.taken_in,
            announced.mended,
            announced.searched,
        ):
            scene()
        demo.the_end()
        what_next(project, teller, address)
    teller.line()
    seconds = time.monotonic() - begun
    teller.line(
        f"All {teller.checks} claims were verified, in {seconds:.0f} s. The server is stopped.", "green"
    )


def main() -> int:
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    teller = Teller()
    try:
        play(teller, Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else WORK)
    except DemoFailed as failed:
        teller.line(f"   ✗ {failed}", "red", "bold")
        return 1
    except KeyboardInterrupt:
        teller.line("\nStopped; the server too.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
