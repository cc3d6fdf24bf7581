"""Following history as it grows."""

import asyncio
import http.client
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from starlette.types import Message

from forewarn_core.access.roles import Role
from forewarn_core.fleet.state import Changes, Entry
from forewarn_server.api import watch
from forewarn_store import Recorded, Retention
from tests.api.live import NOW_MS, Json, Live
from tests.waiting import LIMIT_S


class Watcher:
    """One open stream."""

    def __init__(self, live: Live, query: str = "", headers: dict[str, str] | None = None) -> None:
        """Open it."""
        self._connection = http.client.HTTPConnection(live.host, int(live.port), timeout=LIMIT_S)
        self._connection.request("GET", f"/v1/watch{query}", headers=headers or {})
        self.answer = self._connection.getresponse()
        assert self.answer.status == 200

    def line(self) -> str:
        """Return the next line that says something."""
        while True:
            line = self.answer.readline()
            assert line, "the stream has ended"
            if line.strip():
                return line.decode().rstrip("\n")

    def entry(self) -> Json:
        """Return the next entry."""
        return json.loads(self.line())

    def close(self) -> None:
        """Leave."""
        self._connection.close()


def test_entries_come_as_they_happen(live: Live) -> None:
    """A watcher reads each entry once, in order, as soon as it is durable."""
    live.call("PUT", "/v1/hosts/before", {})
    watcher = Watcher(live)
    assert watcher.answer.headers["content-type"] == "application/jsonl"
    for name in ("a", "b", "c"):
        live.call("PUT", f"/v1/hosts/{name}", {})
        assert watcher.entry()["host"] == name
    watcher.close()


def test_stream_resumes_after_a_sequence(live: Live) -> None:
    """Who comes back with the last number it saw misses nothing and reads nothing twice."""
    live.fleet(hosts={f"h{n}": {} for n in range(5)})
    watcher = Watcher(live, "?after=2")
    assert [watcher.entry()["sequence"] for _ in range(3)] == [3, 4, 5]
    live.call("PUT", "/v1/hosts/later", {})
    assert watcher.entry()["sequence"] == 6
    watcher.close()


def test_entry_appears_with_its_state(live: Live) -> None:
    """Who reads of an end then also reads that the work has ended. Source: H-4."""
    live.fleet(hosts={"a": {}})
    watcher, entry = Watcher(live, "?after=0"), Entry(NOW_MS, "test", "test", "not in the state")
    live.daemon.store.commit(Changes(last_number=0, entries=[entry]))
    assert watcher.entry()["sequence"] == 1
    assert [each["sequence"] for each in live.get("/v1/history")["entries"]] == [1]
    live.call("PUT", "/v1/hosts/b", {})
    assert [watcher.entry()["sequence"] for _ in range(2)] == [2, 3]
    watcher.close()


def test_many_pages_are_read_without_gaps(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a watcher begins far back, it catches up page by page, from memory or the store."""
    monkeypatch.setattr(watch, "PAGE", 7)
    live.fleet(hosts={f"h{n}": {} for n in range(50)})
    watchers = [Watcher(live, f"?after={after}") for after in (0, 3, 20)]
    for watcher, after in zip(watchers, (0, 3, 20), strict=True):
        found = [watcher.entry()["sequence"] for _ in range(50 - after)]
        assert found == list(range(after + 1, 51))
    live.call("PUT", "/v1/hosts/later", {})
    assert {watcher.entry()["sequence"] for watcher in watchers} == {51}
    for watcher in watchers:
        watcher.close()


def test_filters_are_those_of_history(fleet: Live) -> None:
    """A watcher of a VM reads what its history has, by any form of an id. Source: A-6."""
    fleet.post("/v1/hosts/h1/reboot")
    event = fleet.get("/v1/events?group=web")["events"][0]["id"]
    fleet.post(f"/v1/operations/{event}/approve")
    fleet.settle()
    for query in ("vm=web-0", "operation=1", f"event={event.lower()}", "action=event.approved"):
        past = fleet.get(f"/v1/history?{query}")["entries"]
        watcher = Watcher(fleet, f"?after=0&{query}")
        assert [watcher.entry() for _ in past] == past
        assert any(each["operation"] == "op-1" for each in past)
        watcher.close()


@pytest.mark.parametrize("query", ["group=nope", "vm=nope", "host=nope", "operation=99"])
def test_watch_for_nothing_is_refused(shared: Live, query: str) -> None:
    """Who would follow what never was is told so, and does not wait for ever. Source: A-6."""
    assert shared.call("GET", f"/v1/watch?{query}").status == 404


@pytest.mark.parametrize(
    ("query", "headers"),
    [("?after=3", {}), ("", {"Accept": "text/event-stream", "Last-Event-ID": "3"})],
    ids=["after", "last-event-id"],
)
def test_place_of_another_store_is_refused(live: Live, query: str, headers: dict[str, str]) -> None:
    """Who holds a number that was never given would wait for it, and miss all before it."""
    live.fleet(hosts={"a": {}, "b": {}})
    reply = live.call("GET", f"/v1/watch{query}", headers=headers)
    assert (reply.status, reply.code) == (409, "cursor-ahead")
    assert "the newest entry of history is 2" in reply.json["error"]["message"]
    Watcher(live, "?after=2").close()


def test_place_whose_successors_were_removed_is_refused(live: Live, tmp_path: Path) -> None:
    """What a watcher has missed for good is said; from the beginning is what there is."""
    live.fleet(hosts={"a": {}, "b": {}, "c": {}})
    store = live.daemon.store
    assert store.trim(Retention(tmp_path, max_age_ms=1), NOW_MS + 2).entries == 3
    reply = live.call("GET", "/v1/watch?after=1")
    assert (reply.status, reply.code) == (410, "cursor-expired")
    assert "begin after 3" in reply.json["error"]["advice"]
    live.call("PUT", "/v1/hosts/later", {})
    for after in (0, 3):
        watcher = Watcher(live, f"?after={after}")
        assert watcher.entry()["sequence"] == 4
        watcher.close()


def test_server_sent_events_carry_ids(live: Live) -> None:
    """A browser's EventSource reads the same entries and resumes by Last-Event-ID."""
    live.fleet(hosts={"a": {}, "b": {}})
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "1"}
    watcher = Watcher(live, headers=headers)
    lines = [watcher.line() for _ in range(3)]
    assert lines[:2] == [":", "id: 2"]
    assert json.loads(lines[2].removeprefix("data: "))["host"] == "b"
    watcher.close()


def test_too_many_watchers_are_refused(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of streams has a limit; who leaves makes room."""
    monkeypatch.setattr(watch, "WATCHERS_MAX", 1)
    first = Watcher(live)
    refused = live.call("GET", "/v1/watch")
    assert (refused.status, refused.code) == (503, "overloaded")
    first.close()


def test_stalled_watcher_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes nothing for too long is let go; nothing is kept for it."""
    monkeypatch.setattr(watch, "STALL_TIMEOUT_S", 0.01)
    sent: list[str] = []
    left = asyncio.Event()

    async def pages() -> AsyncGenerator[list[Recorded], None]:
        try:
            while True:
                yield []
        finally:
            left.set()

    async def send(message: Message) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def follow() -> None:
        monkeypatch.setattr(watch, "LAST_LINE_S_MAX", 0.01)
        stream = watch.WatchStream(pages(), "text/plain", lambda _: b"", alive=b"\n", last=b"end")
        async with asyncio.timeout(10):
            await stream({}, receive, send)
        assert left.is_set()

    asyncio.run(follow())
    assert sent[:2] == ["http.response.start", "http.response.body"]


def test_silent_stream_says_that_it_is_alive(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows a quiet fleet can tell it from a service that has gone, look after look."""
    monkeypatch.setattr(watch, "SILENCE_S_MAX", 0.1)
    watcher = Watcher(live)
    assert [watcher.answer.readline() for _ in range(3)] == [b"\n"] * 3
    watcher.close()


def test_stopping_service_ends_its_streams(live: Live) -> None:
    """A watcher is told when the service stops, with its last line."""
    watcher = Watcher(live)
    live.daemon.bridge.call(live.daemon.ended.set)
    assert watcher.entry() == {"end": "stopped"}
    watcher.close()


def test_one_operator_holds_so_many_streams(live: Live) -> None:
    """Nobody takes all streams: another operator still gets one."""
    limit = live.daemon.settings.operator.max_streams_per_operator
    watchers = [Watcher(live) for _ in range(limit)]
    reply = live.call("GET", "/v1/watch")
    assert (reply.status, reply.code) == (429, "too-many-streams")
    token = live.add_token("anna", Role.ADMIN)
    with_token = Watcher(live, headers={"Authorization": f"Bearer {token}"})
    for watcher in (*watchers, with_token):
        watcher.close()
