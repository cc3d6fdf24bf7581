"""Every part of a private cloud is killed while operations run: `make kill-libvirt`.

A round asks for one operation, kills a process at a random moment or just after the control
plane has written what it decided, starts it again, kills the next, and sees the operation to its
end. Then it is judged: nothing was done twice or not at all, no approval answered 200 is lost, no
incarnation has gone back, and nobody was left without an answer.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.cli.api_client import ApiClient
from forewarn.errors import ForewarnError
from tests.libvirt import guest_image, laboratory
from tests.libvirt.film import Film
from tests.libvirt.laboratory import Guest
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.libvirt.laboratory import Laboratory

WORKS = ("live-migration", "host-reboot", "redeploy", "eviction")
VICTIMS = ("service", "metadata h1", "metadata h2", "libvirtd h1", "libvirtd h2")
#: A kill comes after this many lines of the control plane's log at most: one for each effect.
LINES_MAX = 12
#: Or after this many looks, 10 ms each.
LOOKS_MAX = 800
#: A further kill of the round comes sooner, so that it meets the operation and what follows it.
NEXT_LOOKS_MAX = 150
#: Kills of one round, of several processes one after the other.
KILLS_A_ROUND = 4
#: Longest a round may take until its operation has ended, in seconds.
ROUND_S = 240
#: Times that people retry work which is stuck.
RETRIES_MAX = 5
#: Between two of them: a libvirtd that was killed takes seconds to be there again.
RETRY_S = 3


class KillRun:
    """Rounds on one cloud, which goes on from one to the next."""

    def __init__(
        self, lab: Laboratory, say: Callable[[str], None], seed: int, *, in_round: int = 1
    ) -> None:
        """Start nothing yet."""
        poller = guest_image.poller_image(lab.directory)
        guests = (
            Guest("web_0", 11, poller, "web", approves=True),
            Guest("batch_0", 12, poller, "batch", approves=True, spot=True),
        )
        self.film = Film(lab, lambda _: None, guests)
        self.lab = lab
        self.say = say
        self._in_round = in_round
        self.killed: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._api = ApiClient(self.film.server)
        #: Events that were told of -> who approved them.
        self._approved: dict[str, list[str]] = {}

    def play(self, kills: int) -> None:
        """Play rounds until there were this many kills."""
        with self.film.running():
            for number in itertools.count(1):
                self.round(number)
                if self.killed.total() >= kills:
                    break

    def round(self, number: int) -> None:
        """Play one round."""
        chance, film = self._chance, self.film
        cause, victim = chance.choice(WORKS), chance.choice(VICTIMS)
        vm = "batch_0" if cause == "eviction" else chance.choice(sorted(film.guests))
        host = self._host(vm)
        there = [name for name in film.guests if self._host(name) == host]
        boots = {name: film.marks(name, " up ") for name in film.guests}
        target = vm if cause in {"redeploy", "eviction"} else host
        begun_s = time.monotonic()
        work = self._ask(cause, target, "h2" if host == "h1" else "h1")
        self._kill(victim, lines=chance.randrange(LINES_MAX), looks=chance.randrange(LOOKS_MAX))
        victims = [victim, *chance.choices(VICTIMS, k=self._in_round - 1)]
        for each in victims[1:]:
            lines, looks = chance.randrange(LINES_MAX), chance.randrange(NEXT_LOOKS_MAX)
            self._kill(each, lines=lines, looks=looks)
        killed = ", ".join(victims)
        self.say(f"{number}: {work}, {cause} of {target}; killed: {killed}")
        retries = self._see_to_its_end(work)
        if cause == "host-reboot":
            boots.update((name, boots[name] + 1) for name in there)
        elif cause == "redeploy":
            boots[vm] += 1
        elif cause == "eviction":
            film.wait(lambda: not self._vms().get(vm), f"{vm} to be gone")
            self.lab.define(host, film.guests[vm])
            boots[vm] += 1
        self._judge(boots, work)
        took_s, more = time.monotonic() - begun_s, f", {retries} retries" if retries else ""
        self.say(f"   as it should be{more}; {took_s:.0f} s, {self.killed.total()} kills")

    # --- people ---------------------------------------------------------------------------

    def _ask(self, cause: str, target: str, destination: str) -> str:
        form: dict[str, Any] = {"cause": cause, "targets": [target]}
        if cause == "live-migration":
            form["destination"] = destination
        return str(self._api.post("/v1/operations", form)["operations"][0]["id"])

    def _see_to_its_end(self, work: str) -> int:
        """Wait for the end of work, and retry it where it is stuck; return how often."""
        retries, again_s = 0, 0.0

        def ended() -> bool:
            nonlocal retries, again_s
            with contextlib.suppress(ForewarnError):  # it is being started again
                found = self._api.get(f"/v1/operations/{work}")["operation"]
                stuck = found["state"] == "running" and found["reason"]
                if stuck and retries < RETRIES_MAX and time.monotonic() >= again_s:
                    self._api.post(f"/v1/operations/{work}/retry")
                    retries, again_s = retries + 1, time.monotonic() + RETRY_S
                return found["state"] not in {"planned", "announced", "running"}
            return False

        try:
            wait_until(ended, what=f"the end of {work}", limit_s=ROUND_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.film.logs()}") from error
        return retries

    def _vms(self) -> dict[str, Any]:
        """Return the VMs as the control plane has them; none while it is being started."""
        with contextlib.suppress(ForewarnError):
            found: dict[str, Any] = self._api.get("/v1/topology", format="json")["vms"]
            return found
        return {}

    def _host(self, vm: str) -> str:
        return str(self._vms()[vm]["host"])

    # --- kills ----------------------------------------------------------------------------

    def _kill(self, victim: str, *, lines: int, looks: int) -> None:
        """Kill a process after this many lines of the log or looks, and start it again."""
        name, _, host = victim.partition(" ")
        log = self.lab.control.log("service")
        before, count = _lines(log), itertools.count()
        wait_until(
            lambda: _lines(log) - before >= lines or next(count) >= looks,
            what="the moment",
            limit_s=ROUND_S,
        )
        with self.film.power:  # where a host is rebooted, its programs are killed anyway
            if name == "service":
                self.lab.control.kill_program(name)
                self.film.start_service()
            elif name == "metadata":
                self.lab.hosts[host].kill_program(name)
                self.film.start_node(host)
            else:
                self.lab.kill_libvirtd(host)
                self.lab.start_libvirtd(host)
        self.killed[victim] += 1

    # --- judgement ------------------------------------------------------------------------

    def _judge(self, boots: dict[str, int], work: str) -> None:
        film = self.film
        found = self._api.get(f"/v1/operations/{work}")
        assert found["operation"]["state"] == "succeeded", f"{found}\n{film.logs()}"
        for name, times in boots.items():
            film.wait(partial(self._is_up, name, times), f"{name} to have booted {times} times")
            film.goes_on(name)
            assert film.marks(name, " up ") == times, f"{name} {times}\n{film.logs()}"
            homes = [each.name for each in self.lab.hosts.values() if name in _domains(each)]
            assert len(homes) == 1, f"{name} is on {homes}\n{found}\n{film.logs()}"
        self._approved.update((each["id"], each["approved_by"]) for each in found["events"])
        for name in film.guests:
            for line in self.lab.console(name):
                _, approved, event = line.partition(" approved ")
                assert not approved or self._approved.get(event.strip()), line
        film.check()

    def _is_up(self, name: str, times: int) -> bool:
        return self.film.marks(name, " up ") >= times and name in self._vms()


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _domains(host: laboratory.Node) -> list[str]:
    return host.run("virsh", "list", "--all", "--name").split()


def main() -> int:
    """Play rounds for people."""
    parser = argparse.ArgumentParser(prog="make kill-libvirt ARGS=")
    parser.add_argument("--kills", type=int, default=300, help="(default: 300)")
    parser.add_argument("--quick", action="store_true", help="ten kills")
    parser.add_argument("--seed", type=int, default=1, help="(default: 1)")
    arguments = parser.parse_args()
    said = laboratory.missing()
    if said:
        print(said)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="forewarn-kills-") as directory,
        laboratory.laboratory_in(Path(directory) / "lab") as lab,
    ):
        say = partial(print, flush=True)
        run = KillRun(lab, say, arguments.seed, in_round=KILLS_A_ROUND)
        run.play(10 if arguments.quick else arguments.kills)
        print(f"{run.killed.total()} kills: {dict(run.killed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
