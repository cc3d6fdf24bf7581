"""The SDK's handler: an application's functions are called as the agent calls its hooks."""

import asyncio
import contextlib
import logging
import queue
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import forewarn
from forewarn.agent.journal import JournalLost
from forewarn_base.protocol.documents import ScheduledEvent
from tests.agent.making import event
from tests.agent.service import Service
from tests.waiting import LIMIT_S, wait_until

REBOOT = event(not_before_ms=4_000_000_000_000)


class Application:
    """Two functions, and what was called; `prepare` fails or blocks where it is to."""

    def __init__(self, service: Service, directory: Path) -> None:
        self.calls: queue.Queue[str] = queue.Queue()
        self.fails = self.blocks = False
        self.handler = forewarn.Handler(
            self.prepare, self.recover, state_dir=directory / "state", endpoint=service.endpoint
        )

    def prepare(self, event: ScheduledEvent) -> None:
        """Prepare."""
        self.calls.put(f"prepare {event.event_id}")
        if self.blocks:
            assert self.handler.cancelled.wait(LIMIT_S)
        if self.fails:
            raise ValueError("no replica is ready")

    def recover(self, event: ScheduledEvent) -> None:
        """Recover."""
        self.calls.put(f"recover {event.event_id}")

    def called(self) -> str:
        """Wait for the next call and return it."""
        return self.calls.get(timeout=LIMIT_S)


@pytest.fixture
def application(service: Service, tmp_path: Path) -> Application:
    """Make an application whose handler does not run yet."""
    return Application(service, tmp_path)


def test_handler_prepares_approves_and_recovers(service: Service, application: Application) -> None:
    """Plain functions are called around the approval. Source: C-2, C-4."""
    with application.handler as handler:
        service.show(REBOOT)
        service.until(lambda: service.approvals, "the approval")
        assert application.called() == "prepare E1"
        assert handler.prepared == ("E1",)
        service.show()
        assert application.called() == "recover E1"
        wait_until(lambda: not handler.prepared, what="the end")


def test_coroutines_run_on_the_event_loop_of_the_application(
    service: Service, tmp_path: Path
) -> None:
    """`async with` takes coroutine functions, and stops while the loop goes on."""
    calls: list[tuple[str, object]] = []

    async def act(event: ScheduledEvent) -> None:
        calls.append((event.event_id, asyncio.get_running_loop()))

    async def serve() -> object:
        state = tmp_path / "state"
        async with forewarn.Handler(act, act, state_dir=state, endpoint=service.endpoint):
            service.show(REBOOT)
            await asyncio.to_thread(service.until, lambda: service.approvals)
        return asyncio.get_running_loop()

    loop = asyncio.run(serve())
    assert calls == [("E1", loop)]


def test_event_is_not_approved_when_prepare_raises(
    service: Service, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    """The application's error is in its own log, and the event comes at its time."""
    application.fails = True
    with caplog.at_level(logging.INFO, logger="forewarn"), application.handler:
        service.show(REBOOT)
        wait_until(lambda: "action=held" in caplog.text, what="hold")
    assert "no replica is ready" in caplog.text
    assert service.approvals == []


def test_prepare_is_cancelled_when_its_event_is_over(
    service: Service, application: Application
) -> None:
    """A long function is asked to end, and what it did is undone. Source: C-6."""
    application.blocks = True
    with application.handler:
        service.show(REBOOT)
        assert application.called() == "prepare E1"
        service.show()
        assert application.called() == "recover E1"
    assert service.approvals == []


def test_call_that_stop_cut_off_is_made_again(
    service: Service, application: Application, tmp_path: Path
) -> None:
    """The next process prepares again, and only then approves. Source: C-9."""
    application.blocks = True
    with application.handler:
        service.show(REBOOT)
        assert application.called() == "prepare E1"
    assert service.approvals == []
    after = Application(service, tmp_path)
    assert after.handler.prepared == ("E1",)
    with after.handler:
        assert after.called() == "prepare E1"
        service.until(lambda: service.approvals, "the approval")


def test_second_handler_with_the_same_directory_is_refused(
    service: Service, application: Application, tmp_path: Path
) -> None:
    """Two processes never prepare for one event with one journal."""
    with application.handler, pytest.raises(forewarn.CallerError, match="already uses"):
        Application(service, tmp_path).handler.start()


def test_coroutine_function_without_event_loop_is_refused(tmp_path: Path) -> None:
    """The error says how to start it."""

    async def act(event: ScheduledEvent) -> None:
        raise NotImplementedError

    with pytest.raises(ValueError, match="async with"):
        forewarn.Handler(act, act, state_dir=tmp_path).start()


def test_argument_that_cannot_be_called_is_named(tmp_path: Path) -> None:
    """A call in place of the function is a usual slip."""
    with pytest.raises(ValueError, match="recover must be a function"):
        forewarn.Handler(print, None, state_dir=tmp_path)  # type: ignore[arg-type]


def drain_helper(name: str) -> Callable[..., Any]:
    """Return a class of the how-to's last example."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "handle-events.md"
    names: dict[str, Any] = {}
    text = page.read_text("utf-8").rpartition("```python\n")[2]
    exec(text.partition("```")[0], names)
    return names[name]  # type: ignore[no-any-return]


def ask_wsgi(application: Callable[..., Any], path: str) -> Generator[bytes, None, None]:
    """Ask; the answer's status comes first, then its parts as the application makes them."""
    statuses: list[bytes] = []
    parts = application({"PATH_INFO": path}, lambda status, _: statuses.append(status.encode()))
    first = next(parts, b"")
    yield statuses[0]
    yield first
    yield from parts


def test_wsgi_helper_drains_before_the_approval(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that have begun end first, and the load balancer is refused meanwhile."""
    monkeypatch.setenv("FOREWARN_ENDPOINT", service.endpoint)

    def shop(environ: object, start_response: Callable[..., object]) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"a"
        yield b"b"

    drain = drain_helper("Drain")(shop, tmp_path / "state", wait_s=0)
    with contextlib.closing(ask_wsgi(drain, "/")) as request, drain.handler:
        assert [next(request), next(request)] == [b"200 OK", b"a"]
        service.show(REBOOT)
        wait_until(lambda: drain.drained, what="drained")
        assert next(ask_wsgi(drain, "/ready")) == b"503 Draining"
        assert service.approvals == []
        assert list(request) == [b"b"]
        service.until(lambda: service.approvals, "the approval")
        service.show()
        wait_until(lambda: not drain.drained, what="recovered")
    assert next(ask_wsgi(drain, "/ready")) == b"200 OK"


def test_asgi_helper_answers_and_counts(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load balancer's question is answered; everything else reaches the application."""
    monkeypatch.setenv("FOREWARN_ENDPOINT", service.endpoint)
    sent: list[dict[str, object]] = []
    busy: list[int] = []

    async def shop(scope: object, receive: object, send: object) -> None:
        busy.append(drain.busy)

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    drain = drain_helper("AsgiDrain")(shop, tmp_path / "state")
    with drain.handler:
        asyncio.run(drain({"type": "http", "path": "/"}, None, send))
        asyncio.run(drain({"type": "http", "path": "/ready"}, None, send))
    assert (busy, drain.busy, sent[0]["status"]) == ([1], 0, 200)


def no_argument() -> None:
    """Take no event."""


def two_arguments(event: ScheduledEvent, more: object) -> None:
    """Take too much."""


def keyword(event: ScheduledEvent, *, now: bool) -> None:
    """Need what nobody gives."""


async def no_event() -> None:
    """Take no event, on an event loop."""


class WithoutArgument:
    """A class whose instances take no event."""

    def __call__(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("name", ["prepare", "recover"])
@pytest.mark.parametrize(
    "function",
    [no_argument, two_arguments, keyword, no_event, WithoutArgument()],
    ids=["none", "two", "keyword", "coroutine", "object"],
)
def test_function_that_takes_no_event_is_refused_at_once(
    tmp_path: Path, function: object, name: str
) -> None:
    """The first event would be too late to notice it."""
    functions: dict[str, Any] = {"prepare": print, "recover": print, name: function}
    with pytest.raises(ValueError, match=f"{name} must be a function with the event"):
        forewarn.Handler(**functions, state_dir=tmp_path)


@pytest.mark.parametrize(
    "function",
    [print, lambda *events: events, lambda event, now=True: (event, now), str.upper, dict],
    ids=["print", "any number", "default", "method", "class"],
)
def test_function_that_takes_an_event_is_taken(
    tmp_path: Path, function: Callable[[ScheduledEvent], object]
) -> None:
    """Defaults, any number of arguments, and functions without a signature are all right."""
    forewarn.Handler(function, function, state_dir=tmp_path)


@pytest.mark.parametrize("endpoint", ["https://x", "localhost:8169", "http://", "http://x/other"])
def test_wrong_endpoint_is_refused_at_once(
    tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an argument, and in the environment. Source: C-8."""
    with pytest.raises(ValueError, match="is not an endpoint"):
        forewarn.Handler(print, print, state_dir=tmp_path, endpoint=endpoint)
    monkeypatch.setenv("FOREWARN_ENDPOINT", endpoint)
    with pytest.raises(ValueError, match="is not an endpoint"):
        forewarn.Handler(print, print, state_dir=tmp_path)


def test_handler_that_cannot_go_on_says_so(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`run` raises what ended it; elsewhere the log has it, and it can be started again."""
    state = tmp_path / "state"
    (state / "journal.0").mkdir(parents=True)
    state.chmod(0o700)
    handler = forewarn.Handler(print, print, state_dir=state, endpoint=service.endpoint)
    with pytest.raises(JournalLost):
        handler.run()
    with handler:
        wait_until(lambda: caplog.text.count("action=handler-failed") == 2, what="the log")
    (state / "journal.0").rmdir()
    with handler:
        service.until(lambda: service.requests)
