"""The commands of transcripts: each does one thing on a stage and says what was answered.

No expectation is compared in here (`script.py`), no change is told (`telling.py`).
"""

from __future__ import annotations

import shlex
from concurrent.futures import Future
from typing import TYPE_CHECKING

from forewarn import wire
from forewarn.agent.core.values import Approve as ApproveIntent
from forewarn.agent.core.values import HookIntent
from forewarn.core.impact import Cause, Impact, Source
from forewarn.core.stimulus import (
    Acknowledge,
    Ask,
    Broke,
    Cancel,
    Change,
    Complete,
    Done,
    Enable,
    Repair,
    Retry,
    Stimulus,
)
from forewarn.core.topology import Group, GroupKind, Host, Vm
from forewarn.core.values import replace
from forewarn.errors import ForewarnError
from forewarn.sim import node as nodes
from forewarn.sim.agenda import START_MS
from forewarn.sim.machine import Machine
from forewarn.sim.mishaps import Mishaps
from forewarn.sim.scriptstage import HandDriver, ScriptStage
from forewarn.sim.spans import clock_time, moment, seconds
from forewarn.sim.telling import Teller

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.agent.core.values import Intent
    from forewarn.core.lifecycle import Operation
    from forewarn.sim.node import Reply

Words = list[str]
Options = dict[str, str]

CAUSES = {
    "update": Cause.HOST_UPDATE,
    "reboot": Cause.HOST_REBOOT,
    "migrate": Cause.LIVE_MIGRATION,
    "network": Cause.NETWORK_UPDATE,
    "degrade": Cause.HARDWARE_DEGRADED,
    "fail": Cause.HARDWARE_FAILURE,
    "lose": Cause.HOST_LOST,
}
"""What an operator can ask of hosts."""
VM_CAUSES = {
    "reboot": Cause.REBOOT,
    "redeploy": Cause.REDEPLOY,
    "delete": Cause.DELETION,
    "reimage": Cause.REIMAGE,
    "evict": Cause.EVICTION,
}
"""What a user, or the platform, can ask of VMs."""


class Actor:
    """Does the commands of one transcript."""

    def __init__(self) -> None:
        """Set the stage."""
        self._driver = HandDriver()
        self.stage = ScriptStage(self._driver)
        self._driver.begins = self._begins
        self._driver.aborts = self._aborts
        self._teller = Teller(self.stage)
        self._silent: set[str] = set()
        self._heard: list[str] = []
        self._commands: dict[str, Callable[[Words, Options], list[str]]] = {
            "host": self._host,
            "group": self._group,
            "vm": self._vm,
            "move": self._move,
            "remove": self._remove,
            "operator": self._operator,
            "user": self._user,
            "platform": self._platform,
            "driver": self._drive,
            "agent": self._agent,
            **Mishaps(self.stage, self._silent).commands,
        }

    def do(self, command: str) -> list[str]:
        """Do one command; return what was answered.

        Raises:
            ValueError, LookupError: it is no command, or lacks something.
        """
        words = shlex.split(command)
        options = dict(word.split("=", 1) for word in words if "=" in word and word[0] != "{")
        plain = [word for word in words if "=" not in word or word[0] == "{"]
        lines = self._commands[plain[0]](plain[1:], options)
        self._teller.learn()
        return lines

    def changes(self) -> list[str]:
        """Everything that is different since the last time it was asked."""
        while self.stage.agenda.step(self.stage.agenda.now_ms):
            pass
        lines, self._heard = self._heard, []
        lines += self.stage.news
        self.stage.news.clear()
        return [*lines, *self._teller.changes()]

    # ---- the fleet -----------------------------------------------------------------------------

    def _host(self, words: Words, options: Options) -> list[str]:
        number = len(self.stage.topology.hosts)
        fault_domain = int(options.get("fd", number))
        update_domain = int(options.get("ud", number))
        host = Host(words[0], fault_domain, update_domain, zone=options.get("zone", ""))
        return self._tell(Change(hosts=(host,)))

    def _group(self, words: Words, options: Options) -> list[str]:
        name = words[0]
        if "silent" in words:
            self._silent.add(name)
        if "again" in words:
            self._silent.discard(name)
            return []
        if "together" in options:
            self.stage.places[name] = options["together"]
        if name in self.stage.topology.groups and words[1:] == ["silent"]:
            return []
        automatic = options.get("automatic", "")
        group = Group(
            name,
            GroupKind(options.get("kind", "availability-set")),
            owner=options.get("owner", ""),
            fault_domain_count=int(options.get("domains", 0)),
            strict_approval="strict" in words,
            automatic_approval=frozenset(Impact(each) for each in automatic.split(",") if each),
            terminate_notice_s=seconds(options.get("terminate", "0s")),
            reimage_notice="reimage" in words,
        )
        told = self._tell(Change(groups=(group,)))
        if name not in self._teller.groups:
            self._teller.groups.append(name)
            if "disabled" not in words:
                self._tell(Enable(name))
                self._teller.skip()
        return told

    def _vm(self, words: Words, options: Options) -> list[str]:
        if len(words) > 1 and words[1] in {"approves", "polls", "posts"}:
            return self._machine(words[0], words[1:], options)
        name, group = words[0], options.get("group", words[0])
        if group not in self.stage.topology.groups:
            self._group([group], {})
        if options.get("node") == "far":
            self.stage.far.add(name)
        vm = Vm(
            name,
            options["on"],
            group,
            size=options.get("size", ""),
            gpu="gpu" in words,
            spot="spot" in words,
            addresses=(f"vm-{name}",),
        )
        told = self._tell(Change(vms=(vm,)))
        self._teller.skip() if not told else None
        return told

    def _move(self, words: Words, options: Options) -> list[str]:
        vm = self.stage.topology.vms[words[0]]
        return self._tell(Change(vms=(replace(vm, host=options["to"]),)))

    def _remove(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        return self._tell(Change(removed=((words[0], words[1]),)))

    # ---- people --------------------------------------------------------------------------------

    def _operator(self, words: Words, options: Options) -> list[str]:
        verb, rest = words[0], words[1:]
        if verb in CAUSES:
            return self._ask(CAUSES[verb], rest, options)
        if verb == "repair":
            return self._tell(Repair(rest[0]))
        if verb == "acknowledge":
            event_ids = tuple(self._teller.id_of(each) for each in rest)
            self.stage.judge.acknowledged.update(event_ids)
            return self._tell(Acknowledge(event_ids))
        number = int(rest[0].removeprefix("op-"))
        reason = " ".join(rest[1:])
        if verb == "why":
            operation = self.stage.judge.operations[number]
            return [self._teller.shorten(each.text) for each in self._teller.waiting(operation)]
        if verb == "cancel":
            return self._tell(Cancel(number, reason))
        if verb == "complete":
            return self._tell(Complete(number, reason=reason))
        if verb == "give-up":
            return self._tell(Complete(number, failed=True, reason=reason))
        if verb == "retry":
            retries = self.stage.judge.retries
            retries[number] = retries.get(number, 0) + 1
            return self._tell(Retry(number))
        raise ValueError(f"an operator does not {verb}")

    def _user(self, words: Words, options: Options) -> list[str]:
        return self._ask(VM_CAUSES[words[0]], words[1:], options, "user")

    def _platform(self, words: Words, options: Options) -> list[str]:
        return self._ask(VM_CAUSES[words[0]], words[1:], options, "platform")

    def _ask(
        self, cause: Cause, targets: Words, options: Options, actor: str = "operator"
    ) -> list[str]:
        after = options.get("not-before")
        ask = Ask(
            cause=cause,
            targets=tuple(targets),
            impact=Impact(options["impact"]) if "impact" in options else None,
            source=Source(options["source"]) if "source" in options else None,
            duration_s=seconds(options["duration"]) if "duration" in options else None,
            not_before_ms=START_MS + clock_time(after) * 1000 if after else 0,
            destination=options.get("to", ""),
        )
        return self._tell(ask, actor)

    def _tell(self, stimulus: Stimulus, actor: str = "operator") -> list[str]:
        answer = self.stage.service.submit(stimulus, actor)
        if not answer.done():
            return ["no answer"]
        error = answer.exception()
        if error is None:
            return []
        assert isinstance(error, ForewarnError), error
        return [f"refused {error.status}: {self._teller.shorten(str(error))}"]

    # ---- machines ------------------------------------------------------------------------------

    def _machine(self, name: str, words: Words, options: Options) -> list[str]:
        version = options.get("version", wire.VERSIONS[-1])
        if words[0] == "polls":
            return self._poll(name, version)
        judge = self.stage.judge
        if words[0] == "approves":
            ids = tuple(self._teller.id_of(each) for each in words[1:])
            body = wire.render_approval(ids)
            judge.asks_to_approve(name, ids)
        else:
            ids = ()
            text = " ".join(words[1:])
            for short in sorted(self._teller.known(), key=len, reverse=True):
                text = text.replace(short, self._teller.id_of(short))
            body = text.encode()
            for event_id in judge.events:
                if event_id in text.upper():
                    judge.asks_to_approve(name, (event_id,))
        reply = self._send(name, nodes.post(version), body)
        if reply.status == 200:
            judge.approved(name, ids)
            return []
        return self._answered(name, reply)

    def _poll(self, name: str, version: str) -> list[str]:
        held = ""
        reply = self._send(name, nodes.get(version))
        if reply.status == nodes.HELD:
            held = "is held, then "
            while self.stage.agenda.step(self.stage.agenda.now_ms + 1000):
                pass
            reply = self._send(name, nodes.get(version))
        if reply.status != 200:
            return self._answered(name, reply)
        self.stage.judge.read(name, reply)
        assert reply.view is not None
        document = self._teller.document(wire.read_document(reply.body))
        return [f"{name} {held}reads {reply.view.name} {document}"]

    def _answered(self, name: str, reply: Reply) -> list[str]:
        if reply.status <= 0:
            return [f"{name} gets no answer"]
        body = self._teller.shorten(reply.body.decode())
        return [f"{name} is answered {reply.status} {body}".rstrip()]

    def _send(self, name: str, raw: bytes, body: bytes = b"") -> Reply:
        node = self.stage.wires.node_of(name)
        if not node.serves:
            return nodes.Reply(nodes.LOST)
        answer = node.ask(f"vm-{name}", raw, body)
        if not isinstance(answer, Future):
            return answer
        if not answer.done():
            return nodes.Reply(nodes.LOST)
        if body:
            return node.approved(answer)
        return nodes.Reply(nodes.HELD if answer.exception() is None else nodes.LOST)

    def _agent(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        machine = self.stage.machines[words[0]]
        if words[1:] == ["dies"]:
            machine.halt()
        else:
            machine.heard = self._hear
            machine.boot()
        return []

    def _hear(self, machine: Machine, intent: Intent) -> None:
        if isinstance(intent, HookIntent | ApproveIntent):
            verb = intent.phase if isinstance(intent, HookIntent) else "approve"
            name = self._teller.name_of(intent.event.event_id)
            at = moment(self.stage.agenda.now_ms // 1000 * 1000)
            self._heard.append(f"{machine.seat.name} at {at}: {verb} {name}")

    # ---- the driver ----------------------------------------------------------------------------

    def _drive(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        verb, rest = words[0], words[1:]
        if verb == "begun":
            return [f"begun: {', '.join(self._driver.begun) or 'nothing'}"]
        if verb == "aborted":
            return [f"aborted: {', '.join(self._driver.aborted) or 'nothing'}"]
        if verb == "refuses":
            self._driver.refuses = " ".join(rest)
            return []
        operation = self.stage.judge.operations[int(rest[0].removeprefix("op-"))]
        key = (operation.number, operation.attempt)
        self.stage.judge.reported[key] = self.stage.agenda.now_ms
        if verb == "finishes":
            return self._tell(Done(operation.number, operation.attempt), "driver")
        if verb == "breaks":
            return self._tell(
                Broke(operation.number, operation.attempt, " ".join(rest[1:])), "driver"
            )
        raise ValueError(f"a driver does not {verb}")

    def _begins(self, operation: Operation) -> None:
        self.stage.fuse.passes("before begin")
        self.stage.judge.begins(operation)
        self.stage.fuse.passes("after begin")

    def _aborts(self, operation: Operation) -> None:
        self.stage.fuse.passes("before abort")
        self.stage.judge.aborts(operation, heard=True)
        self.stage.fuse.passes("after abort")
