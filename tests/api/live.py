"""A whole service on loopback, with a clock driven by hand, for tests through the operator API."""

import asyncio
import http.client
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Self, TypeAlias

from forewarn_base.ids import Ids
from forewarn_base.settings import (
    DriverSettings,
    ListenSettings,
    MetadataSettings,
    OperatorSettings,
    Settings,
    StoreSettings,
)
from forewarn_core.access.roles import Role
from forewarn_core.access.stimulus import AddToken
from forewarn_core.access.tokens import AccessToken, digest_of, written_token
from forewarn_server.api.server import OperatorServer
from forewarn_server.control.plane import StateView
from forewarn_server.service.daemon import Daemon
from forewarn_server.service.hooks import NO_HOOKS, ServiceHooks
from forewarn_server.service.reload import Reload
from tests.asking import EVENTS, Reply, ask
from tests.clock import VirtualClock
from tests.waiting import LIMIT_S, wait_until

#: What a service answers; a test knows what it expects.
Json: TypeAlias = Any

#: When every service of a test begins: 15 January 2027, 08:00 UTC.
NOW_MS = 1_800_000_000_000
#: The token of anna, an admin of every service of a test that is not open.
TOKEN = written_token("anna", "secret-of-anna")

SETTINGS = Settings(
    listen=ListenSettings(metadata=("127.0.0.1:0",), operator="127.0.0.1:0"),
    metadata=MetadataSettings(rate_per_s=0.0, vm_by_query=True),
    operator=OperatorSettings(open_on_loopback=True),
    store=StoreSettings(url="sqlite::memory:"),
    drivers=DriverSettings(default="manual"),
)


def rereading(read: Callable[[], Settings]) -> ServiceHooks:
    """Return the hooks of a service that reads other settings at a reload."""
    return ServiceHooks(reload=partial(Reload, read=read))


class Live:
    """A running service; its clock moves only when a test moves it."""

    def __init__(
        self,
        settings: Settings = SETTINGS,
        *,
        starts_s: float = LIMIT_S,
        hooks: ServiceHooks = NO_HOOKS,
    ) -> None:
        """Start it; a large fleet needs more than `LIMIT_S`."""
        self.clock = VirtualClock(NOW_MS)
        self._settings = settings
        self._hooks = hooks
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._also: list[OperatorServer] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(starts_s), "the service does not start"
        if self._failure:
            raise self._failure
        assert self.daemon.bound is not None
        if not settings.operator.open_on_loopback:
            self.add_token("anna", Role.ADMIN)
        self.metadata_url = self.daemon.bound.metadata[0]
        self.url = self.daemon.bound.operator
        if self.url.startswith("unix:"):
            return
        self.host, self.port = self.url.removeprefix("http://").rsplit(":", 1)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        ids = Ids(seed=1)
        try:
            self.daemon = Daemon(self._settings, clock=self.clock, ids=ids, hooks=self._hooks)
            await self.daemon.start()
        except BaseException as error:  # noqa: BLE001 - raised again on the test's thread
            self._failure = error
            return
        finally:
            self._started.set()
        await self.daemon.ended.wait()
        for server in self._also:
            await server.stop()
        await self.daemon.stop()

    def add_token(
        self, name: str, role: Role, owner: str = "", *, expires_ms: int | None = None
    ) -> str:
        """Create a token with a principal's name as its id, and return it."""
        secret = f"secret-of-{name}"
        token = AccessToken(name, name, role, owner, digest_of(secret), NOW_MS, expires_ms)
        self.daemon.control.submit(AddToken(token), "test").result(LIMIT_S)
        return written_token(name, secret)

    def stop(self) -> None:
        """Stop it."""
        self._loop.call_soon_threadsafe(self.daemon.ended.set)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the service does not stop"

    def beside(self, starting: Coroutine[object, object, OperatorServer]) -> str:
        """Run another operator API beside the service's own, and return its address."""
        server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(LIMIT_S)
        self._also.append(server)
        return server.address

    def also(self, starting: Coroutine[object, object, OperatorServer]) -> None:
        """Send calls to another operator API, which runs beside the service's own."""
        address = self.beside(starting)
        self.host, self.port = address.removeprefix("http://").rsplit(":", 1)

    def settle(self) -> None:
        """Wait until the control loop has done everything that it was asked for so far.

        Publishing comes back to its inbox by way of the event loop, so both are asked in turn.
        """
        for _ in range(4):
            self.daemon.control.read(lambda _: None).result(LIMIT_S)
            asyncio.run_coroutine_threadsafe(_nothing(), self._loop).result(LIMIT_S)

    def planned(self) -> None:
        """Wait until every maintenance has the plan that it wants, and what follows is done.

        Plans are made by another process, for which `settle` does not wait.
        """
        wait_until(lambda: not self.daemon.control.read(_wants_plan).result(LIMIT_S))
        self.settle()

    def advance(self, seconds: float) -> None:
        """Let time pass, and let the service do what is due."""
        self.settle()
        self.clock.advance(int(seconds * 1000))
        self.settle()

    def __enter__(self) -> Self:
        """Serve already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def call(
        self,
        method: str,
        path: str,
        form: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """Send one request and return what came back."""
        address = f"{self.host}:{self.port}"
        return ask(address, method, path, form, headers=headers, body=body)

    def stream(self, path: str, token: str) -> http.client.HTTPResponse:
        """Return the answer to a GET that goes on, read as far as its head."""
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=LIMIT_S)
        headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
        connection.request("GET", path, headers=headers)
        return connection.getresponse()

    def get(self, path: str) -> Json:
        """Return what a GET answers with 200."""
        reply = self.call("GET", path)
        assert reply.status == 200, reply
        return reply.json

    def post(self, path: str, **form: object) -> Json:
        """Return what a POST answers with 200 or 202."""
        reply = self.call("POST", path, form)
        assert reply.status in {200, 202}, reply
        return reply.json

    def fleet(self, **parts: Mapping[str, object]) -> None:
        """Apply a topology."""
        reply = self.call("PUT", "/v1/topology", parts)
        assert reply.status == 200, reply

    def enable(self, *vms: str) -> None:
        """Have these VMs ask for their document, so that their groups are enabled."""
        for vm in vms:
            self.document(vm)
        self.settle()

    def document(self, vm: str) -> Json:
        """Return what a VM reads at the metadata port."""
        address = self.metadata_url.removeprefix("http://").partition("/")[0]
        reply = ask(address, "GET", f"{EVENTS}&vm={vm}")
        assert reply.status == 200, reply
        return reply.json


def _wants_plan(view: StateView) -> bool:
    return any(each.plan_wanted for each in view.state.maintenances.values())


async def _nothing() -> None:
    pass


#: Two hosts of two fault domains; one group on both, one on the first.
FLEET: dict[str, dict[str, dict[str, object]]] = {
    "hosts": {"h1": {}, "h2": {"fault_domain": 1}},
    "groups": {"web": {"owner": "shop"}, "db": {}},
    "vms": {
        "web-0": {"host": "h1", "group": "web", "spot": True},
        "web-1": {"host": "h2", "group": "web"},
        "db-0": {"host": "h1", "group": "db"},
    },
}
