"""The commands of transcripts that happen inside a VM: polls, approvals, its agent, its restarts.

What is done to VMs from outside is in `commands.py`.
"""

import json
from collections.abc import Callable

from forewarn.agent.core.values import ApproveIntent, HookIntent, Intent
from forewarn.agent.poller import APPROVAL_MS
from forewarn_base.protocol.approvals import render_approval
from forewarn_base.protocol.documents import read_document
from forewarn_base.protocol.versions import VERSIONS
from tests.simulator.transcripts.change_report import ChangeReport
from tests.simulator.transcripts.grammar import Options, Words, meant
from tests.simulator.transcripts.scripted_deployment import ScriptedDeployment
from tests.simulator.transcripts.time_spans import moment
from tests.simulator.world.http_line import NO_ANSWER, HttpAnswer, HttpLine
from tests.simulator.world.machine import Machine
from tests.simulator.world.metadata_node import LOST, SimulatedNode, SimulatedReply

#: How long a node away from the service, and one that enables a group first, has to answer; no
#: other takes any time.
FAR_MS, HELD_MS = 100, 2000


class VmCommands:
    """Does those commands on one deployment."""

    def __init__(self, deployment: ScriptedDeployment, report: ChangeReport) -> None:
        """Begin with VMs that run, and no agent in them."""
        self.deployment = deployment
        self._report = report
        self._heard: list[str] = []
        self._halted: set[Machine] = set()
        self.commands: dict[str, Callable[[str, Words, Options], list[str]]] = {
            "polls": self._polls,
            "approves": self._approves,
            "posts": self._posts,
            "halts": self._halts,
            "boots": self._boots,
        }

    def heard(self) -> list[str]:
        """What agents have done since this was asked last."""
        lines, self._heard = self._heard, []
        return lines

    def agent(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        """Start the agent in a VM, or end it.

        Raises:
            ValueError: it runs already, or does not run.
        """
        machine = self._machine(words[0])
        if machine in self._halted:
            raise ValueError(f"VM {words[0]} is down; `vm {words[0]} boots` starts its agent, too")
        if words[1:]:
            if machine.core is None:
                raise ValueError(f"no agent runs in VM {words[0]}")
            machine.end_agent()
        elif machine.core is not None:
            raise ValueError(f"an agent runs in VM {words[0]} already")
        elif machine.up:
            machine.begin_agent()
        else:
            machine.heard = self._hear
            machine.answered = self._hear_answer
            machine.boot()
        return []

    # ---- the VM itself -------------------------------------------------------------------------

    def _halts(self, name: str, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        machine = self._machine(name)
        if machine in self._halted:
            raise ValueError(f"VM {name} is down already")
        if not machine.up:
            raise ValueError(f"no agent was started in VM {name}, so that nothing can be lost")
        machine.halt()
        self._halted.add(machine)
        return []

    def _boots(self, name: str, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        machine = self._machine(name)
        if machine not in self._halted:
            raise ValueError(f"VM {name} is not down; `vm {name} halts` switches it off")
        self._halted.discard(machine)
        machine.boot()
        return []

    def _machine(self, name: str) -> Machine:
        machine = self.deployment.machines.get(name)
        if machine is None:
            raise ValueError(f"there is no VM {name}{meant(name, self.deployment.machines)}")
        return machine

    # ---- what it asks for ----------------------------------------------------------------------

    def _polls(self, name: str, words: Words, options: Options) -> list[str]:
        enrolments = self.deployment.checker.state.enrolments
        enabled = set(enrolments)
        reply = self._send(name, options)
        if reply.status != 200:
            return self._answered(name, reply)
        held = "is held, then " if set(enrolments) - enabled else ""
        self.deployment.checker.read(name, reply)
        document = read_document(reply.body)
        first = f"{name} {held}reads {reply.view} {self._report.document(document)}"
        return [first, *self._fields(reply.body)] if "full" in words else [first]

    def _fields(self, body: bytes) -> list[str]:
        """Every field of every event as it is on the wire, but for short names of events."""
        return [
            f"  {name} {self._report.shorten(json.dumps(value))}"
            for event in json.loads(body)["Events"]
            for name, value in event.items()
        ]

    def _approves(self, name: str, words: Words, options: Options) -> list[str]:
        ids = tuple(self._report.id_of(each) for each in words)
        self.deployment.checker.asks_to_approve(name, ids)
        return self._approve(name, render_approval(ids), ids, options)

    def _posts(self, name: str, words: Words, options: Options) -> list[str]:
        text = " ".join(words)
        for short in sorted(self._report.known(), key=len, reverse=True):
            event_id = self._report.id_of(short)
            text = text.replace(short, event_id.lower() if "case" in options else event_id)
        for event_id in self.deployment.checker.events:
            if event_id in text.upper():
                self.deployment.checker.asks_to_approve(name, (event_id,))
        return self._approve(name, text.encode(), (), options)

    def _approve(self, name: str, body: bytes, ids: tuple[str, ...], options: Options) -> list[str]:
        reply = self._send(name, options, body, ids)
        if reply.status == 200:
            node = self.deployment.network.node_of(name)
            self.deployment.checker.approved(name, node, ids)
            return []
        return self._answered(name, reply)

    def _answered(self, name: str, reply: SimulatedReply) -> list[str]:
        if reply.status <= 0:  # where the service dies of it, that says so
            return [] if self.deployment.news else [f"{name} gets no answer"]
        body = self._report.shorten(reply.body.decode())
        return [f"{name} is answered {reply.status} {body}".rstrip()]

    def _send(
        self, name: str, options: Options, body: bytes = b"", ids: tuple[str, ...] = ()
    ) -> SimulatedReply:
        if self.deployment.machines.get(name) in self._halted:
            raise ValueError(f"VM {name} is down")
        if name not in self.deployment.ever:
            raise ValueError(f"there never was a VM {name}{meant(name, self.deployment.ever)}")
        node, clients = self.deployment.network.node_of(name), self.deployment.checker.clients
        version = options.get("version", VERSIONS[-1])
        answer = self._ask(node, name, version, body)
        reply = SimulatedReply(answer.status or LOST, answer.body, version=version)
        if answer.status == 200 and answer.body:
            view = self.deployment.checker.view_read(name, version, answer.body, node=node)
            reply = reply._replace(view=view)
        now_ms = self.deployment.queue.now_ms
        if body:
            clients.approval(name, node, ids, status=reply.status, answered_ms=now_ms)
        else:
            clients.polled(name, node, reply, answered_ms=now_ms)
        return reply

    def _ask(self, node: SimulatedNode, name: str, version: str, body: bytes) -> HttpAnswer:
        """Send a request on a connection of its own; a node away from the service takes longer."""
        head = (
            f"{'POST' if body else 'GET'} /metadata/scheduledevents?api-version={version} HTTP/1.1"
            "\r\nHost: 169.254.169.254\r\nMetadata: true\r\n"
        )
        head += f"Content-Length: {len(body)}\r\n" if body else ""
        queue, answers = self.deployment.queue, list[HttpAnswer]()
        octets = head.encode() + b"\r\n" + body
        line = HttpLine(queue)
        line.ask(node, f"vm-{name}", ((0, octets),), timeout_ms=APPROVAL_MS, then=answers.append)
        known = self.deployment.topology.vms.get(name)
        if known is not None and known.group not in self.deployment.checker.state.enrolments:
            wait_ms = HELD_MS
        else:
            wait_ms = FAR_MS if node is not self.deployment.nodes[0] else 0
        until_ms = queue.now_ms + wait_ms
        while not answers and queue.step(until_ms):
            pass
        line.forget()
        return answers[0] if answers else NO_ANSWER

    # ---- what its agent does -------------------------------------------------------------------

    def _hear(self, machine: Machine, intent: Intent) -> None:
        if isinstance(intent, HookIntent | ApproveIntent):
            verb = intent.phase if isinstance(intent, HookIntent) else "approve"
            self._hear_of(machine, f"{verb} {self._report.name_of(intent.event.event_id)}")

    def _hear_answer(self, machine: Machine, event_id: str, status: int) -> None:
        if status != 200:
            what = f"is answered {status}" if status > 0 else "gets no answer"
            self._hear_of(machine, f"its approval of {self._report.name_of(event_id)} {what}")

    def _hear_of(self, machine: Machine, what: str) -> None:
        at = moment(self.deployment.queue.now_ms // 1000 * 1000)
        self._heard.append(f"{machine.profile.name} at {at}: {what}")
