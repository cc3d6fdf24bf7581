"""uvicorn still has the undocumented parts that the adapter uses.

When one of these tests fails, compare `forewarn/api/uvicorn_adapter.py` with uvicorn's source
before you look at any other failure.
"""

import asyncio
import inspect
import tomllib
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forewarn_server.api.uvicorn_adapter import EmbeddedServer, HttpProtocol

ROOT = Path(__file__).resolve().parents[2]
OVERRIDDEN = {
    HttpToolsProtocol: {
        "connection_lost": ["self", "exc"],
        "send_400_response": ["self", "msg"],
        "on_response_complete": ["self"],
        "timeout_keep_alive_handler": ["self"],
        "_start_asgi_task": ["self", "cycle", "app"],
    },
    uvicorn.Server: {
        "startup": ["self", "sockets"],
        "shutdown": ["self", "sockets"],
        "capture_signals": ["self"],
    },
}
#: Who calls what is overridden: without the call an override would do nothing.
CALLS = [
    (HttpToolsProtocol, "data_received", "send_400_response"),
    (HttpToolsProtocol, "on_headers_complete", "_start_asgi_task"),
    (HttpToolsProtocol, "on_headers_complete", "on_response_complete"),
    (HttpToolsProtocol, "on_response_complete", "_start_asgi_task"),
    (HttpToolsProtocol, "on_response_complete", "timeout_keep_alive_handler"),
    (uvicorn.Server, "serve", "capture_signals"),
    (uvicorn.Server, "_serve", "startup"),
    (uvicorn.Server, "_serve", "shutdown"),
]


@pytest.mark.parametrize("kind", OVERRIDDEN)
def test_uvicorn_has_the_methods_that_the_adapter_overrides(kind: type) -> None:
    """Each takes what it took when the adapter was written."""
    methods = {name: getattr(kind, name, None) for name in OVERRIDDEN[kind]}
    assert all(methods.values()), methods
    taken = {name: [*inspect.signature(each).parameters] for name, each in methods.items() if each}
    assert taken == OVERRIDDEN[kind]


@pytest.mark.parametrize(("kind", "caller", "called"), CALLS)
def test_uvicorn_calls_the_methods_that_the_adapter_overrides(
    kind: type, caller: str, called: str
) -> None:
    """Nobody would notice that an override is no longer called."""
    assert f"self.{called}" in inspect.getsource(getattr(kind, caller))


def test_uvicorn_keeps_what_the_adapter_reads() -> None:
    """Of the server, of a connection and of a request."""

    async def made() -> tuple[EmbeddedServer, HttpProtocol]:
        server = EmbeddedServer(Starlette(), 1)
        return server, HttpProtocol(server)

    server, connection = asyncio.run(made())
    assert {"connections", "tasks"} <= vars(server.server_state).keys()
    assert {"started", "should_exit", "server_state"} <= vars(server).keys()
    assert {"flow", "headers", "parser", "pipeline", "scope", "transport"} <= vars(
        connection
    ).keys()
    cycle = inspect.getsource(RequestResponseCycle.__init__)
    for name in ("disconnected", "response_complete", "message_event"):
        assert f"self.{name} = " in cycle, name


def test_uvicorn_is_allowed_up_to_the_next_minor_version() -> None:
    """A newer one is compared with the adapter first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (bound,) = (each for each in project["optional-dependencies"]["server"] if "uvicorn" in each)
    major, minor, *_ = uvicorn.__version__.split(".")
    assert bound.endswith(f"<{major}.{int(minor) + 1}")
