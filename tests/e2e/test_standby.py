"""On a shared PostgreSQL store one process serves and the next takes over where it stopped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.crashing import VMS, Client, Doom, Life
from tests.postgres import running_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

REQUESTS_MAX = 1000
#: Longer than a lease lasts, with time for the start.
TAKE_OVER_S_MAX = 40


@pytest.fixture
def address() -> Iterator[str]:
    """An empty database on a server of its own."""
    with running_postgres() as server, server.database() as found:
        yield found


def test_standby_takes_over_what_was_promised(address: str) -> None:
    """When the writer is killed the standby shows the same document and loses no approval.

    Source: L-7, A-6, DESIGN section 4.
    """
    writer = Life(address)
    assert writer.listening()
    standby = Life(address)
    operator, vm = (Client(at, Doom(REQUESTS_MAX)) for at in (writer.operator, writer.metadata))
    vm.document("db_0")
    vm.document("web_0")
    body = {"cause": "host-reboot", "targets": ["h1"]}
    status, _ = operator.ask("POST", "/v1/operations", body)
    assert status < 300
    before = vm.document("web_0")
    event_id = json.loads(before)["Events"][0]["EventId"]
    assert vm.approve("web_0", event_id)
    assert not standby.listening(wait_s=0), "two processes serve one store"

    writer.kill()
    for client in (operator, vm):
        client.close()
    assert standby.listening(wait_s=TAKE_OVER_S_MAX)
    heir = Client(standby.metadata, Doom(REQUESTS_MAX))
    assert heir.document("web_0") == before
    db_event = json.loads(heir.document("db_0"))["Events"][0]["EventId"]
    assert heir.approve("db_0", db_event)
    started = json.loads(heir.document("web_0"))["Events"][0]
    heir.close()
    standby.kill()
    assert started["EventId"] == event_id
    assert started["EventStatus"] == "Started", "the approval given to the first was lost"
    assert {vm.name for vm in VMS} >= set(started["Resources"])
