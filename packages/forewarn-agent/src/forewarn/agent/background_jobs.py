"""Background jobs: separate processes that notify, ask other VMs, mark the node, and choose.

Jobs never delay a hook, a poll or an approval. The processes load TLS and HTTP, which saves memory
in the agent.
"""

from __future__ import annotations

import json
import os

from forewarn.agent.commands import own_command
from forewarn.agent.core.records import event_form
from forewarn.agent.core.values import PEER_WORDS, AnnounceIntent, PeersSeen
from forewarn.agent.hooks import NEVER_STARTED
from forewarn.agent.json_fields import FieldInvalid, number, words
from forewarn_base.errors import reason_of

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.child import Child
    from forewarn.agent.core.identity import Identity
    from forewarn.agent.core.values import AskPeersIntent, NotifyIntent
    from forewarn.agent.hooks import HookRoom
    from forewarn.agent.log import Log
    from forewarn.agent.settings import AgentSettings
    from forewarn_base.ids import Ids

JOBS_MAX = 500  # most waiting jobs; for a further job, the oldest is dropped and logged
JOB_MS = 60_000  # time after which a job is killed
LOOK_MS = 50
FIRST_CHOICE_MS = 300_000  # longest time until the rule looks first


class BackgroundJobs:
    """Jobs in one queue per purpose; the jobs of a queue run one after another."""

    def __init__(self, settings: AgentSettings, room: HookRoom, *, log: Log, ids: Ids) -> None:
        self._settings = settings
        self._ids = ids
        self._room = room
        self._log = log
        self._lanes: dict[str, list[dict[str, object]]] = {
            "notify": [],
            "peers": [],
            "node": [],
            "choose": [],
        }
        self._running: dict[str, tuple[Child, dict[str, object], int]] = {}
        self._node_ended: tuple[int, str] | None = None
        #: When the rule looks next; None: it waits for the VM's name.
        self._choose_ms: int | None = None
        #: Why the rule chose nothing when it last looked; empty: it chose, or nothing waits.
        self.choice_problem = ""

    def notify(self, intent: NotifyIntent, identity: Identity) -> None:
        """Send a notification to the configured receivers."""
        if self._settings.notify:
            form: dict[str, object] = {
                "action": intent.action,
                "level": intent.level,
                "text": intent.text,
                "name": identity.name,
                "event": event_form(intent.event),
                "settings": self._settings.notify,
            }
            self._add("notify", form)

    def coordinate(self, intent: AnnounceIntent | AskPeersIntent, identity: Identity) -> None:
        """Send an announcement or a question to the other VMs, if coordination is configured."""
        if self._settings.coordination is None:
            return
        form: dict[str, object] = {
            "name": identity.name,
            "event_id": intent.event.event_id,
            "settings": self._settings.coordination,
        }
        if isinstance(intent, AnnounceIntent):
            form |= {"what": "announce", "prepared": intent.prepared, "holds": intent.holds}
        else:
            form |= {"what": "ask", "others": list(intent.names)}
        self._add("peers", form)

    def mark_node(self, form: dict[str, object]) -> None:
        """Write the notice on the Kubernetes node; the caller waits for the end of each job."""
        self._add("node", form)

    def node_ended(self) -> tuple[int, str] | None:
        """Return, once, the exit status and the output of a `mark_node` job that has ended."""
        ended, self._node_ended = self._node_ended, None
        return ended

    def choose(self, identity: Identity, now_ms: int) -> None:
        """Look for declared maintenances that wait for a choice, at the configured interval.

        The first look comes at a random time, so that the agents of a fleet that starts do not ask
        at once. Source: T-2.
        """
        settings = self._settings.choose
        if not settings:
            return
        every_ms = int(number(settings, "interval_s", 0)) * 1000
        if self._choose_ms is None:
            delay_ms = min(every_ms, FIRST_CHOICE_MS)
            self._choose_ms = now_ms + 1 + int(self._ids.fraction("choose") * delay_ms)
        if 0 < self._choose_ms - now_ms <= every_ms:  # else it is due, or the clock was set back
            return
        self._choose_ms = now_ms + every_ms
        names = sorted(identity.names)
        self._add("choose", {"name": identity.name, "names": names, "settings": settings})

    def _chose(self, status: int, output: str) -> None:
        """Log what a rule has chosen, and once each problem."""
        problems = [output.strip().removesuffix(".")] if status else _lines(output, "problems")
        self.choice_problem = "; ".join(problems)
        if problems:
            text = f"The rule cannot choose: {self.choice_problem}."
            self._log.once("choose-failed", text, level="warning")
        elif self._log.clear("choose-failed"):
            self._log.say("choose-again", "The rule can choose again.")
        for each in [] if status else _lines(output, "chosen"):
            self._log.say("chosen", f"The rule chose a start of declared work: {each}.")

    def turn(self, now_ms: int) -> tuple[PeersSeen, ...]:
        """Finish ended jobs, stop late jobs, and begin waiting ones.

        Return the answers of the other VMs to questions that have ended.
        """
        answers = []
        for lane, (child, form, until_ms) in tuple(self._running.items()):
            status = child.poll()
            if status is None:
                if now_ms >= until_ms:
                    child.escalate()
                continue
            output = child.output()
            child.close()
            self._room.forget(f"side-{lane}")
            del self._running[lane]
            if lane == "node":
                self._node_ended = (status, output)
            elif lane == "choose":
                self._chose(status, output)
            elif status:
                self._log.say("side-failed", f"{lane} failed: {output}", level="warning")
            elif form.get("what") == "ask":
                answers.append(_peer_states(str(form["event_id"]), output))
        self._begin(now_ms)
        return tuple(answers)

    @property
    def waiting(self) -> int:
        """Number of jobs in the queues."""
        return sum(map(len, self._lanes.values()))

    @property
    def busy(self) -> bool:
        """Whether any job is waiting or running."""
        return bool(self._running) or self.waiting > 0

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when a job ends."""
        return tuple(child.pidfd for child, _, _ in self._running.values() if child.pidfd >= 0)

    def next_ms(self, now_ms: int) -> int | None:
        """Return when to check jobs even if no descriptor is ready; None: never."""
        times = [until_ms for _, _, until_ms in self._running.values()]
        if any(child.pidfd < 0 for child, _, _ in self._running.values()):
            times.append(now_ms + LOOK_MS)
        if any(jobs for lane, jobs in self._lanes.items() if lane not in self._running):
            times.append(now_ms)
        if self._choose_ms is not None:
            times.append(self._choose_ms)
        return min(times, default=None)

    def _add(self, lane: str, form: dict[str, object]) -> None:
        jobs = self._lanes[lane]
        if lane == "peers":  # drop waiting jobs, because the new job makes them outdated
            same = [one for one in jobs if _subject(one) == _subject(form)]
            for one in same:
                jobs.remove(one)
        jobs.append(form)
        if len(jobs) > JOBS_MAX:
            del jobs[0]
            self._log.once("side-dropped", f"{lane}: the oldest of {JOBS_MAX} jobs is dropped.")

    def _begin(self, now_ms: int) -> None:
        for lane, jobs in self._lanes.items():
            if not jobs or lane in self._running:
                continue
            form = jobs.pop(0)
            text = json.dumps(form).encode()
            command = own_command("do", lane)
            try:
                run = f"side-{lane}"
                child = self._room.start(command, run, stdin=text, env=dict(os.environ))
            except OSError as error:
                if lane == "node":
                    self._node_ended = (NEVER_STARTED, reason_of(error))
                else:
                    self._log.say("side-failed", f"{lane} failed: {error}", level="warning")
            else:
                self._running[lane] = (child, form, now_ms + JOB_MS)


def _lines(output: str, name: str) -> list[str]:
    """Return a list of texts of a job's output; empty if the output is not readable."""
    try:
        return words(json.loads(output), name)
    except (ValueError, AttributeError, FieldInvalid):
        return []


def _subject(form: dict[str, object]) -> tuple[object, object]:
    return form.get("what"), form.get("event_id")


def _peer_states(event_id: str, output: str) -> PeersSeen:
    """Parse a job's output: the answers of the other VMs, as names by state."""
    try:
        form = json.loads(output)
        prepared, unprepared, deciding = (tuple(words(form, word)) for word in PEER_WORDS)
    except (ValueError, AttributeError, FieldInvalid):
        return PeersSeen(event_id, ())
    return PeersSeen(event_id, prepared, unprepared=unprepared, deciding=deciding)
