"""A call with an Idempotency-Key: carried out once, answered alike, also by another process."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.audit_chain import CallRecord
from forewarn_base.settings import StoreSettings
from forewarn_core.access.roles import Authority, Principal, Role
from forewarn_core.access.stimulus import AddToken
from forewarn_core.access.tokens import AccessToken, digest_of, written_token
from forewarn_server.api.idempotency import owner_of_keys
from forewarn_server.cli.api_client import ApiClient
from forewarn_server.control.plane import ControlPlane
from forewarn_store.answers import ELSEWHERE, KeptAnswer, KeptAnswers
from forewarn_store.engine import Value
from tests.api.live import FLEET, NOW_MS, SETTINGS, Json, Live
from tests.asking import Reply
from tests.waiting import LIMIT_S

REBOOT = "/v1/vms/db-0/reboot"


def call(live: Live, path: str = REBOOT, key: str = "k", form: Json = None) -> Reply:
    """Send a POST with a key."""
    return live.call("POST", path, form or {}, headers={"Idempotency-Key": key})


@pytest.fixture
def live() -> Iterator[Live]:
    """A service with a fleet."""
    with Live() as service:
        service.fleet(**FLEET)
        yield service


def test_repeated_call_has_no_further_effect(live: Live) -> None:
    """It gets the first answer, byte for byte; another key asks again. Source: P-10."""
    first, again = call(live), call(live)
    assert (first.status, again.status) == (202, 202)
    assert first.body == again.body
    assert again.headers["idempotent-replayed"] == "true"
    assert call(live, key="other").code == "already-asked"
    assert len(live.get("/v1/operations")["operations"]) == 1


def test_key_is_for_one_request(live: Live) -> None:
    """The same key with another body or path changes nothing. Source: P-10."""
    assert call(live).status == 202
    assert call(live, form={"description": "x"}).code == "idempotency-key-reused"
    assert call(live, path="/v1/vms/web-0/reboot").code == "idempotency-key-reused"
    assert call(live, key="x" * 129).code == "idempotency-key-invalid"


def test_keys_of_two_principals_have_nothing_to_do_with_each_other(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests with one key at one time are both carried out. Source: P-10."""
    find, together = KeptAnswers.find, threading.Barrier(2)

    def found(kept: KeptAnswers, call: CallRecord) -> KeptAnswer | None:
        together.wait(LIMIT_S)
        return find(kept, call)

    monkeypatch.setattr(KeptAnswers, "find", found)
    owner = live.add_token("shop", Role.OWNER, "shop")
    headers = {"Idempotency-Key": "k", "Authorization": f"Bearer {owner}"}
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(live.call, "POST", "/v1/vms/web-0/reboot", {}, headers=headers)
        assert call(live).status == 202
        assert theirs.result(LIMIT_S).status == 202


def test_key_that_is_sent_twice_at_once_changes_once(live: Live) -> None:
    """While the first request runs, the second has no effect; later it gets the answer. P-10."""
    path, form = "/v1/maintenances", {"cause": "host-reboot", "hosts": ["h1"], "duration": 60}
    held, release = threading.Event(), threading.Event()

    def hold(_: ControlPlane) -> bool:
        held.set()
        return release.wait(LIMIT_S)

    blocked = live.daemon.control.read(hold)
    assert held.wait(LIMIT_S), "the deciding thread is not held"
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(call, live, path, "k", form) for _ in range(2)]
        done, waiting = wait(calls, LIMIT_S, FIRST_COMPLETED)
        pending = live.call("GET", "/v1/answers?key=k")
        release.set()
        assert (pending.status, pending.code) == (503, "answer-pending")
        assert [each.result().code for each in done] == ["answer-unknown"]
        [first] = [each.result(LIMIT_S) for each in waiting]
    assert blocked.result(LIMIT_S)
    assert call(live, path, "k", form).body == first.body
    drafts = [each["id"] for each in live.get("/v1/maintenances")["maintenances"]]
    assert drafts == ["m-1"], f"one key, sent twice at once, made {drafts}"


def token(live: Live, token_id: str, role: Role, owner: str = "") -> dict[str, str]:
    """Create a token of the principal `ci`, and return the headers of a call with a key."""
    made = AccessToken(token_id, "ci", role, owner, digest_of("x"), NOW_MS, None)
    live.daemon.control.submit(AddToken(made), "test").result(LIMIT_S)
    return {"Idempotency-Key": "k", "Authorization": f"Bearer {written_token(token_id, 'x')}"}


def test_answer_is_for_the_token_that_asked(live: Live) -> None:
    """Another token of the principal, with other rights, does not get it. Source: P-10, P-3."""
    form = {"cause": "reboot", "targets": ["db-0"]}
    operator, owner = token(live, "t1", Role.OPERATOR), token(live, "t2", Role.OWNER, "shop")
    first, foreign, again = (
        live.call("POST", "/v1/operations", form, headers=headers)
        for headers in (operator, owner, operator)
    )
    assert (first.status, foreign.code) == (202, "answer-unknown")
    assert again.body == first.body


def test_request_is_not_done_again_with_a_new_token(live: Live) -> None:
    """As after a restore, which suspends every token; another request may have the key. P-10."""
    form = {"cause": "reboot", "targets": ["db-0"]}
    before, after = token(live, "t1", Role.OPERATOR), token(live, "t2", Role.OPERATOR)
    assert live.call("POST", "/v1/operations", form, headers=before).status == 202
    assert live.call("POST", "/v1/operations", form, headers=after).code == "answer-unknown"
    assert len(live.get("/v1/operations")["operations"]) == 1
    form = {"cause": "reboot", "targets": ["web-0"]}
    assert live.call("POST", "/v1/operations", form, headers=after).status == 202


def test_answer_is_for_the_roles_that_asked(live: Live) -> None:
    """A login whose roles have changed gets no answer of its former roles. Source: P-10."""
    bindings = [(), (("viewer", ""),), (("owner", "shop"),), (("owner", "db"),)]
    kim = Authority("oidc:kim")
    owners = {owner_of_keys(Principal("oidc:kim", each), kim) for each in bindings}
    assert len(owners) == len(bindings)
    assert all(" " in each for each in owners), "no name of a principal has one"


def test_first_answer_is_shown_without_repeating_the_request(live: Live) -> None:
    """Only to the token that asked; a request that was never sent is not carried out. P-10."""
    form = {"cause": "reboot", "targets": ["db-0"]}
    mine, other = token(live, "t1", Role.OPERATOR), token(live, "t2", Role.OPERATOR)
    path = f"/v1/answers?key={mine['Idempotency-Key']}"
    assert live.call("GET", path, headers=mine).code == "answer-missing"
    first = live.call("POST", "/v1/operations", form, headers=mine)
    shown = live.call("GET", path, headers=mine)
    assert (shown.status, shown.body) == (first.status, first.body)
    assert live.call("GET", path, headers=other).code == "answer-unknown"
    assert live.call("GET", "/v1/answers?key=other", headers=mine).code == "answer-missing"
    assert len(live.get("/v1/operations")["operations"]) == 1


def test_answer_to_a_call_that_is_refused_is_missing(live: Live) -> None:
    """What changed nothing has no answer. Source: P-10."""
    assert call(live, path="/v1/vms/new/reboot").status == 404
    assert live.call("GET", "/v1/answers?key=k").code == "answer-missing"


def test_key_of_the_release_before_is_not_used_twice(live: Live) -> None:
    """Both run during an upgrade; each finds that the other has executed a call. H-8, P-10."""
    assert call(live).status == 202
    store = live.daemon.store
    [(request, status, answer)] = store.rows("answer_of", owner="local", key="k", since_ms=0)
    assert (status, answer) == (0, ELSEWHERE)
    with store._engine.writing() as transaction:
        facts: dict[str, Value] = {"request": request, "at_ms": NOW_MS, "answer": "secret"}
        transaction.run("answer_put", owner="local", key="old", status=202, **facts)
    assert call(live, key="old").code == "answer-unknown"
    assert call(live, key="old", path="/v1/vms/web-0/reboot").code == "idempotency-key-reused"


def test_refusal_is_not_kept(live: Live) -> None:
    """What changed nothing is tried again. Source: P-10."""
    assert call(live, path="/v1/vms/new/reboot").status == 404
    live.call("PUT", "/v1/vms/new", {"host": "h1"})
    assert call(live, path="/v1/vms/new/reboot").status == 202


def test_secret_is_not_kept(live: Live) -> None:
    """A repeated call for a token makes no second one, and shows the first to nobody. P-10."""
    form = {"principal": "kim", "role": "viewer"}
    assert call(live, path="/v1/access/tokens", form=form).status == 201
    assert call(live, path="/v1/access/tokens", form=form).code == "answer-unknown"
    assert len(live.get("/v1/access/tokens")["tokens"]) == 1


def test_answers_of_calls_that_change_nothing_are_limited(live: Live) -> None:
    """They are stored as long as their records are. Source: P-7, P-10."""
    path, grant = "/v1/access/grant", {"principal": "user:kim", "role": "viewer"}
    for number in range(110):
        assert call(live, path=path, key=f"k{number}", form=grant).status == 200
    repeated = [call(live, path=path, key=f"k{n}", form=grant).headers for n in (50, 109)]
    assert ["idempotent-replayed" in each for each in repeated] == [True, False]


def test_answer_is_kept_for_a_day_and_over_a_restart(tmp_path: Path) -> None:
    """Another process gives it, too; after a day the key is free. Source: P-10."""
    settings = replace(SETTINGS, store=StoreSettings(url=str(tmp_path / "forewarn.db")))
    one = Live(settings)
    one.fleet(**FLEET)
    first = call(one)
    one.stop()
    other = Live(settings)
    assert call(other).body == first.body
    other.clock.advance(86_400_000)
    assert call(other).body != first.body
    other.stop()


def test_command_repeats_what_broke_off(live: Live) -> None:
    """A connection that ends before the answer is tried again with the same key. Source: P-10."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def relay() -> None:
            for number in range(2):
                near, _ = proxy.accept()
                with near, socket.create_connection((live.host, int(live.port))) as far:
                    request = b""
                    while not request.endswith(b"}"):
                        request += near.recv(65_536)
                    far.sendall(request)
                    while answer := far.recv(65_536):
                        if number:
                            near.sendall(answer)

        thread = threading.Thread(target=relay)
        thread.start()
        answer = ApiClient(f"http://127.0.0.1:{proxy.getsockname()[1]}").post(REBOOT)
        thread.join()
    assert answer["operations"][0]["id"] == "op-1"
    assert len(live.get("/v1/operations")["operations"]) == 1
