"""The audit: every change and refusal in one chain, in which no record can be altered unseen."""

import json
import logging
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from forewarn_base.audit_chain import (
    TRIMMED,
    CallRecord,
    digest_after,
    first_fault,
    read_record,
    signature_of,
)
from forewarn_base.settings import AuditSettings, OperatorSettings, StoreSettings
from forewarn_core.access.roles import Role
from forewarn_server.cli.main import main
from forewarn_store import open_store
from tests.api.live import NOW_MS, SETTINGS, TOKEN, Json, Live
from tests.api.test_auth import bearer

KEY = "k" * 32


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """A service that wants tokens and signs its audit."""
    settings = replace(SETTINGS, operator=OperatorSettings(), audit=AuditSettings(key=KEY))
    with Live(settings) as service:
        yield service


def records(live: Live) -> list[Json]:
    """Return everything that was recorded."""
    live.settle()
    reply = live.call("GET", "/v1/audit?after=0&limit=1000", headers=bearer(TOKEN))
    found: list[Json] = reply.json["records"]
    return found


def test_change_and_refusal_are_recorded(live: Live) -> None:
    """Who, by which token, from where, what, and what became of it. Source: P-7."""
    viewer = live.add_token("viv", Role.VIEWER)
    assert live.call("PUT", "/v1/hosts/h1", {}, headers=bearer(TOKEN)).status == 201
    asked = {"cause": "reboot", "targets": ["a", "b"]}
    assert live.call("POST", "/v1/operations", asked, headers=bearer(TOKEN)).status == 404
    assert live.call("POST", "/v1/hosts/none/reboot", {}, headers=bearer(TOKEN)).status == 404
    assert live.call("POST", "/v1/hosts/h1/reboot", {}, headers=bearer(viewer)).status == 403
    assert live.call("GET", "/v1/audit", headers=bearer(viewer)).status == 403
    assert live.call("GET", "/v1/hosts", headers=bearer("fw_no_token")).status == 401
    plan = {"cause": "host-reboot", "hosts": ["h1"], "duration": "PT5M"}
    for path in ("/v1/maintenances/plan", "/v1/policy?dry_run=true"):  # a preview changes nothing
        method, form = ("POST", plan) if path.endswith("plan") else ("PUT", {})
        assert live.call(method, path, form, headers=bearer(TOKEN)).status == 200
    shown = [(e["principal"], e["request"], e["object"], e["outcome"]) for e in records(live)]
    assert shown[-6:] == [
        ("anna", "PUT /v1/hosts/h1", "h1", "done"),
        ("anna", "POST /v1/operations", "a, b", "unknown"),
        ("anna", "POST /v1/hosts/none/reboot", "none", "unknown"),
        ("viv", "POST /v1/hosts/h1/reboot", "h1", "not-permitted"),
        ("viv", "GET /v1/audit", "", "not-permitted"),
        ("", "", "fw_no_token", "token-wrong"),
    ]
    assert {e["address"] for e in records(live)} == {"127.0.0.1"}
    assert [e["token"] for e in records(live)][-6:] == ["anna"] * 3 + ["viv"] * 2 + [""]
    assert live.call("GET", "/v1/hosts", headers=bearer(f"{viewer}x")).status == 401
    assert records(live)[-1]["token"] == "viv", "its secret was wrong, and its id is known"


def test_refusals_of_one_principal_do_not_fill_the_store(live: Live) -> None:
    """Beyond a limit a record counts them; everybody else is recorded as before. Source: P-7."""
    live.advance(3600)
    before = len(records(live))
    mallory, eve = (bearer(live.add_token(name, Role.VIEWER)) for name in ("mallory", "eve"))
    codes = [live.call("POST", "/v1/reload", {}, headers=mallory).code for _ in range(130)]
    assert set(codes) == {"not-permitted"}
    assert live.call("POST", "/v1/reload", {}, headers=eve).code == "not-permitted"
    assert len(records(live)) == before + 101
    live.advance(60)
    counted = records(live)[-1]
    facts = [counted[name] for name in ("principal", "token", "request", "object", "outcome")]
    assert facts == ["mallory", "mallory", "audit.omitted", "30 calls", "not-permitted"]
    assert live.call("POST", "/v1/reload", {}, headers=mallory).code == "not-permitted"
    assert records(live)[-1]["request"] == "POST /v1/reload"


def test_records_of_the_release_before_keep_their_digest() -> None:
    """A chain that began without tokens goes on with them, and no token can be taken out. P-7."""
    whole = chain(2)
    old = {"at_ms": 3, "principal": "", "address": "", "request": "", "object": "", "outcome": ""}
    for token in ("", "t1"):
        record = read_record(old | ({"token": token} if token else {}))
        digest = digest_after(whole[-1][2], len(whole) + 1, record)
        whole.append((len(whole) + 1, record, digest))
    assert first_fault(whole, {}) == (0, "")
    number, record, digest = whole[-1]
    assert first_fault([*whole[:-1], (number, replace(record, token=""), digest)], {})[0] == number


def test_records_are_chained_and_signed(live: Live) -> None:
    """The chain is whole, and each head is signed by the key. Source: P-7."""
    assert live.call("PUT", "/v1/hosts/h2", {}, headers=bearer(TOKEN)).status == 201
    digest = ""
    for each in records(live):
        digest = digest_after(digest, each["sequence"], read_record(each))
        assert each["digest"] == digest
        assert each["signature"] == signature_of(KEY.encode(), each["sequence"], digest)


Link: TypeAlias = tuple[int, CallRecord, str]


def chain(count: int) -> list[Link]:
    """Return records of a chain."""
    found, digest = [], ""
    for n in range(1, count + 1):
        record = CallRecord(n, "anna", "10.0.0.1", "POST /v1/hosts/h1/reboot", "h1")
        digest = digest_after(digest, n, record)
        found.append((n, record, digest))
    return found


@pytest.mark.parametrize("kind", ["edit", "removal", "truncation", "order", "rewritten"])
def test_tampering_is_found_before_the_last_known_head(kind: str) -> None:
    """Every edit, removal and reordering, and a chain that was written again. Source: P-7."""
    dice, whole = random.Random(kind), chain(200)
    heads = {200: whole[-1][2]}
    assert first_fault(whole, heads) == (0, "")
    for _ in range(50):
        place, records = dice.randrange(199), list(whole)
        if kind == "edit":
            n, record, digest = records[place]
            records[place] = n, replace_principal(record), digest
        elif kind == "removal":
            del records[place]
        elif kind == "truncation":
            del records[place:]
        elif kind == "order":
            records[place], records[place + 1] = records[place + 1], records[place]
        else:
            digest = records[place - 1][2] if place else ""
            for at in range(place, 200):
                record = replace_principal(records[at][1])
                digest = digest_after(digest, at + 1, record)
                records[at] = at + 1, record, digest
        assert first_fault(records, heads)[0]


def test_removal_of_the_last_record_is_found() -> None:
    """Its head shows that it existed. Source: P-7."""
    whole = chain(3)
    assert first_fault(whole[:2], {3: whole[2][2]}) == (3, "is missing")
    assert first_fault(whole[:2], {2: whole[1][2]}) == (0, "")


def trimmed_chain(count: int, removed: int, at: int, *, to: int = 0) -> list[Link]:
    """Return a chain without its first records, which the record `at` says were exported."""
    whole = chain(count)
    digest = whole[at - 2][2]
    said = CallRecord(at, "", "", TRIMMED, f"{removed}:{whole[removed - 1][2]}")
    for n in range(at, count + 1):
        record = said if n == at else whole[n - 1][1]
        digest = digest_after(digest, n, record)
        whole[n - 1] = n, record, digest
    return whole[to or removed :]


def test_removed_prefix_counts_as_exported_only_by_a_proved_record() -> None:
    """A record after the last known head, with no signature, may be anybody's. Source: P-7."""
    forged = trimmed_chain(10, removed=4, at=9)
    head = {8: chain(8)[7][2]}
    assert first_fault(forged, head)[0] == 4
    assert first_fault(forged, head, signed=True) == (0, "")
    proved = trimmed_chain(10, removed=4, at=7)
    assert first_fault(proved, {8: proved[3][2]}) == (0, "")
    more_removed = trimmed_chain(10, removed=4, at=7, to=5)
    assert first_fault(more_removed, {8: proved[3][2]})[0] == 5


def replace_principal(record: CallRecord) -> CallRecord:
    """Return a record of somebody else's."""
    return CallRecord(record.at_ms, "mallory", record.address, record.request, record.object)


def test_command_finds_what_was_edited_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` checks the service's records, or an export of them. Source: P-7."""
    path = tmp_path / "forewarn.db"
    settings = replace(SETTINGS, store=StoreSettings(url=str(path)))
    live = Live(settings)
    for name in ("h1", "h2", "h3"):
        live.call("PUT", f"/v1/hosts/{name}", {})
    monkeypatch.setenv("FOREWARN_SERVER", live.url)
    assert main(["audit", "verify"]) == 0
    assert "3 records intact" in capsys.readouterr().out
    with sqlite3.connect(path) as database:
        database.execute("UPDATE audit SET principal = 'mallory' WHERE seq = 2")
    database.close()
    assert main(["audit", "verify", "--head", "3:abc"]) == 2
    assert "the text is not SEQUENCE:DIGEST" in capsys.readouterr().err
    assert main(["audit", "export"]) == 0
    (tmp_path / "audit").write_text(capsys.readouterr().out)
    live.stop()
    assert main(["audit", "verify", "--file", str(tmp_path / "audit"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["sequence"] == 2


def test_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Another process writes behind the last record. Source: P-7."""
    settings = replace(SETTINGS, store=StoreSettings(url=str(tmp_path / "forewarn.db")))
    for name in ("h1", "h2"):
        live = Live(settings)
        live.call("PUT", f"/v1/hosts/{name}", {})
        live.stop()
    store = open_store(str(tmp_path / "forewarn.db"))
    found = [(each.seq, each.record, each.digest) for each in store.audit.page(0, 10)]
    store.close()
    assert len(found) == 2
    assert first_fault(found, {}) == (0, "")


def test_trimmed_chain_is_verified_with_and_without_its_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Retention exports old records, and says in the chain where it begins. Source: P-7."""
    live = Live()
    monkeypatch.setenv("FOREWARN_SERVER", live.url)
    audit, control = live.daemon.store.audit, live.daemon.control
    for number in range(6):
        assert live.call("PUT", f"/v1/hosts/h{number}", {}).status == 201
        live.advance(60)
    [second] = audit.page(1, 1)
    for _ in range(2):
        exported = audit.trim(tmp_path, oldest_ms=NOW_MS + 150_000, now_ms=live.clock.now_ms())
        if exported:
            control.record(exported)
        live.settle()
    assert [each.seq for each in audit.page(0, 10)] == [4, 5, 6, 7]
    assert main(["audit", "verify"]) == 0
    assert "4 records intact from 4 on" in capsys.readouterr().out
    older, newest = audit.page(5, 2)
    proved = ["audit", "verify", "--head", f"{newest.seq}:{newest.digest}"]
    assert main(proved) == 0
    unproved = ["audit", "verify", "--head", f"{older.seq}:{older.digest}"]
    assert main(unproved) == 1
    assert "record 3 is missing, and no proved record" in capsys.readouterr().out
    old = ["audit", "verify", "--head", f"2:{second.digest}"]
    assert main(old) == 1
    assert main(["audit", "export"]) == 0
    rest = tmp_path / "rest.jsonl"
    rest.write_text(capsys.readouterr().out.partition("\n")[2])
    [exports] = tmp_path.glob("audit-*.gz")
    assert main([*old, "--file", str(exports), "--file", str(rest)]) == 0
    rest.write_text("".join(rest.read_text().splitlines(keepends=True)[1:]))
    assert main(["audit", "verify", "--file", str(rest)]) == 1
    live.stop()


def test_single_old_record_is_trimmed(tmp_path: Path) -> None:
    """It leaves once its export is recorded. Source: P-7."""
    live = Live()
    audit = live.daemon.store.audit
    for number in range(2):
        assert live.call("PUT", f"/v1/hosts/h{number}", {}).status == 201
        live.advance(60)
    for _ in range(2):
        exported = audit.trim(tmp_path, oldest_ms=NOW_MS + 30_000, now_ms=live.clock.now_ms())
        if exported:
            live.daemon.control.record(exported)
        live.settle()
    assert [each.seq for each in audit.page(0, 10)] == [2, 3]
    live.stop()


def test_head_is_logged_once_a_minute(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    """Kept elsewhere, it shows a chain that was rewritten. Source: P-7."""
    caplog.set_level(logging.INFO)
    live.advance(60)
    for seconds in (0, 59, 1):
        live.advance(seconds)
        assert live.call("PUT", "/v1/hosts/h1", {}, headers=bearer(TOKEN)).status < 300
    live.settle()
    heads = [each for each in caplog.records if getattr(each, "action", "") == "audit.head"]
    assert len(heads) == 2


def test_change_that_cannot_be_audited_is_refused() -> None:
    """Without its record a change is undone, and the chain stays whole. Source: P-7."""
    live = Live()
    engine = live.daemon.store._engine
    with engine.writing() as transaction:
        refused = "BEGIN SELECT RAISE(ABORT, 'no room'); END"
        transaction.run_text(f"CREATE TRIGGER no_room BEFORE INSERT ON audit {refused}")
    assert live.call("PUT", "/v1/hosts/h1", {}).status >= 500
    assert live.call("GET", "/v1/hosts/h1").status == 404
    with engine.writing() as transaction:
        transaction.run_text("DROP TRIGGER no_room")
    assert live.call("PUT", "/v1/hosts/h2", {}).status == 201
    records = [each.record for each in live.daemon.store.audit.page(0, 10)]
    assert [each.object for each in records if each.outcome == "done"] == ["h2"]
    live.stop()
