"""A server that speaks Nova's documented JSON, for what the real one cannot be made to do.

Whether that is how Nova is, `test_cloud.py` tests, which does the same work on the real one. What
is asked for is done at once, unless a test holds it back or has it fail.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

from openstack_tests import keystone

#: What Nova writes into a list of actions for each verb, and the status after it.
VERBS = {
    "reboot": ("reboot", "ACTIVE"),
    "os-stop": ("stop", "SHUTOFF"),
    "os-start": ("start", "ACTIVE"),
    "pause": ("pause", "PAUSED"),
    "unpause": ("unpause", "ACTIVE"),
    "rebuild": ("rebuild", "ACTIVE"),
    "os-migrateLive": ("live-migration", "ACTIVE"),
    "migrate": ("migrate", "VERIFY_RESIZE"),
    "confirmResize": ("confirmResize", "ACTIVE"),
    "evacuate": ("evacuate", "ACTIVE"),
}
KINDS = {
    "os-migrateLive": "live-migration",
    "migrate": "migration",
    "evacuate": "evacuation",
}
MARKABLE = {"ACTIVE", "PAUSED", "SUSPENDED", "SHUTOFF"}


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, text: str) -> None:
        """Take what is answered."""
        super().__init__(text)
        self.status = status


class SmallCloud:
    """Two hosts, and the servers that a test puts there."""

    def __init__(self) -> None:
        """Start empty."""
        self.servers: dict[str, dict[str, Any]] = {}
        self.actions: list[dict[str, Any]] = []
        self.migrations: list[dict[str, Any]] = []
        self.services = {
            host: {"id": f"service-{host}", "host": host, "zone": "nova", "status": "enabled",
                   "state": "up", "disabled_reason": None, "forced_down": False}
            for host in ("h1", "h2")
        }  # fmt: skip
        self.aggregates: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        #: Verbs that Nova accepts and fails with, and those it has not ended with.
        self.failing: set[str] = set()
        self.holding: set[str] = set()
        #: Answers that come instead of Nova's own, the first one first: a status for each request.
        self.refusing: list[int] = []
        #: How many requests are answered before one that is carried out gets no answer; -1: all.
        self.answered_max = -1
        #: Verb and path of each request that changes something.
        self.asked: list[str] = []
        self.clouds_file = ""
        self._numbers = count(1)

    def server(
        self,
        name: str,
        host: str = "h1",
        status: str = "ACTIVE",
        *,
        project: str = keystone.PROJECT,
    ) -> str:
        """Put a server on a host; return its id."""
        made = str(UUID(int=next(self._numbers)))
        self.servers[made] = {
            "id": made, "name": name, "status": status, "OS-EXT-SRV-ATTR:host": host,
            "OS-EXT-STS:task_state": None, "metadata": {}, "image": {"id": "an-image"},
            "tenant_id": project, "flavor": {"original_name": "m1.small", "ram": 2048},
        }  # fmt: skip
        return made

    def group(self, made: str, name: str, *members: str, project: str = keystone.PROJECT) -> None:
        """Make a server group."""
        form = {"id": made, "name": name, "project_id": project, "members": list(members)}
        self.groups.append(form)

    def record(self, server: str, action: str, user: str | None, result: str = "Success") -> None:
        """Add to what was done to a server."""
        number = next(self._numbers)
        trace = 'Traceback\n  File "x"\nNoValidHost: No valid host was found.\n'
        self.actions.append(
            {"instance_uuid": server, "action": action, "user_id": user, "message": None,
             "request_id": f"req-{UUID(int=number)}", "start_time": f"2026-01-01T{number:06}",
             "events": [{"event": action, "finish_time": "2026-01-01T00:00:00", "result": result,
                         "traceback": trace if result == "Error" else None}]}
        )  # fmt: skip

    def done(self, verb: str) -> int:
        """How often something was asked for."""
        return sum(verb in each for each in self.asked)

    # --- what it answers ------------------------------------------------------------------

    def get(self, path: str, query: str) -> Any:  # noqa: ANN401 - JSON
        """Answer what is read."""
        parts = path.strip("/").split("/")
        match parts:
            case ["os-services"]:
                wanted = re.search(r"host=(\w+)", query)
                found = [v for k, v in self.services.items() if not wanted or wanted[1] == k]
                return {"services": found}
            case ["os-aggregates"]:
                return {"aggregates": self.aggregates}
            case ["os-server-groups"]:
                return {"server_groups": [] if "offset=0" not in query else self.groups}
            case ["servers"] | ["servers", "detail"]:
                return {"servers": [] if "marker=" in query else list(self.servers.values())}
            case ["os-migrations"]:
                wanted = re.search(r"instance_uuid=([^&]+)", query)
                assert wanted, query
                kind = re.search(r"migration_type=([^&]+)", query)
                return {
                    "migrations": [
                        each
                        for each in self.migrations
                        if each["instance_uuid"] == wanted[1]
                        and (not kind or each["migration_type"] == kind[1])
                    ]
                }
            case ["servers", server, *rest]:
                return self._of_server(self._known(server), rest)
        raise Refusal(404, f"no {path}")

    def _of_server(self, server: dict[str, Any], rest: list[str]) -> Any:  # noqa: ANN401 - JSON
        actions = [each for each in self.actions if each["instance_uuid"] == server["id"]]
        match rest:
            case []:
                return {"server": server}
            case ["os-instance-actions"]:
                return {"instanceActions": actions[::-1]}
            case ["os-instance-actions", request]:
                (found,) = [each for each in actions if each["request_id"] == request]
                return {"instanceAction": found}
            case ["migrations", number]:
                found = self._migration(number)
                memory = {"memory_total_bytes": 4096, "memory_remaining_bytes": 1024}
                return {"migration": {**found, **memory}}
        raise Refusal(404, f"no {rest}")

    def change(self, verb: str, path: str, body: Any) -> None:  # noqa: ANN401 - JSON
        """Answer what changes something."""
        self.asked.append(f"{verb} {path} {json.dumps(body)}")
        match [verb, *path.strip("/").split("/")]:
            case ["PUT", "os-services", name]:
                (service,) = [v for v in self.services.values() if v["id"] == name]
                service.update(body)
                if body.get("status") == "enabled":
                    service["disabled_reason"] = None
            case ["POST", "servers", server, "metadata"]:
                found = self._known(server)
                if found["status"] not in MARKABLE or found["OS-EXT-STS:task_state"]:
                    raise Refusal(409, f"Cannot update metadata while it is {found['status']}")
                found["metadata"].update(body["metadata"])
            case ["POST", "servers", server, "action"]:
                ((name, said),) = body.items()
                to = said.get("host") if isinstance(said, dict) else None
                self._act(self._known(server), name, to or "h2")
            case ["POST", "servers", server, "migrations", number, "action"]:
                self._end_migration(server, number, "completed")
            case ["DELETE", "servers", server, "migrations", number]:
                self._end_migration(server, number, "cancelled")
            case ["DELETE", "servers", server]:
                self._known(server)
                del self.servers[server]
            case _:
                raise Refusal(404, f"no {verb} {path}")

    def _act(self, server: dict[str, Any], verb: str, to: str) -> None:
        if server["OS-EXT-STS:task_state"]:
            raise Refusal(409, f"Cannot '{verb}' while in task_state")
        action, status = VERBS[verb]
        failing = verb in self.failing
        self.record(server["id"], action, keystone.USER, "Error" if failing else "Success")
        if verb in KINDS:
            result = "error" if failing else "running" if verb in self.holding else "completed"
            self.migrations.append(
                {"id": next(self._numbers), "instance_uuid": server["id"], "status": result,
                 "migration_type": KINDS[verb], "dest_compute": to}
            )  # fmt: skip
        if verb in self.holding:
            server["OS-EXT-STS:task_state"] = f"{action}-ing"
            self.actions[-1]["events"][0]["finish_time"] = None
        elif not failing:
            server["status"] = status
            if verb in KINDS:
                server["OS-EXT-SRV-ATTR:host"] = to

    def _end_migration(self, server: str, number: str, status: str) -> None:
        self._migration(number)["status"] = status
        found = self._known(server)
        found["OS-EXT-STS:task_state"] = None
        self.actions[-1]["events"][0]["finish_time"] = "2026-01-01T00:00:00"
        if status == "completed":
            found["OS-EXT-SRV-ATTR:host"] = "h2"

    def _migration(self, number: str) -> dict[str, Any]:
        return next(each for each in self.migrations if str(each["id"]) == number)

    def _known(self, server: str) -> dict[str, Any]:
        if server not in self.servers:
            raise Refusal(404, f"Instance {server} could not be found.")
        return self.servers[server]


class Handler(BaseHTTPRequestHandler):
    """Speaks HTTP, for the cloud that is its server's."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def answer(self) -> None:
        """Answer a request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        if path.startswith("/identity"):
            self._identity(body)
            return
        status, said = self._nova(path.removeprefix("/v2.1"), query, body)
        cloud = self.server.cloud
        if cloud.answered_max >= 0:
            cloud.answered_max -= 1
            if cloud.answered_max < 0:
                self.close_connection = True
                return
        self._send(status, json.dumps(said).encode())

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - as the library wants it

    def _nova(self, path: str, query: str, body: bytes) -> tuple[int, object]:
        cloud = self.server.cloud
        if cloud.refusing:
            return _refusal(cloud.refusing.pop(0), "not now")
        try:
            if self.command == "GET":
                return 200, cloud.get(path, query)
            cloud.change(self.command, path, json.loads(body or b"null"))
        except Refusal as refusal:
            return _refusal(refusal.status, str(refusal))
        return 202, {}

    def _identity(self, body: bytes) -> None:
        environ = {
            "HTTP_HOST": self.headers["Host"],
            "REQUEST_METHOD": self.command,
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": BytesIO(body),
        }
        told: list[tuple[str, list[tuple[str, str]]]] = []
        said = keystone.answer(environ, lambda status, headers: told.append((status, headers)))
        status, headers = told[0]
        self._send(int(status.split()[0]), b"".join(said), *headers)

    def _send(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, text in headers or (("Content-Type", "application/json"),):
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *words: object) -> None:  # noqa: A002
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """One thread a connection."""

    daemon_threads = True

    def __init__(self, cloud: SmallCloud) -> None:
        """Listen on a free port."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.cloud = cloud


def _refusal(status: int, text: str) -> tuple[int, object]:
    return status, {"kind": {"code": status, "message": text}}


@contextmanager
def serving(directory: Path) -> Iterator[SmallCloud]:
    """Serve a cloud; write its `clouds.yaml` into a directory."""
    cloud = SmallCloud()
    server = Server(cloud)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    path = directory / "clouds.yaml"
    path.write_text(keystone.clouds_yaml(server.server_port))
    cloud.clouds_file = str(path)
    try:
        yield cloud
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
