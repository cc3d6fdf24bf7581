"""Nova itself, served over HTTP: real API, conductor, scheduler and placement, fake hypervisors.

It runs in the environment that `make test-nova` installs, not in this project's, and is started by
`cloud.py`. Keystone's middleware is left out: the headers say who asks. `POST /test/VERB` does
what no API can: it starts, stops and slows hypervisors.
"""

import json
import os
import socketserver
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"
os.environ["OS_LOG_CAPTURE"] = "0"

from nova.tests.functional import integrated_helpers
from nova.virt import fake

from openstack_tests import keystone

#: Computes, in the order in which they are started.
HOSTS = ("h1", "h2", "h3")
ADMIN = {"HTTP_X_AUTH_USER": keystone.USER, "HTTP_X_ROLES": "reader,member,admin"}
#: Longest live migration that is held back, in seconds.
HELD_S = 120.0
PAUSE = threading.Event()
#: Longest creation of a server, in seconds.
CREATED_S = 60.0


class Hypervisor(fake.MediumFakeDriver):  # type: ignore[misc]
    """Nova's fake hypervisor, which counts reboots and holds migrations back when it is asked."""

    holding = False
    #: The task that had marked the server, at each reboot; one list for all hypervisors.
    reboots: list[str] = []  # noqa: RUF012

    def __init__(self, *words: Any, **named: Any) -> None:  # noqa: ANN401 - Nova's
        super().__init__(*words, **named)
        self._told: dict[str, str] = {}

    def reboot(self, context: Any, instance: Any, *words: Any, **named: Any) -> None:  # noqa: ANN401
        """Count it."""
        operation, attempt, *_ = instance.metadata.get("forewarn", "nobody@ 0").split(" ")
        Hypervisor.reboots.append(f"{operation.partition('@')[0]}/{attempt}")
        super().reboot(context, instance, *words, **named)

    def live_migration(
        self,
        context: Any,  # noqa: ANN401
        instance: Any,  # noqa: ANN401
        dest: str,
        post_method: Any,  # noqa: ANN401
        recover_method: Any,  # noqa: ANN401
        block_migration: bool = False,
        migrate_data: Any = None,  # noqa: ANN401
    ) -> None:
        """Migrate, once nobody holds it back; report how far it is, as a real one does."""
        migration = migrate_data.migration
        migration.memory_total, migration.memory_processed = 4096, 1024
        migration.memory_remaining = 3072
        migration.save()
        until = time.monotonic() + HELD_S
        while Hypervisor.holding and time.monotonic() < until and instance.uuid not in self._told:
            PAUSE.wait(0.02)
        if self._told.pop(instance.uuid, "") == "abort":
            recover_method(context, instance, dest, migrate_data, migration_status="cancelled")
            return
        post_method(context, instance, dest, block_migration, migrate_data)

    def post_live_migration(self, context: Any, instance: Any, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Forget what has left."""
        self.destroy(context, instance, network_info=None)

    def live_migration_force_complete(self, instance: Any) -> None:  # noqa: ANN401
        """Let it end."""
        self._told[instance.uuid] = "end"

    def live_migration_abort(self, instance: Any) -> None:  # noqa: ANN401
        """Let it end where it began."""
        self._told[instance.uuid] = "abort"


class Cloud(integrated_helpers._IntegratedTestBase):  # type: ignore[misc]
    """Everything that Nova's own functional tests start."""

    ADMIN_API = True
    CAST_AS_CALL = False
    microversion = "latest"

    def setUp(self) -> None:
        """Start it, with hypervisors of ours."""
        fake.Hypervisor = Hypervisor
        self.flags(compute_driver="fake.Hypervisor", service_down_time=3600)
        self.flags(instances=-1, cores=-1, ram=-1, group="quota")
        paste = Path(sys.prefix) / "etc" / "nova" / "api-paste.ini"
        self.flags(api_paste_config=str(paste), group="wsgi")
        super().setUp()

    def _setup_compute_service(self) -> Any:  # noqa: ANN401
        computes = [self._start_compute(each) for each in HOSTS]
        return computes[0]

    def runTest(self) -> None:  # noqa: N802 - unittest's
        """Be a test, which Nova's base class wants."""

    # --- what no API can do ---------------------------------------------------------------

    def verb_server(self, said: dict[str, Any]) -> Any:  # noqa: ANN401
        """Create a server that runs."""
        body = self._build_server(said["name"], networks="none", host=said.get("host"))
        form = {"server": body}
        if "group" in said:
            form["os:scheduler_hints"] = {"group": said["group"]}
        made = self.api.post_server(form)["id"]
        until = time.monotonic() + CREATED_S
        while (status := self.api.get_server(made)["status"]) == "BUILD":
            assert time.monotonic() < until, "it is still being built"
            PAUSE.wait(0.05)
        assert status == "ACTIVE", status
        return made

    def verb_hold(self, said: dict[str, Any]) -> None:
        """Hold live migrations back, or let them go."""
        Hypervisor.holding = said["on"]

    def verb_reboots(self, said: dict[str, Any]) -> int:
        """Say how often a task has rebooted a server."""
        return Hypervisor.reboots.count(said["task"])

    def verb_down(self, said: dict[str, Any]) -> None:
        """End a compute service, as its host's failure does."""
        self.computes[said["host"]].stop()
        self.admin_api.put_service_force_down(self.services()[said["host"]], True)

    def verb_up(self, said: dict[str, Any]) -> None:
        """Have a compute service run again."""
        self.computes[said["host"]].start()
        self.admin_api.put_service_force_down(self.services()[said["host"]], False)

    def services(self) -> dict[str, str]:
        """Return the ids of the compute services."""
        found = self.admin_api.get_services(binary="nova-compute")
        return {each["host"]: each["id"] for each in found}


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """One thread a connection."""

    daemon_threads = True


class Quiet(WSGIRequestHandler):
    """No line for each request."""

    def log_message(self, format: str, *words: Any) -> None:  # noqa: A002, ANN401
        """Say nothing."""


def serve(cloud: Cloud) -> None:
    """Serve it until standard input ends."""
    nova = cloud.api_fixture.app()

    def app(environ: dict[str, Any], start: Any) -> Any:  # noqa: ANN401 - WSGI
        path = environ["PATH_INFO"]
        if path.startswith("/test/"):
            size = int(environ.get("CONTENT_LENGTH") or 0)
            said = json.loads(environ["wsgi.input"].read(size) or b"{}")
            try:
                answer = getattr(cloud, f"verb_{path.removeprefix('/test/')}")(said)
            except Exception as error:  # noqa: BLE001 - whoever asked is told
                start("500 Failed", [("Content-Type", "text/plain")])
                return [repr(error).encode()]
            return keystone.said(start, "200 OK", answer)
        if path.startswith("/identity"):
            return keystone.answer(environ, start)
        if environ.get("HTTP_X_AUTH_TOKEN") not in {None, keystone.TOKEN}:
            return keystone.said(start, "401 Unauthorized", {})
        environ.update(ADMIN, HTTP_X_AUTH_PROJECT_ID=keystone.PROJECT)
        return nova(environ, start)

    server = make_server("127.0.0.1", 0, app, server_class=Server, handler_class=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_port}), flush=True, file=sys.__stdout__)
    sys.stdin.read()


if __name__ == "__main__":
    try:
        made = Cloud()
        made.setUp()
        serve(made)
    except BaseException:  # noqa: BLE001 - Nova's threads would keep the process
        traceback.print_exc(file=sys.__stderr__)
        os._exit(1)
    os._exit(0)
