"""Tasks of the kubernetes driver, and waiting until they have ended. No test may go in here."""

from typing import Any

from forewarn_core.fleet.impact import Cause, Impact
from forewarn_drivers import Progress, Task
from forewarn_kubernetes.driver import KubernetesDriver
from tests.drivers.tasks import now_ms

LOOKS_MAX = 40
MOVE: dict[str, Any] = {
    "cause": Cause.LIVE_MIGRATION,
    "impact": Impact.FREEZE,
    "vms": ("default.a", "default.b"),
}
RESTART: dict[str, Any] = {"cause": Cause.REBOOT, "of_vm": True, "vms": ("default.a",)}


def ended(driver: KubernetesDriver, of: Task) -> Progress:
    """Ask after a task until it has ended."""
    for _ in range(LOOKS_MAX):
        said = driver.progress(of, now_ms())
        if said.done or said.failed:
            return said
    raise AssertionError(of.id)


def carried_out(driver: KubernetesDriver, of: Task) -> Progress:
    """Begin a task and see it end."""
    driver.begin(of)
    return ended(driver, of)
