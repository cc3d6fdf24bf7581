"""Moves of a server, step by step: live migration, cold migration, evacuation.

Nova's migration records show the results of moves.
"""

from __future__ import annotations

from typing import Any

from forewarn_base.errors import PeerError
from forewarn_base.values import value
from forewarn_drivers import FINISHED, WorkStep
from forewarn_openstack.client import NovaMissing, NovaRefused
from forewarn_openstack.config import GIVE_UP
from forewarn_openstack.mark import (
    ACTIVE,
    ERROR,
    FAILED,
    PAUSED,
    SHUTOFF,
    VERIFY_RESIZE,
    Server,
    ServerMark,
)
from forewarn_openstack.servers import ServerFailed, Servers, ServerUnfit

#: Maximum number of migrations searched for a task's migration.
LOOKED_AT = 100
#: States in which a live migration can be aborted.
OVER = FAILED | {"completed"}
ABORTABLE = frozenset({"queued", "preparing", "running"})


class ServerMigrationTimedOut(PeerError):
    """A live migration exceeded its time limit."""

    code = "nova-migration-timed-out"
    message = (
        "The live migration of {vm} was aborted after {seconds} s; {vm} still runs on its old host."
    )
    advice = "Retry when the VM is less busy, or set migration_fallback; see the nova driver."


@value
class ServerMove:
    """One kind of move."""

    #: Nova's names of the move in lists of migrations and of a server's actions.
    kind: str
    action: str
    #: The action's name in a request, and the parameters of the action.
    verb: str
    more: tuple[tuple[str, object], ...]
    #: Name of the move for people.
    doing: str


LIVE = ServerMove(
    "live-migration",
    "live-migration",
    "os-migrateLive",
    (("block_migration", "auto"),),
    "migrating",
)
COLD = ServerMove("migration", "migrate", "migrate", (), "moving")
EVACUATION = ServerMove("evacuation", "evacuate", "evacuate", (), "evacuating")


class ServerMoves:
    """Moves of one task's servers off the operation's host."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._nova = servers.nova

    def alive(self, vm: str) -> WorkStep:
        """Migrate a server live; move a stopped server without starting the server."""
        server = self._servers.needed(vm)
        if server.status in {SHUTOFF, VERIFY_RESIZE, "RESIZE"}:
            return self.cold(vm)
        if self._has_left(server, vm):
            return FINISHED
        if server.status not in {ACTIVE, PAUSED, "MIGRATING"}:
            raise ServerUnfit(vm=vm, status=server.status, what="migrated live")
        return self._move(vm, server, LIVE)

    def cold(self, vm: str) -> WorkStep:
        """Shut a server down, start it elsewhere, and confirm the move to Nova."""
        server = self._servers.needed(vm)
        if server.status == VERIFY_RESIZE:
            return self._confirm(vm, server)
        if self._has_left(server, vm):
            return FINISHED
        if server.status not in {ACTIVE, SHUTOFF, "RESIZE"}:
            raise ServerUnfit(vm=vm, status=server.status, what="moved")
        return self._move(vm, server, COLD)

    def evacuate(self, vm: str) -> WorkStep:
        """Start a server of a lost host elsewhere."""
        server = self._servers.needed(vm)
        if self._has_left(server, vm):
            return FINISHED
        return self._move(vm, server, EVACUATION)

    def call_off(self, vm: str) -> bool:
        """Abort a live migration of this task; return whether the migration has ended."""
        server = self._servers.find(vm)
        mark = self._servers.mark_of(server) if server else None
        if server is None or mark is None or not server.task:
            return True
        migration = self._newest(server, mark, LIVE)
        if migration is None:  # Nova has not begun the migration, or is busy with the server
            return self._servers.action_since(server, mark, LIVE.action) is None
        return migration["status"] in OVER or self._end(server, migration)

    def _has_left(self, server: Server, vm: str) -> bool:
        """Return whether a server has left, or returned, and Nova has completed the move."""
        away = self._servers.task.operation.has_moved(server.host)
        left = away and not server.task and server.status != ERROR
        if left and server.host:
            self._servers.memory.placements[vm] = server.host
        return left

    def _move(self, vm: str, server: Server, move: ServerMove) -> WorkStep:
        """Request a move of a server from Nova, once per attempt."""
        mark = self._servers.mark_of(server)
        migration = self._newest(server, mark, move) if mark else None
        action = self._servers.action_since(server, mark, move.action) if mark else None
        failed = migration is not None and migration["status"] in FAILED
        if action and not migration and not server.task:
            failed = self._servers.outcome(vm, server, action, doing=move.doing) is None
        if failed and not server.task:
            assert mark is not None, vm
            if mark.attempt == self._servers.task.attempt:
                raise self._failure(vm, server, mark, move)
            mark = migration = action = None  # an earlier attempt failed
        if migration is not None:
            return self._watch(vm, server, migration, move)
        if action is not None:
            return self._servers.going(vm, f"{move.doing} {vm}", 0)
        if server.task:
            return self._servers.going(vm, f"waiting for {vm}, which is {server.task}", 0)
        if mark is None:
            self._servers.put_mark(server)
        destination = self._servers.task.operation.destination or None
        body = {"host": destination} if destination or move is not EVACUATION else {}
        self._servers.act(server, {move.verb: {**body, **dict(move.more)}})
        return self._servers.going(vm, f"{move.doing} {vm}", 0)

    def _newest(self, server: Server, mark: ServerMark, move: ServerMove) -> dict[str, Any] | None:
        """Return Nova's record of the newest move of a kind since the mark."""
        query = {"instance_uuid": server.id, "migration_type": move.kind, "limit": LOOKED_AT}
        migrations: list[dict[str, Any]] = self._nova.get("/os-migrations", **query)["migrations"]
        newer = [each for each in migrations if each["id"] > mark.migration]
        return max(newer, key=lambda each: int(each["id"]), default=None)

    def _watch(
        self, vm: str, server: Server, migration: dict[str, Any], move: ServerMove
    ) -> WorkStep:
        """Return the progress of a move, and apply the policy to slow migrations."""
        config, to = self._servers.config, migration["dest_compute"] or "another host"
        text = f"{move.doing} {vm} to {to}"
        if migration["dest_compute"]:
            self._servers.memory.placements[vm] = to
        if move is not LIVE:
            return self._servers.going(vm, text, 0.5)
        since_ms = self._servers.since_ms(f"migration {migration['id']}")
        late = self._servers.now_ms - since_ms > config.migration_timeout_s * 1000
        helped = self._servers.memory.helped
        if late and vm not in helped and self._hurry(server, migration):
            helped.add(vm)
        # Nova has not recorded the end completely, or the policy's action takes time.
        limit_s = config.migration_timeout_s + config.server_timeout_s
        return self._servers.going(vm, text, self._share(server, migration), limit_s=limit_s)

    def _share(self, server: Server, migration: dict[str, Any]) -> float:
        """Return the share of a server's memory at the destination, 0 to 1."""
        if migration["status"] != "running":
            return 0.0
        try:
            path = f"/servers/{server.id}/migrations/{migration['id']}"
            details = self._nova.get(path)["migration"]
        except NovaMissing:  # the migration has just ended
            return 1.0
        total, left = details["memory_total_bytes"] or 0, details["memory_remaining_bytes"] or 0
        return max(0.0, min(1 - left / total, 1.0)) if total else 0.0

    def _hurry(self, server: Server, migration: dict[str, Any]) -> bool:
        """Apply the policy for slow migrations; return whether Nova has accepted the request."""
        path = f"/servers/{server.id}/migrations/{migration['id']}"
        if self._servers.config.migration_fallback == GIVE_UP:
            return self._end(server, migration)
        if migration["status"] != "running":
            return False
        self._nova.post(f"{path}/action", {"force_complete": None})
        return True

    def _end(self, server: Server, migration: dict[str, Any]) -> bool:
        """Abort a live migration; return whether Nova has accepted the request."""
        if migration["status"] not in ABORTABLE:
            return False
        try:
            self._nova.delete(f"/servers/{server.id}/migrations/{migration['id']}")
        except NovaRefused:  # the migration has ended, or cannot be aborted now
            return False
        return True

    def _failure(self, vm: str, server: Server, mark: ServerMark, move: ServerMove) -> PeerError:
        config = self._servers.config
        if vm in self._servers.memory.helped and config.migration_fallback == GIVE_UP:
            return ServerMigrationTimedOut(vm=vm, seconds=config.migration_timeout_s)
        action = self._servers.action_since(server, mark, move.action)
        migration = self._newest(server, mark, move)
        if migration is not None and migration["status"] == "cancelled":
            return ServerFailed(what=move.doing, vm=vm, reason="the migration was cancelled")
        return self._servers.failure(server, action, vm, doing=move.doing)

    def _confirm(self, vm: str, server: Server) -> WorkStep:
        """Confirm a move of this task, and leave other moves unchanged."""
        mark = self._servers.mark_of(server)
        if mark is None or self._newest(server, mark, COLD) is None:
            if self._has_left(server, vm):
                return FINISHED
            raise ServerUnfit(vm=vm, status="waiting for confirmation of its resize", what="moved")
        if not server.task:
            self._servers.act(server, {"confirmResize": None})
        return self._servers.going(vm, f"confirming the move of {vm}", 0.9)
