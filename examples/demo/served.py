"""One process that starts updates for every reason, and what becomes of its promises when it is killed."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

from project import Project
from telling import DemoFailed, Teller

DAY = "2026-03-17/P1D"
WAIT_SECONDS_MAX = 30


class Served:
    def __init__(self, project: Project, teller: Teller) -> None:
        self.project = project
        self.teller = teller

    def asked_for(self) -> None:
        teller, project = self.teller, self.project
        teller.heading("One process with scheduler, webhooks, API and console")
        teller.say(
            "Until now every command was typed. `kfm serve` keeps the schedules of cron.yml, takes signed "
            "webhooks, and shows at a console what runs, waits and failed."
        )
        project.run("schedule", "list")
        # This process accepts and does not run, so that it can be killed in between.
        with project.in_background("serve", "--port", "0", "--no-runs", "--no-worker") as process:
            address = self._address(process)
            self._send(address)
            project.kill(process)
        (asked,) = project.ask("requests", "list", "--kind", "webhook")["requests"]
        teller.verify(
            "it was accepted, which means durable: the process is dead, and the request waits",
            (asked["state"], asked["run_id"]) == ("open", None),
        )
        with project.in_background("serve", "--port", "0", "--no-worker") as process:
            address = self._address(process)
            self._wait(lambda: self._webhooks()[0]["state"] == "done")
            self._send(address, expect=3)
            self._wait(lambda: len(self._instants()) >= 2)
            with urlopen(f"{address}/console/") as page:
                shown = page.status == 200 and "Content-Security-Policy" in page.headers
            process.send_signal(signal.SIGTERM)
            code = process.wait(WAIT_SECONDS_MAX)
        project.run("requests", "list", "--limit", "5")
        (asked,) = self._webhooks()
        teller.verify(
            "the next process ran it, once; who sent it again was told which run it was; "
            "the console was there, and the process ended when it was asked to",
            asked["outcome"] == "success" and shown and code == 0,
        )
        instants = self._instants()
        teller.verify(
            f"the schedule's {len(instants)} instants are each one request, and none is there twice",
            len(instants) == len({each["instant"] for each in instants}),
        )
        teller.say("Why it matters: no cron line, no shell loop, and a promise that survives its process.")

    def _send(self, address: str, expect: int = 0) -> None:
        words = ("--uuid", "demo-1", "--window", DAY, "--rationale", "gauge repaired")
        self.project.run(
            "webhook", "send", "streamflow", "--url", f"{address}/hooks/streamflow", *words, expect=expect
        )

    def _webhooks(self) -> list[Any]:
        found: list[Any] = self.project.ask("requests", "list", "--kind", "webhook")["requests"]
        return found

    def _instants(self) -> list[Any]:
        found: list[Any] = self.project.ask("requests", "list", "--schedule", "gauges-often")["requests"]
        return [each for each in found if each["state"] == "done"]

    def _address(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        self.teller.output(line.rstrip("\n"))
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        if found is None:
            raise DemoFailed("the service should be up")
        return found[0]

    def _wait(self, holds: Callable[[], bool]) -> None:
        ends = time.monotonic() + WAIT_SECONDS_MAX
        while not holds():
            if time.monotonic() > ends:
                raise DemoFailed("what was asked for should be done by now")
            time.sleep(0.1)
