"""Actions on a server, step by step: reboot, stop, rebuild, delete.

Each step first reads Nova's records, and never repeats an earlier request, so that steps are safe
after a crash. `moves.py` contains the moves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from forewarn_base.errors import PeerError
from forewarn_base.values import value
from forewarn_drivers import FINISHED, Task, WorkStep
from forewarn_drivers.task_records import TaskOfLaterWriter
from forewarn_openstack.client import Nova, NovaMissing
from forewarn_openstack.config import BY_ID, NovaConfig
from forewarn_openstack.mark import (
    ACTIVE,
    ERROR,
    GONE,
    NONE,
    PAUSED,
    SHUTOFF,
    Action,
    Server,
    ServerMark,
    ServerMarks,
    actions_of,
    server_of,
)

#: Minimum time for the shutdown of a removed server, even after its notice, in milliseconds.
FAREWELL_MS = 5000
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Maximum number of migrations searched for the newest.
NEWEST = 10


class ServerMissing(PeerError):
    """The cloud has no server for a VM."""

    code = "server-missing"
    message = "The cloud has no server {vm}."
    advice = "Find the server and import the topology again; then complete or fail the operation."


class ServerAmbiguous(PeerError):
    """Several servers have the same name."""

    code = "server-ambiguous"
    message = "The cloud has {count} servers called {vm}."
    advice = 'Set vm_names = "id" and import the topology again, or rename the other servers.'


class ServerUnfit(PeerError):
    """The state of a server forbids the work."""

    code = "server-unfit"
    message = "Server {vm} is {status} and cannot be {what}."
    advice = "Change the server's state, or move the server by hand; then retry the operation."


class ServerFailed(PeerError):
    """Nova failed after accepting work on a server."""

    code = "server-failed"
    message = "Nova failed during {what} of {vm}: {reason}."
    advice = "Check the server's events (openstack server event list); then retry the operation."


class ServerSlow(PeerError):
    """Nova exceeded the time limit for a server."""

    code = "server-slow"
    message = "Server {vm} is still {text} after {seconds} s."
    advice = "Check nova-compute on the server's host; then retry, complete or fail the operation."


@value
class ServerVerb:
    """An action of Nova on a server."""

    #: Nova's name of the action in a server's list of actions.
    action: str
    body: dict[str, Any]
    #: Name of the action for people.
    doing: str


STOP = ServerVerb("stop", {"os-stop": None}, "shutting down")
START = ServerVerb("start", {"os-start": None}, "starting")
PAUSE = ServerVerb("pause", {"pause": None}, "pausing")
UNPAUSE = ServerVerb("unpause", {"unpause": None}, "unpausing")


@dataclass(slots=True)
class Memory:
    """Cached facts of an attempt; the driver can read all facts again."""

    #: Completed parts of the attempt, by phase and VM.
    finished: set[tuple[str, str]] = field(default_factory=set)
    #: Reasons of failed parts, by phase and VM.
    failed: dict[tuple[str, str], PeerError] = field(default_factory=dict)
    #: Start of each wait, by condition, ms since the epoch UTC.
    since_ms: dict[str, int] = field(default_factory=dict)
    #: VMs whose slow migration was forced or aborted.
    helped: set[str] = field(default_factory=set)
    #: Destinations of VMs in Nova, by VM.
    placements: dict[str, str] = field(default_factory=dict)
    #: Ids of servers, by VM.
    ids: dict[str, str] = field(default_factory=dict)


class Servers:
    """The servers of one task."""

    def __init__(self, task: Task, nova: Nova, marks: ServerMarks, *, config: NovaConfig) -> None:
        self.task = task
        self.nova = nova
        self.config = config
        self.memory = Memory()
        #: The last successful attempt of the operation; this attempt repeats the work.
        self.ended = 0
        self.now_ms = 0
        self._marks = marks

    # --- find the VM --------------------------------------------------------------------

    def find(self, vm: str) -> Server | None:
        """Return a VM's server, or None.

        Raises:
            ServerAmbiguous: several servers have the VM's name.
            NovaUnreachable: Nova does not answer.
        """
        known = self.memory.ids.get(vm) or self._id(vm)
        if not known:
            return None
        try:
            server = server_of(self.nova.get(f"/servers/{known}")["server"])
        except NovaMissing:
            return None
        self.memory.ids[vm] = server.id
        return None if server.status in GONE else server

    def needed(self, vm: str) -> Server:
        """Return a VM's server.

        Raises:
            ServerMissing: the server does not exist.
        """
        server = self.find(vm)
        if server is None:
            raise ServerMissing(vm=vm)
        return server

    def _id(self, vm: str) -> str:
        if _ID.fullmatch(vm):
            return vm
        if self.config.vm_names == BY_ID:
            return ""
        project, _, name = vm.partition(".")
        filters = {"all_tenants": "true", "project_id": project, "name": name}
        pages = self.nova.pages("/servers/detail", "servers", **filters)
        ids = [e["id"] for e in pages if (e["tenant_id"], e["name"]) == (project, name)]
        if len(ids) > 1:
            raise ServerAmbiguous(vm=vm, count=len(ids))
        return ids[0] if ids else ""

    # --- actions ------------------------------------------------------------------------

    def reboot(self, vm: str) -> WorkStep:
        """Reboot a running server."""
        server = self.needed(vm)
        if server.status in {ERROR, "UNKNOWN"} and self.task.operation.of_vm:
            raise ServerUnfit(vm=vm, status=server.status, what="rebooted")
        body = {"reboot": {"type": self.config.reboot_type.upper()}}
        return self.once(vm, server, ServerVerb("reboot", body, "rebooting"), where=ACTIVE)

    def stop(self, vm: str) -> WorkStep:
        """Shut a running server down."""
        return self.once(vm, self.needed(vm), STOP, where=ACTIVE)

    def pause(self, vm: str) -> WorkStep:
        """Stop the processors of a running server."""
        return self.once(vm, self.needed(vm), PAUSE, where=ACTIVE)

    def start(self, vm: str) -> WorkStep:
        """Start a server that ran when the task began."""
        server = self.needed(vm)
        mark = self.mark_of(server)
        return self.once(vm, server, START, where=SHUTOFF) if mark and mark.ran else FINISHED

    def unpause(self, vm: str) -> WorkStep:
        """Resume the processors of a server that ran when the task began."""
        server = self.find(vm)
        mark = self.mark_of(server) if server else None
        if server is None or mark is None or not mark.ran:
            return FINISHED
        return self.once(vm, server, UNPAUSE, where=PAUSED)

    def start_fallen(self, vm: str) -> WorkStep:
        """Start a server stopped by its host's failure, but not a server stopped by people."""
        server = self.needed(vm)
        if server.status == SHUTOFF and self.mark_of(server) is None:
            newest = next(iter(self.actions(server)), None)
            if newest is not None and newest.name == STOP.action and newest.user:
                return FINISHED
        return self.once(vm, server, START, where=SHUTOFF)

    def rebuild(self, vm: str) -> WorkStep:
        """Rewrite a server's disk from its image."""
        server = self.needed(vm)
        if not server.image:
            raise ServerUnfit(vm=vm, status="booted from a volume", what="rebuilt from an image")
        body = {"rebuild": {"imageRef": server.image}}
        return self.once(vm, server, ServerVerb("rebuild", body, "rebuilding"), where="")

    def remove(self, vm: str) -> WorkStep:
        """Shut a server down; delete the server once stopped, or after its notice."""
        operation = self.task.operation
        server = self.find(vm)
        if server is None:
            if vm in self.memory.ids:
                self._marks.forget(self.memory.ids[vm])
            return FINISHED
        if "delet" in server.task:
            return self.going(vm, f"deleting {vm}", 0.8)
        left_ms = (
            max(
                operation.notice.not_before_ms or 0,
                (operation.execution.started_ms or 0) + FAREWELL_MS,
            )
            - self.now_ms
        )
        if server.status == ACTIVE and left_ms > 0:
            if not server.task:
                self.act(server, STOP.body)
            return WorkStep(text=f"shutting {vm} down")
        self.nova.delete(f"/servers/{server.id}")
        return self.going(vm, f"deleting {vm}", 0.5)

    def once(self, vm: str, server: Server, verb: ServerVerb, *, where: str) -> WorkStep:
        """Request an action on a server from Nova, once per task.

        A server with another status than `where` (empty: any) remains unchanged.
        """
        mark = self.mark_of(server)
        done = self.action_since(server, mark, verb.action) if mark else None
        if done is not None and mark is not None:
            step = self.outcome(vm, server, done, doing=verb.doing)
            if step is not None:
                return step
            if mark.attempt == self.task.attempt:
                raise self.failure(server, done, vm, doing=verb.doing)
            mark = None  # the action of an earlier attempt failed
        if server.task:
            return self.going(vm, f"waiting for {vm}, which is {server.task}", 0)
        if where and server.status != where:
            return FINISHED
        if mark is None:
            self.put_mark(server)
        self.act(server, verb.body)
        return self.going(vm, f"{verb.doing} {vm}", 0)

    # --- Nova's records -----------------------------------------------------------------

    def actions(self, server: Server) -> list[Action]:
        """Return the actions of a server, newest first."""
        return actions_of(self.nova.get(f"/servers/{server.id}/os-instance-actions"))

    def action_since(self, server: Server, mark: ServerMark, name: str) -> Action | None:
        """Return this user's newest action with a name since the task began, or None."""
        user = self.nova.user
        for each in self.actions(server):
            if each.request == mark.action:
                return None
            if each.name == name and each.user in {user, user or each.user}:
                return each
        return None

    def outcome(self, vm: str, server: Server, action: Action, *, doing: str) -> WorkStep | None:
        """Return the progress of Nova's action; None after a failure."""
        if server.task:
            return self.going(vm, f"{doing} {vm}", 0.5)
        events = self._events(server, action)
        if server.status == ERROR or any(each["result"] == "Error" for each in events):
            return None
        if not events or any(each["finish_time"] is None for each in events):
            return self.going(vm, f"{doing} {vm}", 0.5)
        return FINISHED

    def failure(
        self, server: Server, action: Action | None, vm: str, *, doing: str
    ) -> ServerFailed:
        """Return Nova's reason for a failed action."""
        events = self._events(server, action) if action else []
        traces = [each["traceback"] for each in events if each.get("traceback")]
        lines = traces[-1].strip().splitlines() if traces else []
        raised = next((each for each in reversed(lines) if each[:1].strip()), "")
        reason = raised or server.fault or "no reason is recorded"
        return ServerFailed(what=doing, vm=vm, reason=reason[:300].rstrip("."))

    def _events(self, server: Server, action: Action) -> list[dict[str, Any]]:
        path = f"/servers/{server.id}/os-instance-actions/{action.request}"
        return list(self.nova.get(path)["instanceAction"].get("events", ()))

    # --- the mark -----------------------------------------------------------------------

    def mark_of(self, server: Server) -> ServerMark | None:
        """Return this operation's mark on a server.

        Raises:
            TaskOfLaterWriter: a newer writer has marked the server for this operation.
        """
        mark = self._marks.read(server, self.key)
        if mark is not None and mark.generation > self.task.generation:
            facts = {"generation": self.task.generation, "newest": mark.generation}
            raise TaskOfLaterWriter(task=self.task.id, **facts)
        return mark

    def put_mark(self, server: Server) -> ServerMark:
        """Mark a server; this task is the cause of Nova's later records of the server."""
        before = self.mark_of(server)
        query = {"instance_uuid": server.id, "limit": NEWEST}
        migrations = self.nova.get("/os-migrations", **query)["migrations"]
        newest = next(iter(self.actions(server)), None)
        mark = ServerMark(
            self.key,
            self.task.attempt,
            self.task.generation,
            ran=before.ran if before else server.status == ACTIVE,
            migration=max((each["id"] for each in migrations), default=0),
            action=newest.request if newest else NONE,
        )
        self._marks.put(server, mark)
        return mark

    @property
    def key(self) -> str:
        """Return the operation's name in marks, which is unique among stores."""
        operation = self.task.operation
        return f"{operation.id}@{operation.created_ms}" + (f"+{self.ended}" if self.ended else "")

    # --- steps --------------------------------------------------------------------------

    def act(self, server: Server, body: dict[str, Any]) -> None:
        """Send an action request for a server to Nova."""
        self.nova.post(f"/servers/{server.id}/action", body)

    def going(self, vm: str, text: str, share: float, *, limit_s: int = 0) -> WorkStep:
        """Return the step of an action in progress.

        Raises:
            ServerSlow: the action exceeded its time limit.
        """
        limit_s = limit_s or self.config.server_timeout_s
        if self.now_ms - self.since_ms(f"{vm}: {text}") > limit_s * 1000:
            raise ServerSlow(vm=vm, text=text, seconds=limit_s)
        return WorkStep(text=text, share=share)

    def since_ms(self, what: str) -> int:
        """Return the start of a wait, ms since the epoch UTC."""
        return self.memory.since_ms.setdefault(what, self.now_ms)
