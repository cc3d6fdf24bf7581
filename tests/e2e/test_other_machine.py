"""A follower on a machine that lacks a time zone of the policy: ready, and takes over."""

import os
from pathlib import Path
from zoneinfo import TZPATH

import pytest

from forewarn_core.access.roles import Role
from tests.access import seed_token
from tests.e2e.planes import Plane
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

SITE = "Site/Local"
POLICY = {"windows": {"night": {"time_zone": SITE}}}
WORK = {"cause": "host-reboot", "hosts": ["h1"], "duration": "10m"}
FLEET = {"hosts": {"h1": {}}, "groups": {"web": {}}, "vms": {"w": {"host": "h1", "group": "web"}}}


def test_follower_without_a_time_zone_of_the_policy_takes_over(
    postgres_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the window before and after, in its log and its health. Source: L-12, H-2."""
    seed_token(postgres_address, "tester", Role.ADMIN)
    zone = tmp_path / "zones" / SITE
    zone.parent.mkdir(parents=True)
    system = next(Path(each) for each in TZPATH if Path(each).is_dir())
    zone.write_bytes((system / "UTC").read_bytes())
    planes: list[Plane] = []
    try:
        with monkeypatch.context() as machine:
            machine.setenv("PYTHONTZPATH", os.pathsep.join((str(tmp_path / "zones"), *TZPATH)))
            planes.append(active := Plane(tmp_path, postgres_address, "active"))
        active.wait_started("/leader")
        planes.append(follower := Plane(tmp_path, postgres_address, "follower"))
        follower.wait_started("/ready")
        assert active.ask("PUT", "/v1/topology", FLEET)[0] == 200
        assert active.ask("PUT", "/v1/policy", POLICY)[0] == 200
        assert "degraded" not in active.ask("GET", "/v1/health")[1]
        wait_until(lambda: "degraded" in follower.ask("GET", "/v1/health")[1])
        assert follower.says(200, "/ready")
        active.end()
        follower.wait_started("/leader")
        wait_until(lambda: "degraded" in follower.ask("GET", "/v1/health")[1])
        plan = follower.ask("POST", "/v1/maintenances/plan", WORK)[1]["plan"]
        assert SITE in str(plan["blocked"])
        assert follower.log.read_text().count(f"does not know the time zone {SITE}") == 1
    finally:
        for plane in planes:
            if plane.process.poll() is None:
                plane.end()
