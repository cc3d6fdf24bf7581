"""A small metadata service for the tests of the agent, for one VM.

It is the server of the client suite, which can also hold polls, and answer once in any odd way.
"""

from collections.abc import Callable
from typing import Self, TypeAlias

from forewarn_base.protocol.approvals import read_approval
from forewarn_base.protocol.versions import VERSIONS
from forewarn_conformance.client_server import PlayedHandler, PlayedServer
from tests.waiting import LIMIT_S


class Service(PlayedServer):
    """Listens on a free port of the loopback and shows what the test publishes."""

    def __init__(
        self, *, versions: tuple[str, ...] = VERSIONS, waits: bool = True, name: str = "vm_0"
    ) -> None:
        """Show nothing yet.

        Args:
            versions: The api-versions it knows.
            waits: Whether it holds an answer when asked to.
            name: What it calls the VM that asks; empty to know no names.
        """
        self.waits = waits
        self.approvals: list[str] = []
        self.requests: list[str] = []
        self.faults: list[Fault] = []
        super().__init__(lambda _: True, Handler)
        self.versions = versions
        self.name = name

    def accepted(self, body: bytes) -> None:
        """Note what is approved."""
        with self.lock:
            self.approvals += read_approval(body)
            self.lock.notify_all()

    def until(self, true: Callable[[], object], what: str = "it") -> None:
        """Wait until something is true of the requests that have come."""
        with self.lock:
            assert self.lock.wait_for(true, LIMIT_S), f"{what} did not happen"

    def __enter__(self) -> Self:
        """Serve."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.close()


class Handler(PlayedHandler):
    """Notes each request, and answers with the next fault, if there is one."""

    played: Service

    def _poll(self, query: dict[str, list[str]]) -> None:
        played = self.played
        if self._faulty("GET"):
            return
        if played.waits and "wait" in query:
            with played.lock:
                played.lock.wait_for(
                    lambda: played.incarnation != int(query["incarnation"][0]),
                    min(float(query["wait"][0]), LIMIT_S),
                )
        if not self._refuse_invalid(query):
            self._answer(200, played.document(query["api-version"][0]))

    def _instance(self, path: str) -> None:
        if not self._faulty("GET"):
            super()._instance(path if self.played.name else "")

    def _faulty(self, method: str) -> bool:
        played = self.played
        with played.lock:
            played.requests.append(f"{method} {self.path}")
            fault = played.faults.pop(0) if played.faults else None
            played.lock.notify_all()
        if fault is not None:
            fault(self)
        return fault is not None


#: Answers in the place of the service, once.
Fault: TypeAlias = Callable[[Handler], None]


def status(code: int, body: bytes = b"", **headers: str) -> Fault:
    """Return the fault of answering with a status."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return lambda handler: handler._answer(code, body, named)


def reset(handler: Handler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


def cut(handler: Handler) -> None:
    """Close the connection in the middle of the answer."""
    handler._answer(200, handler.played.document(VERSIONS[-1]), cut=True)
