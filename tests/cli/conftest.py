"""A service for the command line, and the command run in this process."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from forewarn_server.cli.main import main
from tests.api.live import FLEET, Json, Live


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        """What it printed, read."""
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def live() -> Iterator[Live]:
    """A service with two hosts and three VMs that ask for their documents."""
    with Live() as service:
        service.fleet(**FLEET)
        service.enable("web-0", "db-0")
        yield service


@pytest.fixture
def run(live: Live, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `forewarn WORDS...` against the service."""
    monkeypatch.setenv("FOREWARN_SERVER", live.url)

    def forewarn(*words: str) -> Ran:
        capfd.readouterr()
        status = main(words)
        out, err = capfd.readouterr()
        return Ran(status, out, err)

    return forewarn
