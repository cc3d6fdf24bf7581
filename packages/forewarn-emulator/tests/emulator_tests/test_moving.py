"""VMs that a Redeploy or a migration moves in the emulator, and what they leave behind."""

import pytest

from emulator_tests.conftest import Stage


def host_of(stage: Stage, vm: str = "vm-1") -> str:
    """Return where a VM is."""
    return str(stage.api.get(f"/v1/vms/{vm}")["host"])


def test_redeploy_away_from_degraded_hardware_withdraws_the_prediction(stage: Stage) -> None:
    """The advice of the documentation helps: nothing is left to come. Source: L-9, L-11, N-2."""
    stage.api.post("/v1/hosts/host-1/degrade", {})
    stage.advance("1s")
    assert stage.sees() == ["Redeploy Scheduled vm-1 Platform -1"]
    stage.api.post("/v1/vms/vm-1/redeploy")
    redeploy = stage.emulator.document().events[-1]
    stage.emulator.approve(redeploy.event_id)
    stage.advance("3m")
    assert (stage.sees(), host_of(stage)) == ([], "host-2")
    stage.advance("8d")
    assert (stage.sees(), host_of(stage)) == ([], "host-2")
    ended = {each["id"]: each["state"] for each in stage.api.get("/v1/operations")["operations"]}
    assert ended == {"op-1": "cancelled", "op-2": "succeeded"}


@pytest.mark.parametrize(
    ("work", "form"),
    [("migrate", {}), ("degrade", {}), ("fail", {"lost": True})],
)
def test_work_that_moves_vms_moves_them(stage: Stage, work: str, form: dict[str, object]) -> None:
    """A host is added where there is none, in the same fault domain. Source: L-11."""
    stage.api.post(f"/v1/hosts/host-1/{work}", form)
    stage.advance("0s")
    stage.approve()
    stage.advance("10m")
    assert (stage.sees(), host_of(stage)) == ([], "host-2")
    added = stage.api.get("/v1/hosts/host-2")
    assert (added["fault_domain"], added["health"]) == (0, "healthy")


def test_scenario_takes_the_host_away_that_was_added_for_its_vm(stage: Stage) -> None:
    """The fleet is as it was before the story. Source: L-11."""
    fleet = stage.fleet()
    stage.run("mine", text='[[steps]]\ndo = "redeploy"\non = "$vm"\nas = "move"\n'
              '[[steps]]\nwait = "ended"\nfor = "move"\n')  # fmt: skip
    stage.approve()
    stage.advance("10m")
    assert stage.state("mine") == "finished"
    assert stage.fleet() == fleet
