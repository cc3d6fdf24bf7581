"""A service that does not answer has not failed: each preparation asks it until its deadline."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn.agent.core.rules import HOLD_STATUS
from forewarn.agent.preparations import haproxy, http_call, patroni, webhook
from forewarn.agent.preparations.http_call import CallFailed, CallUnanswered
from forewarn.agent.preparations.wait_until import TookTooLong, Unanswered, persist, until
from forewarn_base.clock import SystemClock
from tests.agent.programs import do, done
from tests.agent.test_prepare_answers import CORDONED, LEADER, ME, NODE, POD, Answers, member
from tests.serving import HttpServer, Request

AWAY = (503, {"message": "not now"})
MEMBERS = [LEADER, member("b", "replica")]
AFTER = [member("a", "replica"), member("b", "leader")]
BEFORE_AND_AFTER = [(200, {"members": MEMBERS}), (200, {"members": AFTER})]
NOT_SYNCHRONOUS = [(200, {"synchronous_mode": False})]


@pytest.fixture(autouse=True)
def deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a preparation a minute, which none of these needs."""
    monkeypatch.setenv("FOREWARN_DEADLINE", str(SystemClock().now_ms() // 1000 + 60))


# ---- Patroni -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [(503, "Switchover status unknown"), (502, ""), (504, "")],
    ids=lambda answer: str(answer[0]),
)
def test_switchover_of_unknown_result_is_looked_up(answer: tuple[int, object]) -> None:
    """Patroni knows it at `/cluster`, where another member soon leads; nothing is sent twice."""
    with Answers(
        patroni_GET=[(200, ME)],
        cluster_GET=[(200, {"members": MEMBERS})] * 3 + [(200, {"members": AFTER})],
        config_GET=NOT_SYNCHRONOUS,
        switchover_POST=[answer],
    ) as api:
        said = patroni.prepare({"address": api.url}, {})
    assert said == "switched over from a to b"
    assert api.asked.count("switchover_POST") == 1


def test_switchover_without_an_answer_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patroni answers after the switchover, within 20 s by default, which is longer than a call."""
    monkeypatch.setattr(http_call, "TIMEOUT_S", 0.3)
    over = threading.Event()
    forms = {"/patroni": ME, "/config": {}, "/cluster": {"members": MEMBERS}}

    def respond(request: Request) -> tuple[int, bytes, dict[str, str]]:
        if request.method == "POST":
            forms["/cluster"] = {"members": AFTER}
            over.wait(5)
        return 200, json.dumps(forms.get(request.path, {})).encode(), {}

    with HttpServer(respond) as api:
        assert patroni.prepare({"address": api.url}, {}) == "switched over from a to b"
        over.set()


def test_switchover_that_is_refused_fails_at_once() -> None:
    """Patroni has answered; the event is held, and people look."""
    with Answers(
        patroni_GET=[(200, ME)],
        cluster_GET=[(200, {"members": MEMBERS})],
        config_GET=NOT_SYNCHRONOUS,
        switchover_POST=[(412, "no good candidates have been found")],
    ) as api:
        with pytest.raises(CallFailed, match="no good candidates"):
            patroni.prepare({"address": api.url}, {})
        assert api.asked.count("switchover_POST") == 1


def test_switchover_whose_result_stays_unknown_fails_at_its_time() -> None:
    """The reason has what Patroni said last."""
    with (
        Answers(
            patroni_GET=[(200, ME)],
            cluster_GET=[(200, {"members": MEMBERS})],
            config_GET=NOT_SYNCHRONOUS,
            switchover_POST=[(503, "Switchover status unknown")],
        ) as api,
        pytest.raises(TookTooLong, match="a member other than a leads"),
    ):
        patroni.prepare({"address": api.url, "wait_s": 1}, {})


@pytest.mark.parametrize("name", ["patroni_GET", "cluster_GET", "config_GET"])
@pytest.mark.parametrize("away", [AWAY, (502, "<html>"), (500, {})], ids=["503", "502", "500"])
def test_patroni_that_is_away_is_neither_a_follower_nor_asynchronous(
    name: str, away: tuple[int, object]
) -> None:
    """What is unknown is asked again: a leader would be taken for a follower, and approved."""
    answers: dict[str, list[tuple[int, object]]] = {
        "patroni_GET": [(200, ME)],
        "cluster_GET": [*BEFORE_AND_AFTER],
        "config_GET": [*NOT_SYNCHRONOUS],
        "switchover_POST": [(200, {})],
    }
    answers[name] = [away, *answers[name]]
    with Answers(**answers) as api:
        assert patroni.prepare({"address": api.url}, {}) == "switched over from a to b"


def test_cluster_between_two_leaders_is_asked_again() -> None:
    """A failover under way may make this member the leader."""
    nobody = [member("a", "replica"), member("b", "replica")]
    with Answers(
        patroni_GET=[(200, {**ME, "role": "replica"})],
        cluster_GET=[(200, {"members": nobody}), (200, {"members": AFTER})],
    ) as api:
        said = patroni.prepare({"address": api.url}, {})
    assert said == "b leads; no switchover is needed"


def test_member_that_starts_again_is_waited_for() -> None:
    """After a reboot Patroni needs a while; recovery asks until it runs."""
    with Answers(
        health_GET=[AWAY, AWAY, (200, {})], cluster_GET=[AWAY, (200, {"members": AFTER})]
    ) as api:
        assert patroni.recover({"address": api.url}, {}) == "b leads; this member runs"


# ---- the others --------------------------------------------------------------------------------


@pytest.mark.slow
def test_consul_that_elects_a_leader_is_asked_again(tmp_path: Path) -> None:
    """Consul answers 500 meanwhile."""
    with Answers(
        checks_GET=[(500, "No cluster leader"), (200, {})],
        maintenance_PUT=[(500, "No cluster leader"), (200, {}), AWAY, (200, {})],
    ) as api:
        settings = {"address": api.url}
        assert "in maintenance" in done("consul", "prepare", settings, tmp_path / "s")
        assert "ended" in done("consul", "recover", settings, tmp_path / "s")


@pytest.mark.slow
def test_api_server_that_is_away_fails_no_drain(tmp_path: Path) -> None:
    """It may be upgraded while nodes are drained."""
    with Answers(
        n_GET=[AWAY, (200, NODE), (200, NODE), AWAY, (200, CORDONED)],
        n_PATCH=[AWAY, (409, {}), AWAY, (200, {})],
        pods_GET=[AWAY, (200, {"items": [POD]}), AWAY, (200, {"items": []})],
        eviction_POST=[AWAY, (201, {})],
    ) as api:
        settings = {"server": api.url, "node": "n", "taint": True}
        assert "1 pods were evicted" in done("kubernetes", "prepare", settings, tmp_path / "s")
        assert "removed" in done("kubernetes", "recover", settings, tmp_path / "s")


@pytest.mark.slow
def test_node_that_is_uncordoned_during_its_drain_holds_the_event(tmp_path: Path) -> None:
    """A manual uncordon is a decision: the driver evicts nothing more and reports it."""
    with Answers(
        n_GET=[(200, NODE), (200, CORDONED), (200, NODE)],
        n_PATCH=[(200, {})],
        pods_GET=[(200, {"items": [POD]})],
        eviction_POST=[(429, {})],
    ) as api:
        result = do("kubernetes", "prepare", {"server": api.url, "node": "n"}, tmp_path / "s")
    assert (result.returncode, "was uncordoned" in result.stderr) == (HOLD_STATUS, True)
    assert api.asked.count("eviction_POST") == 1


@pytest.fixture
def balancer(tmp_path: Path) -> Iterator[Callable[[list[str | None]], Path]]:
    """Play HAProxy's socket: each reply for one connection; None: nobody listens for a while."""
    path, over = tmp_path / "admin.sock", threading.Event()
    threads: list[threading.Thread] = []

    def serve(replies: list[str | None]) -> None:
        for reply in replies:
            if reply is None:
                over.wait(0.3)
                continue
            with socket.socket(socket.AF_UNIX) as listener:
                path.unlink(missing_ok=True)
                listener.bind(str(path))
                listener.listen()
                connection, _ = listener.accept()
                path.unlink()
                with connection:
                    connection.recv(4096)
                    connection.sendall(reply.encode())

    def start(replies: list[str | None]) -> Path:
        threads.append(threading.Thread(target=serve, args=(replies,)))
        threads[-1].start()
        return path

    yield start
    over.set()
    for thread in threads:
        thread.join()


def test_balancer_that_starts_again_is_asked_again(
    balancer: Callable[[list[str | None]], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HAProxy's socket is away while a new process takes over."""
    monkeypatch.setenv("FOREWARN_STATE", str(tmp_path))
    state = "1\n# srv_name srv_admin_state\nweb1 0\n"
    stat = "# pxname,svname,scur\nweb,web1,0\n"
    path = balancer([None, state, None, "\n", None, stat])
    said = haproxy.prepare({"socket": str(path), "servers": ["web/web1"]}, {})
    assert said == "drained: web/web1"


BUS = """#!/bin/sh
if ! test -e {tmp}/$1.asked; then
  touch {tmp}/$1.asked
  echo "Failed to connect to bus: Connection refused" >&2
  exit 1
fi
echo "$*" >> {tmp}/log
exec true
"""
CRM = """#!/bin/sh
name=$(basename $0)
if ! test -e {tmp}/$name.asked; then
  touch {tmp}/$name.asked
  echo "Could not connect to the cluster" >&2
  exit {status}
fi
case $name in
  crm_node) echo n ;;
  crm_mon) echo '<x><nodes><node name="n" resources_running="0"/></nodes></x>' ;;
esac
"""


def programs(directory: Path, text: str, *names: str) -> None:
    """Write programs."""
    directory.mkdir()
    for name in names:
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)


def test_service_manager_that_is_away_does_not_make_units_inactive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that was taken for inactive would not be stopped, and the event be approved."""
    programs(tmp_path / "bin", BUS.replace("$1", "$2").format(tmp=tmp_path), "systemctl")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    settings = {"units": ["web.service"]}
    assert done("systemd", "prepare", settings, tmp_path / "s") == "stopped: web.service"
    assert "stop web.service" in (tmp_path / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("status", [102, 106, 124])
def test_cluster_without_an_answer_is_asked_again(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pacemaker's tools cannot connect while the cluster elects its controller."""
    text = CRM.format(tmp=tmp_path, status=status)
    programs(tmp_path / "bin", text, "crm_node", "crm_mon", "crm_standby")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert "n is in standby" in done("pacemaker", "prepare", {}, tmp_path / "s")
    other = CRM.format(tmp=tmp_path, status=1)
    for path in [*tmp_path.glob("*.asked"), tmp_path / "bin" / "crm_node"]:
        path.unlink()
    (tmp_path / "bin" / "crm_node").write_text(other)
    (tmp_path / "bin" / "crm_node").chmod(0o755)
    assert do("pacemaker", "prepare", {}, tmp_path / "other").returncode == 1


def test_receiver_that_is_away_is_asked_until_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `tries`, only the step's time limits the repeats."""
    monkeypatch.setattr("forewarn.agent.preparations.webhook.PAUSE_S", 0.001)
    with Answers(_POST=[AWAY] * 9 + [(200, {})]) as receiver:
        assert webhook.prepare({"url": f"{receiver.url}/"}, {}).endswith("try 10")
    monkeypatch.setenv("FOREWARN_DEADLINE", "1")
    with Answers(_POST=[AWAY]) as receiver:
        with pytest.raises(CallFailed, match="503"):
            webhook.prepare({"url": f"{receiver.url}/"}, {})
        assert len(receiver.asked) == 1


# ---- waiting -----------------------------------------------------------------------------------


def test_unknown_answer_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure names what was unknown last."""
    monkeypatch.setenv("FOREWARN_DEADLINE", "1")

    def ask() -> bool:
        raise Unanswered(service="x", reason="no route")

    with pytest.raises(TookTooLong, match=r"still false: it is up \(x does not answer: no route\)"):
        until(ask, "it is up")
    with pytest.raises(Unanswered):
        persist(ask)


def test_refusal_is_not_asked_again() -> None:
    """Only what is unknown is."""
    asked = []

    def ask() -> bool:
        asked.append(1)
        raise CallFailed(method="GET", url="u", reason="status 403")

    for wait in (lambda: persist(ask), lambda: until(ask, "x")):
        with pytest.raises(CallFailed):
            wait()
    assert len(asked) == 2
    assert issubclass(CallUnanswered, CallFailed)
