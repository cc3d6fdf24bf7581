"""The runner: the agent's loop between the core, the service, the disk and the hooks.

Only the loop waits, so polls continue while hooks run. The loop writes the journal before beginning
the recorded actions.
"""

from __future__ import annotations

import socket

from forewarn.agent.background_jobs import BackgroundJobs
from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.identity import Identity, resource_name
from forewarn.agent.core.rules import HOLD_STATUS
from forewarn.agent.core.values import (
    AnnounceIntent,
    ApproveIntent,
    AskPeersIntent,
    HookIntent,
    NotifyIntent,
    Resumed,
    StopIntent,
    TimePassed,
)
from forewarn.agent.holdings import Holdings
from forewarn.agent.http_exchange import DescriptorPoll
from forewarn.agent.journal import JournalLost, boot_id
from forewarn.agent.json_fields import FieldInvalid
from forewarn.agent.metrics import Metrics
from forewarn.agent.operator_requests import OperatorRequests
from forewarn.agent.poller import Poller
from forewarn.agent.sdk.dialogue import CLOCKS_DIFFER_MS, Dialogue
from forewarn.agent.sdk.discovery import endpoints

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.child_processes import ChildProcesses
    from forewarn.agent.core.values import HookEnded, Intent, Stimulus
    from forewarn.agent.inhibitor import Inhibitor
    from forewarn.agent.log import Log
    from forewarn.agent.node_conditions import NodeConditions
    from forewarn.agent.settings import AgentSettings
    from forewarn_base.clock import Clock
    from forewarn_base.ids import Ids

CLOCK_OFF_MS_MAX = 1000  # differences above this are changes of the clock or pauses of the VM
HEED_MS = 1000  # interval of checks for operators' requests
AWAITED = "waiting for the service's first answer"
WRITE_RETRY_MS = 1000  # interval of attempts to write an unwritable journal


class Runner:
    """A running agent."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        clock: Clock,
        ids: Ids,
        log: Log,
        holdings: Holdings | None = None,
    ) -> None:
        """Create the runner, and open resources; send no requests yet.

        Raises:
            CallerError: another agent uses the state directory, or other users can write to it.
            JournalLost: the state directory is unusable.
            OSError: the status endpoint cannot be opened.
        """
        self.settings = settings
        self.clock = clock
        self.log = log
        self.metrics = Metrics()
        self.core: AgentCore | None = None
        self.identity = Identity(socket.gethostname())
        self._holdings = holdings or Holdings(settings)
        self._journal = self._holdings.journal
        self._status = self._holdings.status
        self._jobs = self._holdings.jobs
        self._signals = self._holdings.signals
        self._readiness = self._holdings.readiness
        self._state: dict[str, object] | None = None
        self._awaits = False
        dialogue = Dialogue(
            endpoints(settings.endpoint), api_version=settings.api_version, wait_s=settings.wait_s
        )
        self.contact = Poller(dialogue, ids, interval_s=settings.interval_s)
        self.contact.asks_name = not settings.name
        self._children: ChildProcesses | None = None
        self._side = BackgroundJobs(settings, self._holdings.room, log=log, ids=ids)
        self._inhibitor: Inhibitor | None = None
        self._node: NodeConditions | None = None
        self._intents: list[Intent] = []
        self._written = 0
        self._write_ms = 0
        self._alive_ms = 0
        self._heed_ms = 0
        self._requests = OperatorRequests(settings.state_dir)
        #: Whether to start again, with the current configuration and clock.
        self.again = False

    @property
    def choice_problem(self) -> str:
        """Why the rule of `[choose]` chose nothing when it last looked; empty: no problem."""
        return self._side.choice_problem

    def run(self) -> bool:
        """Follow the events until SIGTERM or SIGINT; return whether the agent must start again."""
        signals = self._signals
        signals.listen()
        if self.settings.inhibit_shutdown:
            from forewarn.agent.inhibitor import Inhibitor  # noqa: PLC0415  only where it is wanted

            self._inhibitor = Inhibitor(self.log)
        if self.settings.kubernetes.get("conditions"):
            from forewarn.agent.node_conditions import NodeConditions  # noqa: PLC0415  the same

            self._node = NodeConditions(self.settings.kubernetes)
        self.log.say("agent-started", f"The agent starts and polls {self.contact.endpoint}.")
        try:
            while not (signals.stopping or signals.reloading or self.again):
                self.turn()
        except BaseException:
            self._release()
            raise
        if not signals.stopping:  # from now on, the next runner handles stop requests
            self._release()
            return True
        self._readiness.stopping()
        sentence = "The agent stops. The next start takes over the running hooks."
        self.log.say("agent-stopped", sentence)
        self.close()
        return False

    def turn(self) -> None:
        """Execute due intents, and wait for the next stimulus."""
        now_ms = self.clock.now_ms()
        self._step_core(self.contact.begin(now_ms))
        if not self._awaits:
            self._await()
        self._attend(now_ms)
        self._wait(now_ms)
        now_ms = self.clock.now_ms()
        self._step_core(self.contact.expire(now_ms))
        if self.core is None:
            self._identify()
        else:
            self._collect(now_ms)
            deadline_ms = self.core.next_deadline()
            if deadline_ms is not None and now_ms >= deadline_ms:
                self._step_core((TimePassed(),))
        self._flush(now_ms)
        if self._inhibitor is not None and self.core is not None:
            self._inhibitor.hold(wanted=bool(self.core.running()))
        self._report(now_ms)

    def close(self) -> None:
        """Release all resources; leave the hooks running."""
        self._release()
        self._holdings.close()

    def _release(self) -> None:
        """Release the resources that the next runner does not reuse."""
        for line in (self.contact.poll_line, self.contact.approve_line):
            line.close()
        if self._inhibitor is not None:
            self._inhibitor.close()

    # ---- begin ---------------------------------------------------------------------------------

    def _await(self) -> None:
        """Read the journal, and report readiness without waiting for the service's first answer."""
        self._awaits = True
        self._state = self._journal.read()
        self._readiness.status(AWAITED)
        self._readiness.ready()

    def _identify(self) -> None:
        """Create the core once the settings or the instance metadata give this VM's name."""
        settings = self.settings
        host = socket.gethostname()
        name = settings.name or self.contact.name
        if not name:
            if self.contact.asks_name:
                return
            name = host.split(".", 1)[0]
            text = (
                f"The service returned no name for this VM; the agent uses the host name, {name}."
            )
            self.log.say("name-guessed", text)
        aliases = list(settings.aliases)
        if settings.scale_set:
            try:
                aliases.append(resource_name(host, settings.scale_set))
            except ValueError as error:
                text = f"This VM has no resource name in scale set {settings.scale_set}: {error}."
                self.log.say("name-unfit", text, level="warning")
        self.identity = Identity(name, tuple(aliases))
        state, self._state = self._state, None
        self._children = self._holdings.calls(self.identity, settings)
        reason = "unreadable"
        try:
            self.core = AgentCore(self.identity, settings.rules, journal=state)
        except (
            FieldInvalid
        ) as error:  # the journal is complete, but has the format of another release
            reason = f"written by another release ({error})"
            state = None
            self._journal.put_aside()
            self.core = AgentCore(self.identity, settings.rules)
        if self._journal.corrupt:
            text = f"The journal was {reason} and is renamed to {self._journal.corrupt}."
            self.log.say("journal-corrupt", text, level="error")
        self._journal.make_room()
        processes = self._children.adopt(self.core.running())
        self.log.say("named", f"This VM is {name}.", name=name)
        if state is not None:
            before = self._journal.boot_id
            rebooted = bool(before) and before != boot_id()
            self._step_core((Resumed(processes, rebooted=rebooted),))

    # ---- the core and its intents --------------------------------------------------------------

    def _step_core(self, stimuli: tuple[Stimulus, ...]) -> None:
        for stimulus in stimuli:
            if self.core is None:
                self.contact.poll_soon()  # the document arrived before the name
                continue
            now_ms = self.clock.now_ms()
            self._intents += self.core.step(stimulus, now_ms)
            if self.core.doubts:
                self.contact.poll_soon()
            self._flush(now_ms)

    def _flush(self, now_ms: int) -> None:
        """Write changes to the journal, then execute the intents; without the journal, wait."""
        if self.core is None or now_ms < self._write_ms:
            return
        if self.core.generation != self._written:
            generation = self.core.generation
            try:
                self._journal.write(self.core.journal())
            except JournalLost as error:
                self._write_ms = now_ms + WRITE_RETRY_MS
                self.metrics.failed("journal")
                self.log.once("journal-lost", f"{error} {error.advice_text()}", level="error")
                return
            self._written = generation
            self.log.clear("journal-lost")
        intents, self._intents = self._intents, []
        for intent in intents:
            self._do(intent, now_ms)

    def _do(self, intent: Intent, now_ms: int) -> None:
        assert self._children is not None
        if isinstance(intent, HookIntent):
            self.metrics.began(intent, now_ms)
            self.log.say(
                "hook-begun",
                f"{intent.phase} {intent.step.name} begins.",
                event=intent.event.event_id,
                run=intent.run,
            )
            self._children.start(intent, ahead_ms=self.clock.off_ms())
        elif isinstance(intent, StopIntent):
            self._children.stop(intent.key, intent.reason, now_ms=now_ms)
        elif isinstance(intent, ApproveIntent):
            self.contact.approve(intent.event.event_id)
        elif isinstance(intent, NotifyIntent):
            self.metrics.notified(intent, now_ms)
            self.log.say(
                intent.action, intent.text, level=intent.level, event=intent.event.event_id
            )
            self._side.notify(intent, self.identity)
        elif isinstance(intent, (AnnounceIntent, AskPeersIntent)):
            self._side.coordinate(intent, self.identity)

    # ---- waiting and collecting ----------------------------------------------------------------

    def _wait(self, now_ms: int) -> None:
        poller = DescriptorPoll()
        lines = self.contact.lines()
        for line in lines:
            poller.watch(line.fd, write=line.wants_write)
        for fd in self._descriptors():
            poller.watch(fd)
        if self._status is not None:
            self._status.watch(poller)
        if self._jobs is not None:
            self._jobs.watch(poller)
        ready = poller.wait(self._sleep_s(now_ms))
        now_ms = self.clock.now_ms()
        self._signals.drain(ready)
        # An approval's answer first, because the document may already show its effect.
        if self.contact.approve_line in lines and self.contact.approve_line.fd in ready:
            self._step_core(self.contact.approval_ready())
        if self.contact.poll_line in lines and self.contact.poll_line.fd in ready:
            self._step_core(self.contact.poll_ready(now_ms))
        if self._status is not None:
            self._status.serve(self, ready, now_ms)
        if self._jobs is not None:
            self._jobs.serve(ready, now_ms, log=self.log)

    def _descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable at the end of a child or at a signal."""
        fds = self._side.descriptors() + self._signals.descriptors()
        if self._children is not None:
            fds += self._children.descriptors()
        if self._inhibitor is not None:
            fds += self._inhibitor.descriptors()
        return fds

    def _sleep_s(self, now_ms: int) -> float:
        times: list[int | None] = [self.contact.next_ms(), self._side.next_ms(now_ms)]
        if self.core is not None and self._children is not None:
            times += [self.core.next_deadline(), self._children.next_ms(now_ms)]
            if self.core.generation != self._written:
                times.append(self._write_ms)
            if any(held.is_being_undone for held in self.core.steps):
                times.append(self._heed_ms)
        if self._readiness.watchdog_ms:
            times.append(self._alive_ms)
        if self._status is not None:
            times.append(self._status.next_ms())
        if self._jobs is not None:
            times.append(self._jobs.next_ms())
        if self._node is not None and self.core is not None:
            times.append(self._node.next_ms())
        return self.clock.wait_s(min(time_ms for time_ms in times if time_ms is not None))

    def _collect(self, now_ms: int) -> None:
        """Process the ends of hooks."""
        assert self._children is not None
        for ended, output in self._children.ended(now_ms):
            self._log_end(ended, output)
            self._step_core((ended,))

    def _attend(self, now_ms: int) -> None:
        """Do less urgent work: cleanup and background jobs."""
        if self.core is None or self._children is None:
            return
        if self.core.generation == self._written:
            self._children.tidy()
        self._side.choose(self.identity, now_ms)
        self._step_core(self._side.turn(now_ms))
        if self._node is not None:
            self._mark_node(self._node, now_ms)
        if any(held.is_being_undone for held in self.core.steps):
            self._read_requests(now_ms)

    def _mark_node(self, node: NodeConditions, now_ms: int) -> None:
        """Start a due job that marks the Kubernetes node; report how the last one ended."""
        assert self.core is not None
        ended = self._side.node_ended()
        if ended is not None:
            status, output = ended
            node.ended(failed=status != 0, now_ms=now_ms)
            if status:
                text = f"The node's conditions cannot be written: {output}"
                self.log.once("node-failed", text, level="warning")
            elif self.log.clear("node-failed"):
                self.log.say("node-again", "The node's conditions can be written again.")
            left = "" if status else node.left_alone(output)
            if left:
                self.log.once("node-shared", left, level="warning")
        job = node.job(self.core, self.identity, now_ms)
        if job is not None:
            self._side.mark_node(job)

    def _read_requests(self, now_ms: int) -> None:
        """Process operators' requests about steps that could not be undone."""
        if now_ms < self._heed_ms:
            return
        self._heed_ms = now_ms + HEED_MS
        for request in self._requests.pending():
            self.log.say("asked", f"An operator asks to {request.verb} {request.name}.")
            self._step_core((request,))
            self._requests.done(request)

    def _log_end(self, ended: HookEnded, output: str) -> None:
        self.metrics.ended(ended)
        level = "info" if ended.exit_status in (0, HOLD_STATUS) else "warning"
        tail = {"output": output} if output else {}
        reason = f" ({ended.reason})" if ended.reason else ""
        sentence = f"{ended.key} has ended with status {ended.exit_status}{reason}."
        self.log.say("hook-ended", sentence, level=level, **tail)

    def _report(self, now_ms: int) -> None:
        if self.contact.trouble:
            text = f"{self.contact.trouble} {self.contact.advice}"
            self.log.once("poll-failed", text, level="warning")
        elif self.log.clear("poll-failed"):
            self.log.say("poll-again", "The service answers again.")
        events = self.core.events if self.core is not None else ()
        stages = ", ".join(f"{one.event.event_type} {one.stage}" for one in events[:5])
        none = "nothing is scheduled" if self.contact.good_ms is not None else AWAITED
        self._readiness.status(self.contact.trouble or stages or none)
        if self._readiness.watchdog_ms and now_ms >= self._alive_ms:
            self._alive_ms = now_ms + self._readiness.watchdog_ms
            self._readiness.alive()
        if self.core is not None and self.contact.name not in ("", self.identity.name):
            self.again = not self.settings.name
            text = f"The service now calls this VM {self.contact.name}. The agent starts again."
            self.log.say("name-learned", text)
        off_ms = self.clock.off_ms()
        self._compare_clocks(self.contact.ahead_ms - off_ms)
        if abs(off_ms) > CLOCK_OFF_MS_MAX and self._idles():
            self.again = True
            text = f"The system's clock is {off_ms / 1000:.1f} s ahead. The agent starts again."
            self.log.say("clock-set", text)

    def _compare_clocks(self, ahead_ms: int) -> None:
        """Report once that the service's clock is ahead of the system's, or behind it."""
        if abs(ahead_ms) < CLOCKS_DIFFER_MS:
            if self.log.clear("clocks-differ"):
                self.log.say("clocks-agree", "The clocks of the service and of this VM agree.")
            return
        way = "ahead of" if ahead_ms > 0 else "behind"
        text = (
            f"The service's clock is {way} this VM's clock. The agent counts notice by the "
            "service's clock; check the time synchronisation of this VM."
        )
        self.log.once("clocks-differ", text, level="warning", ahead_ms=ahead_ms)

    def _idles(self) -> bool:
        """Return whether the agent has no events, no steps to undo and no reports to send."""
        core = self.core
        return core is not None and not core.events and not core.steps and not self._side.busy


def run_embedded(settings: AgentSettings, holdings: Holdings, log: Log) -> None:
    """Follow the events in an application's thread until `holdings.signals.stop()`."""
    from forewarn_base.clock import SystemClock  # noqa: PLC0415  the agent's own program brings them
    from forewarn_base.ids import Ids  # noqa: PLC0415  the same

    again = True
    while again:
        clock = SystemClock()
        again = Runner(settings, clock=clock, ids=Ids(), log=log, holdings=holdings).run()
