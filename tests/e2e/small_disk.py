"""A service on a small disk of its own, in a mount namespace: `python -m … CASE DIRECTORY`."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from forewarn_base.errors import ForewarnError
from forewarn_base.settings import NamedTable, OutboxSettings, StoreSettings
from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.stimulus import NoticeShown, RequestMaintenance
from forewarn_store import open_store
from forewarn_store.errors import StoreFull
from tests.api.live import SETTINGS, Live
from tests.asking import ask
from tests.store.story import Story, begin, entry
from tests.waiting import wait_until

#: More than SQLite's log needs from the start.
SIZE = "40m"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01&vm="


def full_while_it_runs(disk: Path) -> None:
    """Every change is refused as `store-full`, whatever SQLite needs space for. L-7."""
    story = begin(open_store(str(disk / "store.db")))
    fill(disk)
    error = refused(story)
    assert isinstance(error, StoreFull), repr(error)
    assert "the disk is full" in str(error)
    (disk / "filler").unlink()
    story.store.commit(Changes(last_number=story.state.last_number, entries=[entry()]))


def full_when_it_starts(disk: Path) -> None:
    """What is durable is shown after a kill, and changes go on once there is space. L-7."""
    shown = killed(disk, full=True)
    with serving(disk) as live:
        check_refused(live, shown, "the disk is full")
        (disk / "filler").unlink()
        check_ready(live, shown)


def read_only_when_it_starts(disk: Path) -> None:
    """After a kill, and after a stop, which leaves no log. L-7."""
    shown = killed(disk, full=False)
    for _ in ("killed", "stopped"):
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with serving(disk) as live:
            check_refused(live, shown, "the file system is read-only")
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            shown = check_ready(live, shown)


def killed(disk: Path, *, full: bool) -> int:
    """Kill a process that has announced work; return the incarnation that it has shown db_0."""
    announced, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        story = begin(open_store(str(disk / "store.db")))
        story.tell(RequestMaintenance(cause=Cause.REBOOT, targets=("db_0",)))
        story.now_ms -= 1000  # at once: else the notice would be given again
        story.tell(NoticeShown((1,)))
        if full:
            fill(disk)
            refused(story)
        os.write(told, str(story.state.views["db"].document.incarnation).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    if full:
        fill(disk)
    return int(os.read(announced, 100))


def refused(story: Story) -> ForewarnError:
    """Commit until the disk is full; return the refusal."""
    while True:
        changes = Changes(last_number=story.state.last_number, entries=[entry("x" * 3000)])
        try:
            story.store.commit(changes)
        except ForewarnError as error:
            return error


def serving(disk: Path) -> Live:
    """Start a service on the disk, with an outbox."""
    sink = NamedTable("sink", {"kind": "webhook", "url": "http://127.0.0.1:9/"})
    store = StoreSettings(url=f"sqlite://{disk}/store.db")
    return Live(replace(SETTINGS, store=store, outbox=OutboxSettings((sink,))))


def check_refused(live: Live, shown: int, reason: str) -> None:
    """The document is shown, a change refused, and the cause named."""
    address = live.metadata_url.removeprefix("http://").partition("/")[0]
    reply = ask(address, "GET", f"{EVENTS}db_0")
    assert (reply.status, reply.json["DocumentIncarnation"]) == (200, shown), reply
    assert live.get("/v1/operations")["operations"]
    health = live.call("GET", "/v1/health")
    assert health.status == 503
    assert reason in health.json["reason"], health.json
    refused = live.call("PUT", "/v1/hosts/h9", {"fault_domain": 0})
    assert (refused.status, refused.json["error"]["code"]) == (503, "store-full"), refused


def check_ready(live: Live, shown: int) -> int:
    """It decides again; return the incarnation that is shown now."""
    wait_until(lambda: live.call("GET", "/ready").status == 200)
    assert live.call("PUT", "/v1/hosts/h9", {"fault_domain": 0}).status in {200, 201}
    wait_until(lambda: live.daemon.outbox is not None, what="the outbox")
    now = int(live.document("db_0")["DocumentIncarnation"])
    assert now >= shown
    return now


def fill(disk: Path) -> None:
    """Leave no space."""
    with (disk / "filler").open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


CASES: dict[str, Callable[[Path], None]] = {
    each.__name__: each
    for each in (full_while_it_runs, full_when_it_starts, read_only_when_it_starts)
}

if __name__ == "__main__":
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", sys.argv[2]], check=True)
    CASES[sys.argv[1]](Path(sys.argv[2]))
