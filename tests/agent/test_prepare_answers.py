"""Preparations before answers that the real programs give too seldom to wait for."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from forewarn.agent.preparations import patroni, systemd
from forewarn.agent.preparations.patroni import NoCandidate
from forewarn.agent.preparations.systemd import SystemctlFailed
from tests.agent.programs import done
from tests.serving import HttpServer, Request


class Answers(HttpServer):
    """Answers each request with the next of its answers; the last one stays."""

    def __init__(self, **answers: Sequence[tuple[int, object]]) -> None:
        """Take answers by the last part of the path and the method, as in `pods_GET`."""
        self.asked: list[str] = []
        lists = {name: list(given) for name, given in answers.items()}

        def respond(request: Request) -> tuple[int, bytes, dict[str, str]]:
            name = f"{request.path.partition('?')[0].rpartition('/')[2]}_{request.method}"
            self.asked.append(name)
            left = lists[name]
            status, form = left.pop(0) if len(left) > 1 else left[0]
            return status, json.dumps(form).encode(), {}

        super().__init__(respond)


NODE = {"metadata": {"resourceVersion": "1"}, "spec": {}}
CORDONED = {"metadata": {"resourceVersion": "2"}, "spec": {"unschedulable": True}}
POD = {"metadata": {"namespace": "d", "name": "web", "ownerReferences": [{"kind": "ReplicaSet"}]}}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_eviction_that_cannot_be_now_is_asked_for_again(tmp_path: Path, status: int) -> None:
    """Two budgets for one pod are answered 500; the pod may go all the same, a little later."""
    with Answers(
        n_GET=[(200, NODE), (200, CORDONED)],
        n_PATCH=[(200, {})],
        pods_GET=[(200, {"items": [POD]}), (200, {"items": [POD]}), (200, {"items": []})],
        eviction_POST=[(status, {"message": "more than one budget"}), (201, {})],
    ) as api:
        settings = {"server": api.url, "node": "n", "wait_s": 20}
        assert "1 pods were evicted" in done("kubernetes", "prepare", settings, tmp_path / "s")
        assert api.asked.count("eviction_POST") == 2


def member(name: str, role: str, lag: int = 0) -> dict[str, object]:
    """Return a running member as `/cluster` shows it."""
    return {"name": name, "role": role, "state": "streaming", "lag": lag}


ME = {"role": "primary", "patroni": {"name": "a", "scope": "db"}}
LEADER = member("a", "leader")


@pytest.mark.parametrize(
    ("mode", "others", "settings"),
    [
        pytest.param(True, [member("b", "replica")], {}, id="none is synchronous"),
        pytest.param("quorum", [member("b", "replica")], {}, id="quorum"),
        pytest.param(
            False,
            [member("b", "replica"), member("c", "sync_standby")],
            {"candidate": "b"},
            id="the one wished for is not",
        ),
    ],
)
def test_asynchronous_member_never_leads_a_synchronous_cluster(
    mode: object, others: list[object], settings: dict[str, object]
) -> None:
    """It may lack transactions that clients were told are safe."""
    with Answers(
        patroni_GET=[(200, ME)],
        cluster_GET=[(200, {"members": [LEADER, *others]})],
        config_GET=[(200, {"synchronous_mode": mode})],
    ) as api:
        with pytest.raises(NoCandidate):
            patroni.prepare({"address": api.url, **settings}, {})
        assert "switchover_POST" not in api.asked


def test_synchronous_member_leads_however_others_lag() -> None:
    """Least lag counts only among those that may lead."""
    members = [LEADER, member("b", "replica"), member("c", "sync_standby", 9)]
    after = [member("a", "replica"), member("c", "leader")]
    with Answers(
        patroni_GET=[(200, ME)],
        cluster_GET=[(200, {"members": members}), (200, {"members": after})],
        config_GET=[(200, {"synchronous_mode": True})],
        switchover_POST=[(200, {})],
    ) as api:
        said = patroni.prepare({"address": api.url, "wait_s": 5}, {})
    assert said == "switched over from a to c"


@pytest.mark.parametrize("action", ["isolate", "Stop", "restart", ""])
def test_unknown_action_starts_no_unit(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `start` starts; anything else was meant otherwise."""
    monkeypatch.setenv("FOREWARN_STATE", str(tmp_path))
    with pytest.raises(SystemctlFailed, match="must be stop or start"):
        systemd.prepare({"units": ["web.service"], "action": action}, {})
    assert list(tmp_path.iterdir()) == []
