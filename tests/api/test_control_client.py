"""Calls end in time: while the database hangs, and when the service stops."""

import logging
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from forewarn_base.settings import StoreSettings
from tests.api.live import FLEET, SETTINGS, Live
from tests.asking import Reply
from tests.postgres import PostgresServer
from tests.store.proxy import running_proxy
from tests.waiting import LIMIT_S, wait_until

REBOOT = "/v1/vms/web-0/reboot"
postgres = pytest.mark.postgres
WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'RowExclusiveLock'"


@contextmanager
def hanging(
    server: PostgresServer, answer_timeout_s: float
) -> Iterator[tuple[Live, psycopg.Connection]]:
    """A service whose database holds every commit, and who reads history, until told otherwise."""
    with server.database() as address:
        operator = replace(SETTINGS.operator, answer_timeout_s=answer_timeout_s)
        live = Live(replace(SETTINGS, store=StoreSettings(address), operator=operator))
        live.fleet(**FLEET)
        with closing(psycopg.connect(address)) as holder:
            holder.execute("LOCK TABLE history IN ACCESS EXCLUSIVE MODE")
            yield live, holder


@postgres
def test_call_ends_in_time_when_the_database_hangs(server: PostgresServer) -> None:
    """What was begun may still be done, and is; what was not begun never will be."""
    with hanging(server, answer_timeout_s=0.5) as (live, holder):
        begun = live.call("POST", REBOOT, {})
        others = [
            live.call("POST", "/v1/vms/db-0/reboot", {}),
            live.call("GET", "/v1/history"),
        ]
        assert live.get("/v1/events")["events"] == []  # as of the last commit
        holder.rollback()
        live.settle()
        assert (begun.status, begun.code) == (503, "outcome-unknown")
        assert "0.5 s" in begun.json["error"]["message"]
        assert [(each.status, each.code) for each in others] == [(503, "answer-overdue")] * 2
        asked = live.get("/v1/history?action=operation.planned")["entries"]
        assert [each["vm"] for each in asked] == ["web-0"]
        live.stop()


@postgres
def test_service_is_not_ready_while_the_database_is_out_of_reach(
    server: PostgresServer,
) -> None:
    """Health says so at once, and that it is over: an operator looks there."""
    with (
        server.database() as address,
        tempfile.TemporaryDirectory() as folder,  # a Unix socket's path must be short
        running_proxy(Path(folder), server.folder) as proxy,
    ):
        name = address.partition("@/")[2].partition("?")[0]
        live = Live(replace(SETTINGS, store=StoreSettings(proxy.address(name))))
        assert live.call("GET", "/v1/health").status == 200
        proxy.reachable = False
        proxy.cut()
        wait_until(lambda: live.call("GET", "/v1/health").status == 503)
        gone = live.call("GET", "/v1/health")
        assert (gone.status, gone.json["live"], gone.json["ready"]) == (503, True, False)
        assert gone.json["reason"]
        proxy.reachable = True
        wait_until(lambda: live.call("GET", "/v1/health").status == 200)
        live.stop()


@postgres
def test_call_is_told_what_is_known_when_the_service_stops(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop answers who waits for a database that hangs, and logs no trace of it."""
    with hanging(server, answer_timeout_s=30) as (live, holder):
        replies: list[Reply] = []
        calls = [
            threading.Thread(target=lambda: replies.append(live.call("POST", REBOOT, {}))),
            threading.Thread(target=lambda: replies.append(live.call("GET", "/v1/history"))),
        ]
        calls[0].start()
        while not server.run(WAITING, holder.info.dbname):
            assert calls[0].is_alive(), replies
        calls[1].start()
        stopping = threading.Thread(target=live.stop)
        stopping.start()
        for each in calls:
            each.join()
        holder.rollback()
        stopping.join()
    assert sorted((each.status, each.code) for each in replies) == [
        (503, "outcome-unknown"),
        (503, "stopping"),
    ]
    assert not [each for each in caplog.records if each.exc_info or each.name == "uvicorn.error"]


def test_half_a_call_is_refused_when_the_service_stops(caplog: pytest.LogCaptureFixture) -> None:
    """A caller that has not sent its whole body is told that the service stops."""
    caplog.set_level(logging.WARNING)
    live = Live()
    with socket.create_connection((live.host, int(live.port)), timeout=LIMIT_S) as channel:
        channel.sendall(
            b"PUT /v1/topology HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        )
        assert channel.recv(100).startswith(b"HTTP/1.1 100")  # its body is waited for now
        channel.sendall(b"{")
        stopping = threading.Thread(target=live.stop)
        stopping.start()
        answer = channel.recv(4096)
        stopping.join()
    assert answer.startswith(b"HTTP/1.1 503")
    assert not [each for each in caplog.records if each.exc_info or each.name == "uvicorn.error"]
