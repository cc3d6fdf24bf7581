"""What holds for every test: a scrubbed environment, an odd time zone, no network but loopback."""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

SCRUBBED_PREFIXES = ("FOREWARN_", "PG")
SCRUBBED_NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
#: No test may pass only where the local time is UTC; these islands are 12:45 ahead of it.
ODD_TIME_ZONE = "<+1245>-12:45"

for name in tuple(os.environ):
    if name.startswith(SCRUBBED_PREFIXES) or name.lower() in SCRUBBED_NAMES:
        del os.environ[name]
os.environ["TZ"] = ODD_TIME_ZONE
if hasattr(time, "tzset"):
    time.tzset()

# A background job is started with Ctrl-C ignored, and so is what it starts; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "house",
    max_examples=25,
    derandomize=True,  # the same inputs on every machine
    deadline=None,  # no test asserts a duration
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly", settings.get_profile("house"), max_examples=250, derandomize=False
)
settings.load_profile("house")

#: Loopback, "any", and the link-local block whose best known address this project answers on.
ALLOWED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in ("127.0.0.0/8", "::1/128", "169.254.0.0/16", "0.0.0.0/32", "::/128")
)


gc.disable()


def pytest_collection_finish() -> None:
    """Begin to collect garbage, except modules and tests: they stay until the end."""
    gc.freeze()
    gc.enable()


class NetworkRefusedError(AssertionError):
    """A test tried to reach something outside this machine."""


def _is_allowed(host: object) -> bool:
    text = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    if text == "localhost":
        return True
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in ALLOWED_NETWORKS)


def _guard_network(event: str, arguments: tuple[object, ...]) -> None:
    if event in {"socket.connect", "socket.sendto"}:
        address = arguments[1]
        if isinstance(address, tuple) and not _is_allowed(address[0]):
            raise NetworkRefusedError(f"a test may not reach {address}")
    elif event == "socket.getaddrinfo" and not _is_allowed(arguments[0]):
        raise NetworkRefusedError(f"a test may not look up {arguments[0]}")


sys.addaudithook(_guard_network)


#: Tests in a file from which it runs longer than others, since one worker runs a file.
MANY_TESTS = 40


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files with slow tests first, the longest before all, for an even end.

    Those have many tests, or machines in a network namespace of their own.

    TEST_ORDER asks for another order: `reversed`, or shuffled by a number.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    sizes = Counter(item.path for item in items)
    longest = {item.path for item in items if item.get_closest_marker("netns")}
    longest |= {path for path, size in sizes.items() if size >= MANY_TESTS}
    items.sort(key=lambda item: (item.path not in slow, item.path not in longest))
    order = os.environ.get("TEST_ORDER", "")
    if order == "reversed":
        items.reverse()
    elif order:
        random.Random(int(order)).shuffle(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why a test that then passed had failed first: such a test is a fault to repair."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"failed first: {report.nodeid}", sep="_")
        terminalreporter.line(report.longreprtext)


LOGGERS = ("forewarn", "forewarn.control", "forewarn.store", "uvicorn", "asyncio")


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """Give back how the program logs: a test may run a whole command in this process."""
    before = [
        (each, each.handlers[:], each.level, each.propagate)
        for each in map(logging.getLogger, LOGGERS)
    ]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this worker; its new databases have our schema."""
    # The product is imported late: breakages are made before it is imported.
    from forewarn_store import open_store
    from tests.postgres import running_postgres

    with running_postgres() as running:
        running.fill_template(lambda address: open_store(address).close())
        yield running


@pytest.fixture
def postgres_address(server: PostgresServer) -> Iterator[str]:
    """The address of an empty store in PostgreSQL."""
    with server.database() as address:
        yield address
