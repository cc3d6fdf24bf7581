"""One server for a test module, on each of the two shells."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metadata.feeds import Feed
from tests.metadata.live import Live, serving

SHELLS = ["epoll", "portable"] if sys.platform == "linux" else ["portable"]


@pytest.fixture(scope="module", params=SHELLS)
def portable(request: pytest.FixtureRequest) -> bool:
    """Whether the server does without epoll."""
    return bool(request.param == "portable")


@pytest.fixture(scope="module")
def shared(portable: bool) -> Iterator[Live]:
    """A server of the module; its documents may be any test's."""
    with serving(portable=portable) as live:
        yield live


@pytest.fixture
def live(shared: Live) -> Live:
    """The module's server, showing one empty document, its control plane willing."""
    fresh = type(shared.control)()
    shared.control.__dict__.update(fresh.__dict__)
    shared.show(incarnation=0)
    return shared


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """Both ends of a feed, not started."""
    return Feed(f"{tmp_path}/feed")
