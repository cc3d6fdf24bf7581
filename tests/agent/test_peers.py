"""Coordination of several VMs: where they meet, against real programs and shared files."""

import contextlib
import http.server
import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent.background_jobs import BackgroundJobs
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.values import AnnounceIntent, AskPeersIntent
from forewarn.agent.hooks import HookRoom
from forewarn.agent.log import Log
from forewarn.agent.peers import main
from forewarn.agent.preparations.http_call import CallFailed
from forewarn.agent.settings import AgentSettings
from forewarn_base.ids import Ids
from tests.agent.making import event
from tests.agent.programs import answers, free_port, program, running, until
from tests.serving import serving
from tests.waiting import LIMIT_S


def form_of(
    what: str, name: str, settings: dict[str, object], *, prepared: bool = True
) -> dict[str, object]:
    """Return what one VM of three is told to do."""
    return {
        "what": what,
        "prepared": prepared,
        "holds": False,
        "name": name,
        "others": [one for one in ("vm_0", "vm_1", "vm_2") if one != name],
        "event_id": event().event_id,
        "settings": settings,
    }


def peers(what: str, name: str, settings: dict[str, object], *, prepared: bool = True) -> list[str]:
    """Announce or ask; return the prepared VMs when asked."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(form_of(what, name, settings, prepared=prepared)) == 0
    found: list[str] = json.loads(said.getvalue() or '{"prepared": []}')["prepared"]
    return found


def ask_peers(settings: dict[str, object]) -> None:
    """Tell the story every meeting place must tell."""
    assert peers("ask", "vm_0", settings) == []
    peers("announce", "vm_1", settings)
    peers("announce", "vm_1", settings)
    assert peers("ask", "vm_0", settings) == ["vm_1"]
    peers("announce", "vm_2", settings)
    assert peers("ask", "vm_0", settings) == ["vm_1", "vm_2"]
    peers("announce", "vm_1", settings, prepared=False)
    peers("announce", "vm_1", settings, prepared=False)
    assert peers("ask", "vm_0", settings) == ["vm_2"]
    peers("announce", "vm_2", settings, prepared=False)


def test_peers_meet_in_shared_files(tmp_path: Path) -> None:
    """A directory that all VMs share is enough. Source: C-5."""
    ask_peers({"via": "file", "directory": str(tmp_path)})


def test_peers_meet_in_etcd(tmp_path: Path) -> None:
    """VMs of one event tell one another through keys of a real etcd. Source: C-5."""
    client, peer = free_port(), free_port()
    url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    command = (
        program("etcd"),
        f"--data-dir={tmp_path}/etcd",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
    )
    with running(*command, log=tmp_path / "etcd.log"):
        until(lambda: answers(client), "etcd listens", seconds=60)
        ask_peers({"via": "etcd", "address": url})


def test_peer_without_an_agent_is_not_prepared() -> None:
    """Silence is never taken for consent. Source: C-5."""
    silent = f"http://127.0.0.1:{free_port()}"
    settings: dict[str, object] = {"via": "status", "peers": {"vm_1": silent, "vm_2": silent}}
    text = json.dumps(form_of("ask", "vm_0", settings))
    command = [sys.executable, "-m", "forewarn.agent", "do", "peers"]  # as the agent does it
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (
        0,
        {"prepared": [], "unprepared": [], "deciding": []},
    )


@pytest.fixture
def together() -> Iterator[str]:
    """A status endpoint of three VMs that answers once all three have been asked, never before."""
    all_asked = threading.Barrier(3)

    class Status(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                all_asked.wait(LIMIT_S)
            self.send_response(200)
            self.end_headers()
            name = self.path.split("/")[1]
            if not all_asked.broken and name != "vm_3":  # something else answers at the third
                words = {"prepared": ["E1"] if name == "vm_1" else [], "deciding": ["E1"]}
                self.wfile.write(json.dumps(words).encode())

    with serving(Status) as url:
        yield url


def test_vms_are_asked_side_by_side(together: str) -> None:
    """One that hangs does not hide what the others say. Source: C-5."""
    names = ["vm_1", "vm_2", "vm_3"]
    known = {name: f"{together}/{name}" for name in names}
    settings: dict[str, object] = {"via": "status", "peers": known}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        main({**form_of("ask", "vm_0", settings), "others": names})
    assert json.loads(said.getvalue()) == {
        "prepared": ["vm_1"],
        "unprepared": ["vm_2"],
        "deciding": ["vm_1", "vm_2"],
    }


def test_place_that_is_away_is_no_answer() -> None:
    """That nobody said anything there is not what the agent is told. Source: C-5."""
    settings = {"via": "etcd", "address": f"http://127.0.0.1:{free_port()}"}
    with pytest.raises(CallFailed):
        main(form_of("ask", "vm_0", dict(settings)))


def test_vm_that_holds_says_so_where_vms_meet(tmp_path: Path) -> None:
    """Who would stand in for it finds its word, until it is taken back. Source: C-5."""
    settings: dict[str, object] = {"via": "file", "directory": str(tmp_path)}
    form = {**form_of("announce", "vm_0", settings, prepared=False), "holds": True}
    for holds, deciding in ((True, ["vm_0"]), (False, [])):
        assert main({**form, "holds": holds}) == 0
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            main({**form_of("ask", "vm_1", settings), "others": ["vm_0"]})
        found = {"prepared": [], "unprepared": ["vm_0"], "deciding": deciding}
        assert json.loads(said.getvalue()) == found


def test_peer_that_hangs_does_not_make_the_queue_grow(tmp_path: Path) -> None:
    """A question that waits is asked once, however often the core asks it meanwhile."""
    settings = AgentSettings({})
    jobs = BackgroundJobs(settings, HookRoom(str(tmp_path)), log=Log(), ids=Ids())
    for _ in range(1000):
        jobs.coordinate(AskPeersIntent(event(), ("vm_1",)), Identity("vm_0"))
        jobs.coordinate(AnnounceIntent(event(), prepared=True), Identity("vm_0"))
        jobs.coordinate(AskPeersIntent(event("E2"), ("vm_1",)), Identity("vm_0"))
    assert jobs.waiting == 3


@pytest.fixture
def prepared() -> Iterator[str]:
    """A server that takes any path for the status of a prepared VM."""

    class Status(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"prepared": ["E1"], "deciding": []}')

    with serving(Status) as url:
        yield url.removeprefix("http://")


@pytest.mark.parametrize("name", ["{place}/own?", "{place}#", "x" * 64])
def test_name_of_a_vm_leads_to_no_other_address(prepared: str, name: str) -> None:
    """A name is one part of a URL, whatever stands in it."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        form = form_of("ask", "vm_0", {"via": "status"})
        main({**form, "others": [name.format(place=prepared)]})
    assert json.loads(said.getvalue())["prepared"] == []


@pytest.mark.parametrize("name", ["..", ".", "../other"])
def test_name_of_a_vm_leads_out_of_no_shared_directory(tmp_path: Path, name: str) -> None:
    """What is there already does not count as a VM's word."""
    (tmp_path / "shared" / "E1").mkdir(parents=True)
    (tmp_path / "shared" / "other").touch()
    settings: dict[str, object] = {"via": "file", "directory": str(tmp_path / "shared")}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        main({**form_of("ask", "vm_0", settings), "others": [name]})
    assert json.loads(said.getvalue())["prepared"] == []


def test_link_in_the_shared_directory_is_not_followed(tmp_path: Path) -> None:
    """Another VM may have put it there, for this one's agent to make a file elsewhere."""
    (tmp_path / "shared" / "E1").mkdir(parents=True)
    (tmp_path / "shared" / "E1" / "vm_0").symlink_to(tmp_path / "nologin")
    (tmp_path / "shared" / "E2").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    settings: dict[str, object] = {"via": "file", "directory": str(tmp_path / "shared")}
    form = form_of("announce", "vm_0", settings)
    main(form)
    with pytest.raises(OSError, match="is a link"):
        main({**form, "event_id": "E2"})
    assert not (tmp_path / "nologin").exists()
    assert not any((tmp_path / "elsewhere").iterdir())
