"""Where the operator API listens: addresses, left-over sockets, and who may open them."""

import asyncio
import socket
import stat
from pathlib import Path

import pytest
from starlette.applications import Starlette

from forewarn_server.api.listener import (
    AZURE,
    METRICS,
    OPERATOR,
    OperatorAddressTaken,
    OperatorAddressUnusable,
    Purpose,
    check_address,
    clean_up,
    name_of,
    open_listener,
)
from forewarn_server.api.server import start_operator
from tests.waiting import LIMIT_S

NOBODY = Starlette()

needs_unix = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8470",
        "example.net:8470",
        "[localhost]:8470",
        "127.0.0.1",
        "127.0.0.1:99999",
        "::1:8470",
        "unix:",
        "1.2.3.4:x",
    ],
)
def test_operator_address_that_is_none_is_refused(text: str) -> None:
    """An address is IPV4:PORT, [IPV6]:PORT or unix:PATH, and nothing else."""
    with pytest.raises(OperatorAddressUnusable, match="the address is not IPV4:PORT"):
        check_address(text)


def test_operator_address_may_be_localhost() -> None:
    """What everybody types for this machine is understood; no other name is looked up."""
    assert check_address("localhost:8470") == ("127.0.0.1", 8470)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_operator_listener_says_where_it_is(host: str) -> None:
    """Port 0 takes a free one; the name is what --server takes."""
    with open_listener(f"{host}:0") as listener:
        assert name_of(listener) == f"http://{host}:{listener.getsockname()[1]}"


def test_operator_address_that_is_taken_is_refused() -> None:
    """A port somebody listens on is an error that names the address."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(OperatorAddressUnusable, match="in use"):
            open_listener(address)


@needs_unix
def test_operator_socket_file_is_replaced_and_removed(tmp_path: Path) -> None:
    """A socket left by a killed service is not an obstacle; strangers may not open the new one."""
    path = tmp_path / "operator"
    open_listener(f"unix:{path}").close()  # closed, and its file left behind
    with open_listener(f"unix:{path}") as listener:
        assert name_of(listener) == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    clean_up(f"unix:{path}")
    assert not path.exists()


@needs_unix
def test_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    """Whatever else stands at the path is not ours to remove."""
    path = tmp_path / "precious"
    path.write_text("mine")
    with pytest.raises(OperatorAddressUnusable, match="in use"):
        open_listener(f"unix:{path}")
    clean_up(f"unix:{path}")
    assert path.read_text() == "mine"


@pytest.mark.parametrize("purpose", [OPERATOR, AZURE, METRICS], ids=lambda each: each.server)
def test_refused_address_names_what_was_to_be_served(purpose: Purpose) -> None:
    """Three servers are started alike; who reads the sentence must know which one it is."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(OperatorAddressUnusable) as refused:
            open_listener(address, purpose)
    assert str(refused.value).startswith(f"{purpose.server} cannot listen on {address}: ")
    assert purpose.setting in refused.value.advice_text()


def test_server_whose_port_is_taken_meanwhile_is_refused() -> None:
    """Two may bind one port, and one may listen; the other says so and does not wait for ever."""

    async def start() -> None:
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{other.getsockname()[1]}"
            starting = asyncio.ensure_future(start_operator(NOBODY, address))
            await asyncio.sleep(0)  # it has bound the port, and does not listen yet
            other.listen()
            with pytest.raises(OperatorAddressTaken, match="in use"):
                await asyncio.wait_for(starting, LIMIT_S)

    asyncio.run(start())
