"""A private cloud of two libvirt hosts, run as its people would run it: `make demo-libvirt`.

Every scene asks through the command line, and looks at what guests and hypervisors say.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from libvirt_tests import guest_image, laboratory
from libvirt_tests.laboratory import Guest, Laboratory
from tests.e2e.certificates import make_certificates
from tests.e2e.cloud import FOREWARN, environment
from tests.waiting import wait_until

#: Longest a scene may take, in seconds; under emulation, on a busy machine.
SCENE_S = 120
#: How long a host is silent before it is reported lost.
LOST_AFTER_S = 2
#: Where the metadata nodes find the control plane.
FEED_PORT = 8471
#: How long work waits for a node that is away, in seconds.
SHOW_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True)
class Poll:
    """One answered poll of a guest."""

    incarnation: int
    events: tuple[str, ...]


class Film:
    """The cloud and its people."""

    def __init__(
        self, lab: Laboratory, say: Callable[[str], None], guests: tuple[Guest, ...] = ()
    ) -> None:
        """Start nothing yet; `say` prints what happens."""
        self.lab = lab
        self.say = say
        self.directory = lab.directory
        self._ended = threading.Event()
        #: Held while a host is off, or one of its programs is about to be killed.
        self.power = threading.RLock()
        self.guests = {each.name: each for each in guests or _guests(self.directory)}

    # --- the cloud ------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start the service, a node on each host, the follower and the guests."""
        self.say("Two hosts, h1 and h2, run libvirt. Four guests in two groups boot on them.")
        self._write_settings()
        power = threading.Thread(target=self._serve_power, daemon=True)
        power.start()
        try:
            self.start_service()
            for host in self.lab.hosts:
                self.start_node(host)
            config = str(self.directory / "libvirt.toml")
            follow = ("topology", "import", "libvirt", "--follow", "--config", config)
            self.lab.control.start("follower", *FOREWARN, *follow, "--server", self.server)
            for number, guest in enumerate(self.guests.values()):
                self.lab.define(("h1", "h2")[number % 2], guest)
            for name in self.guests:
                self.wait(partial(self.polls, name), f"{name} to poll")
            for name in (each.name for each in self.guests.values() if each.role == "agent"):
                self.wait(partial(self.is_known_to_itself, name), "the agent")
            yield
        finally:
            self._ended.set()
            power.join()

    @property
    def server(self) -> str:
        """Where the operator API is."""
        return f"unix:{self.directory}/operator.sock"

    def start_service(self) -> None:
        """Start the control plane on the control node."""
        config = str(self.directory / "forewarn.toml")
        (self.directory / "operator.sock").unlink(missing_ok=True)  # of one that was killed
        self.lab.control.start("service", *FOREWARN, "serve", "--config", config)
        self.wait((self.directory / "operator.sock").exists, "the operator API")

    def start_node(self, host: str) -> None:
        """Start the metadata node of a host."""
        config = str(self.directory / f"{host}.toml")
        self.lab.hosts[host].start("metadata", *FOREWARN, "node", "run", "--config", config)

    def _write_settings(self) -> None:
        directory = self.directory
        control = self.lab.control.address
        make_certificates(
            directory, control=f"IP:{control}", **{name: f"DNS:{name}" for name in self.lab.hosts}
        )
        for name, node in self.lab.hosts.items():
            (directory / f"{name}.toml").write_text(
                f'[node]\nfollow = "{control}:{FEED_PORT}"\nname = "{name}"\n'
                f'store = "{node.directory}/node"\nca = "{directory}/ca.pem"\n'
                f'certificate = "{directory}/{name}.pem"\nkey = "{directory}/{name}.key"\n'
            )
        (directory / "forewarn.toml").write_text(
            f'[listen]\nmetadata = ["unix:{directory}/metadata.sock"]\n'
            f'operator = "unix:{directory}/operator.sock"\n'
            f'[feed]\nlisten = "{control}:{FEED_PORT}"\nclient_ca = "{directory}/ca.pem"\n'
            f'certificate = "{directory}/control.pem"\nkey = "{directory}/control.key"\n'
            f"[lifecycle]\nshow_timeout_s = {SHOW_TIMEOUT_S}\n"
            "[operator]\nopen_on_loopback = true\n"
            f'[store]\nurl = "sqlite://{directory}/forewarn.db"\n'
            f'[drivers]\ndefault = "libvirt"\n'
            f'[drivers.libvirt]\nconfig = "{directory}/libvirt.toml"\n'
        )
        hosts = "".join(
            f'[hosts.{name}]\nuri = "{node.uri}"\nfault_domain = {n}\nupdate_domain = {n}\n'
            for n, (name, node) in enumerate(self.lab.hosts.items())
        )
        power = directory / "power"
        power.write_text(
            f'#!/bin/sh\nrm -f {directory}/"$1"-"$2".done\n: >{directory}/"$1"-"$2".asked\n'
            f'while [ ! -e {directory}/"$1"-"$2".done ]; do sleep 0.1; done\n'
        )
        power.chmod(0o755)
        (directory / "libvirt.toml").write_text(
            f'directory = "{directory}/driver"\nshutdown_timeout_s = 20\n'
            "storage_is_shared = true\n"
            f'reboot_command = ["{power}", "reboot", "{{host}}"]\n'
            f'fence_command = ["{power}", "off", "{{host}}"]\n'
            f"lost_after_s = {LOST_AFTER_S}\n{hosts}"
        )

    def _serve_power(self) -> None:
        """Do what a management board does: reboot a host, or make sure that it is off."""
        while not self._ended.wait(0.1):
            for asked in self.directory.glob("*.asked"):
                verb, _, host = asked.stem.partition("-")
                asked.unlink()
                with self.power:
                    self.lab.power_off(host)
                    if verb == "reboot":
                        self.lab.power_on(host)
                        self.start_node(host)
                asked.with_suffix(".done").touch()

    # --- its people -----------------------------------------------------------------------

    def forewarn(self, *words: str) -> str:
        """Run a command of the operator, and return what it prints."""
        done = subprocess.run(
            [*FOREWARN, *words, "--server", self.server],
            capture_output=True,
            text=True,
            timeout=SCENE_S,
            check=False,
            env=environment(),
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout

    def do(self, *words: str) -> None:
        """Ask for work, and follow it to its end."""
        self.say(f"$ forewarn {' '.join(words)}")
        self.forewarn(*words, "--wait", "--timeout", str(SCENE_S))

    def report(self, maintenance: str) -> dict[str, Any]:
        """Return the report of a maintenance."""
        report: dict[str, Any] = json.loads(
            self.forewarn("maintenance", "report", maintenance, "--json")
        )
        return report

    def maintain(self, *words: str) -> None:
        """Have a maintenance carried out, and follow it to its end."""
        self.say(f"$ forewarn maintenance create {' '.join(words)} --start")
        self.forewarn("maintenance", "create", *words, "--start")
        self.say(self.forewarn("maintenance", "show", "m-1"))
        listing = ("maintenance", "list", "--state", "done", "--json")
        self.wait(lambda: json.loads(self.forewarn(*listing))["maintenances"], "its end")

    def home(self, vm: str) -> str:
        """Where the topology says a VM is; empty if it knows none of that name."""
        topology = json.loads(self.forewarn("topology", "show", "--json"))
        return str(topology["vms"].get(vm, {}).get("host", ""))

    def wait(self, true: Callable[[], object], what: str) -> None:
        """Wait for something, and show the logs if it does not come."""
        try:
            wait_until(true, what=what, limit_s=SCENE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error

    def logs(self) -> str:
        """Return the ends of the programs' logs."""
        names = ("service", "follower")
        paths = [self.lab.control.log(name) for name in names]
        paths += [node.log("metadata") for node in self.lab.hosts.values()]
        paths += sorted(self.lab.consoles.iterdir())
        return "\n".join(f"-- {p}\n{p.read_text('utf-8', 'replace')[-2500:]}" for p in paths)

    # --- what guests say ------------------------------------------------------------------

    def is_known_to_itself(self, vm: str) -> bool:
        """Whether a guest's agent has learned which VM it runs in."""
        return f"This VM is {vm}" in self.lab.text(vm)

    def marks(self, vm: str, word: str) -> int:
        """How often a guest has said a word."""
        return sum(word in line for line in self.lab.console(vm))

    def polls(self, vm: str) -> list[Poll]:
        """The polls of a guest that were answered."""
        found = []
        for line in self.lab.console(vm):
            text = line.partition("{")[1] + line.partition("{")[2]
            if " poll " not in line or not text:
                continue
            with contextlib.suppress(ValueError):  # cut off by a loss of power
                document = json.loads(text)
                events = tuple(f"{e['EventType']} {e['EventStatus']}" for e in document["Events"])
                found.append(Poll(document["DocumentIncarnation"], events))
        return found

    def check_seen(self, event: str) -> None:
        """See that one of the guests that approve by hand was shown an event in this state."""
        polls = [*self.polls("batch_0"), *self.polls("batch_1")]
        assert any(event in poll.events for poll in polls), f"{event}\n{self.logs()}"

    def boots(self, vm: str, times: int) -> None:
        """Wait until a guest has booted this many times."""
        self.wait(lambda: self.marks(vm, " up ") == times, f"{vm} to boot")

    def goes_on(self, vm: str) -> None:
        """Wait until a guest polls once more, and is shown nothing any more."""
        before = len(self.polls(vm))
        self.wait(
            lambda: len(self.polls(vm)) > before and not self.polls(vm)[-1].events,
            f"{vm} to poll on",
        )

    # --- the scenes -----------------------------------------------------------------------

    def migration(self) -> None:
        """A reboot of a host that its guests have left by live migration."""
        self.say("\n1. h1 has to be rebooted. Its guests are to move to h2 while they run.")
        home, boots = self.home("web_0"), self.marks("web_0", " up ")
        assert home == "h1", home
        unknown = {vm: self.marks(vm, " 404 ") for vm in ("web_0", "batch_0")}
        self.maintain("h1", "--move-vms", "2m", "--duration", "1m")
        assert self.marks("web_0", "prepared") == 1, self.logs()
        self.wait(lambda: self.home("web_0") == "h2", "the topology to follow")
        self.wait(lambda: self.marks("web_0", "recovered") == 1, "the agent to recover")
        for vm in ("web_0", "batch_0"):
            self.goes_on(vm)
            assert self.marks(vm, " up ") == boots
            assert self.marks(vm, " 404 ") == unknown[vm], self.logs()
        self.check_seen("Freeze Scheduled")
        self.say("   web_0's agent prepared, approved and recovered; web_0 was never off,")
        self.say("   and no poll was refused: the node of h2 knew it before it was there.")
        [_, reboot] = json.loads(self.forewarn("operation", "list", "--all", "--json"))[
            "operations"
        ]
        assert (reboot["cause"], reboot["vms"]) == ("host-reboot", []), reboot
        self.say("   h1 rebooted once it was empty.")

    def reboot(self) -> None:
        """A reboot of a host with its guests."""
        self.say("\n2. h2 has to be rebooted, with all four guests on it.")
        boots = {vm: self.marks(vm, " up ") for vm in self.guests}
        create = ("maintenance", "create", "--cause", "host-reboot", "h2", "--start")
        self.say(f"$ forewarn {' '.join(create)}")
        [maintenance] = set(re.findall(r"\bm-\d+", self.forewarn(*create)))
        self.wait(
            lambda: self.report(maintenance)["maintenance"]["state"] == "done",
            "the maintenance to end",
        )
        for vm, before in boots.items():
            self.boots(vm, before + 1)
            self.goes_on(vm)
        self.wait(lambda: self.marks("web_0", "recovered") == 2, "the agent to recover")
        assert self.marks("web_0", "prepared") == 2
        self.check_seen("Reboot Scheduled")
        self.say(self.forewarn("maintenance", "report", maintenance))
        measured = [each["interruption_ms"] for each in self.report(maintenance)["outcomes"]]
        assert all(each is not None and each > 0 for each in measured), self.report(maintenance)
        self.say("   Every guest booted once; web_0's agent took up what it had prepared.")

    def redeploy(self) -> None:
        """A user has a VM moved to another host."""
        self.say("\n3. A user redeploys batch_0.")
        self.do("vm", "redeploy", "batch_0")
        self.check_seen("Redeploy Scheduled")
        self.wait(lambda: self.home("batch_0") == "h1", "the topology to follow")
        self.goes_on("batch_0")
        self.say("   batch_0 was shut down on h2 and started on h1.")

    def preemption(self) -> None:
        """A Spot VM is taken away."""
        self.say("\n4. Capacity is short: the Spot VM batch_1 is evicted.")
        self.do("vm", "evict", "batch_1")
        self.check_seen("Preempt Scheduled")
        self.wait(lambda: not self.home("batch_1"), "it to be gone")
        assert "batch_1" not in self.lab.hosts["h2"].run("virsh", "list", "--all")
        self.say("   batch_1 approved within its 30 s, was shut down, and is gone.")

    def loss(self) -> None:
        """A hypervisor dies."""
        self.say("\n5. h2 loses its power.")
        boots = self.marks("web_1", " up ")
        begun_s = time.monotonic()
        self.lab.power_off("h2")
        self.wait(lambda: self.home("web_1") == "h1", "web_1 to be brought up elsewhere")
        self.boots("web_1", boots + 1)
        self.goes_on("web_1")
        self.wait(lambda: "running" not in self.forewarn("operation"), "its end")
        took_s = time.monotonic() - begun_s
        self.say(f"   web_0 and web_1 run on h1 again after {took_s:.0f} s.")

    def spoofing(self) -> None:
        """A guest that took another's address all the time learned nothing."""
        self.say("\n6. All the while batch_0 has also asked from the address of web_0.")
        tries = [line for line in self.lab.console("batch_0") if " spoofed" in line]
        assert tries, self.logs()
        assert not [line for line in tries if "{" in line], tries
        self.say(f"   {len(tries)} requests, no answer: libvirt's clean-traffic filter drops them.")

    def check(self) -> None:
        """No guest ever saw an older document than before."""
        for vm in self.guests:
            incarnations = [poll.incarnation for poll in self.polls(vm)]
            assert incarnations == sorted(incarnations), (vm, incarnations)
        total = sum(len(self.polls(vm)) for vm in self.guests)
        self.say(f"\n{total} polls were answered, and no incarnation went back.")

    def play(self) -> None:
        """Play all scenes."""
        with self.running():
            self.migration()
            self.reboot()
            self.redeploy()
            self.preemption()
            self.loss()
            self.spoofing()
            self.check()


def in_laboratory(directory: Path, act: Callable[[Laboratory], None]) -> None:
    """Act in a laboratory; where a guest's kernel crashes in the first one, in another.

    Under emulation, on a busy machine, a kernel has been seen to crash just after a live migration.
    """
    with laboratory.laboratory_in(directory / "lab") as lab:
        try:
            act(lab)
        except AssertionError:
            if not any("Kernel panic" in lab.text(each.name) for each in lab.consoles.iterdir()):
                raise
        else:
            return
    with laboratory.laboratory_in(directory / "other") as lab:
        act(lab)


def _guests(directory: Path) -> tuple[Guest, ...]:
    poller = guest_image.poller_image(directory)
    agent = guest_image.agent_image(directory)
    assert agent is not None, "ask missing() first"
    return (
        Guest("web_0", 11, agent, "web", role="agent"),
        Guest("web_1", 12, poller, "web", approves=True),
        Guest("batch_0", 13, poller, "batch", approves=True, spoofs="10.77.0.11"),
        Guest("batch_1", 14, poller, "batch", approves=True, spot=True),
    )


def missing() -> str:
    """Say why the film cannot be played here; empty if it can."""
    if not Path("/usr/bin/python3.11").exists():
        return "The agent's guest needs Debian's python3.11-minimal: run tools/system."
    if shutil.which("openssl") is None:
        return "The certificates of the metadata nodes need openssl: run tools/system."
    return laboratory.missing()


def main() -> int:
    """Play it for people."""
    said = missing()
    if said:
        print(said)
        return 1
    begun_s = time.monotonic()
    say = partial(print, flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="forewarn-film-") as directory,
        laboratory.laboratory_in(Path(directory) / "lab") as lab,
    ):
        Film(lab, say).play()
    print(f"All of it took {time.monotonic() - begun_s:.0f} s on this machine.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
