"""A busy hypervisor has not failed: libvirt's own test driver, which refuses some calls for now."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import TRAITS, Cause
from forewarn_core.fleet.lifecycle import Execution, Operation
from forewarn_drivers import PlatformUnanswered, Progress, Task
from forewarn_libvirt import work
from forewarn_libvirt.config import HostConfig, LibvirtConfig
from forewarn_libvirt.connection import HypervisorFailed, failing
from forewarn_libvirt.driver import LibvirtDriver
from tests.waiting import wait_until

libvirt = pytest.importorskip("libvirt")
#: The test driver's guest keeps the marks of operations as long as this process lives.
NUMBERS = itertools.count(1)
LOCK = "Timed out during operation: cannot acquire state change lock (held by monitor)"
BUSY = (libvirt.VIR_ERR_OPERATION_TIMEOUT, libvirt.VIR_FROM_QEMU)
BROKEN = (libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_FROM_RPC)
DENIED = (libvirt.VIR_ERR_OPERATION_DENIED, libvirt.VIR_FROM_QEMU)
REFUSED = (libvirt.VIR_ERR_OPERATION_FAILED, libvirt.VIR_FROM_QEMU)


def trouble(kind: tuple[int, int], text: str = LOCK) -> Exception:
    """Return an error as the library raises it."""
    libvirt.virResetLastError()  # an error takes the text of the thread's last one, if any
    error: Exception = libvirt.libvirtError(text)
    error.err = (*kind, text, 2, "", "", "", -1, -1)  # type: ignore[attr-defined]
    return error


@pytest.fixture
def config(tmp_path: Path) -> LibvirtConfig:
    """One host, with one guest that is called test and runs."""
    return LibvirtConfig(
        {"h1": HostConfig("test:///default")}, directory=str(tmp_path), shutdown_timeout_s=1
    )


def flaky(
    monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, times: int
) -> Callable[[], int]:
    """Let a call of the library fail so often; return how often it still will."""
    call = getattr(libvirt.virDomain, name)
    left = [times]

    def fail_first(*words: Any, **named: Any) -> Any:  # noqa: ANN401 - the library's
        if left[0]:
            left[0] -= 1
            raise error
        return call(*words, **named)

    monkeypatch.setattr(libvirt.virDomain, name, fail_first)
    return lambda: left[0]


def rebooted(config: LibvirtConfig) -> tuple[Progress, set[str]]:
    """Reboot the guest; return the end, and what was said meanwhile."""
    traits, number = TRAITS[Cause.REBOOT], next(NUMBERS)
    given = Task(
        Operation(
            number=number,
            request=number,
            cause=Cause.REBOOT,
            impact=traits.impact,
            source=traits.source,
            routine=traits.routine,
            host="h1",
            vms=("test",),
            of_vm=True,
            description="",
            execution=Execution(attempt=1),
        )
    )
    driver, said = LibvirtDriver(config), set()
    driver.begin(given)
    last = [Progress()]

    def ended() -> bool:
        last[0] = driver.progress(given, 0)
        said.add(last[0].text)
        return last[0].done or bool(last[0].failed)

    wait_until(ended, what="the reboot")
    return last[0], said


@pytest.mark.parametrize("kind", [BUSY, BROKEN], ids=["lock", "connection"])
@pytest.mark.parametrize("name", ["metadata", "setMetadata", "shutdown", "create", "isActive"])
def test_guest_whose_hypervisor_is_busy_is_rebooted_later(
    config: LibvirtConfig, monkeypatch: pytest.MonkeyPatch, name: str, kind: tuple[int, int]
) -> None:
    """A state change lock that another client holds fails no task for good. Source: R-5, L-8."""
    monkeypatch.setattr(work, "TRY_EVERY_S", 0.05)
    left = flaky(monkeypatch, name, trouble(kind), 3)
    end, said = rebooted(config)
    assert (end.done, end.failed, left()) == (True, "", 0)
    assert any("waiting for h1" in text for text in said)


def test_guest_whose_hypervisor_stays_busy_is_stuck_in_the_end(
    config: LibvirtConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task reports the last error of the hypervisor. Source: L-8."""
    monkeypatch.setattr(work, "TRY_EVERY_S", 0.05)
    flaky(monkeypatch, "setMetadata", trouble(BUSY), 1_000_000)
    end, _ = rebooted(replace(config, unreachable_timeout_s=1))
    assert "vm test: " in end.failed
    assert "state change lock" in end.failed


def test_refusal_of_a_hypervisor_fails_at_once(
    config: LibvirtConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was answered is not made again. Source: L-8."""
    left = flaky(monkeypatch, "setMetadata", trouble(REFUSED, "no"), 5)
    end, _ = rebooted(config)
    assert end.failed
    assert left() == 4


@pytest.mark.parametrize(
    ("kind", "text", "unknown"),
    [
        pytest.param(BUSY, LOCK, True, id="lock"),
        pytest.param(BROKEN, "client socket is closed", True, id="connection"),
        pytest.param(BROKEN, "The server certificate has expired", False, id="certificate"),
        pytest.param(DENIED, "read only", False, id="denied"),
        pytest.param(REFUSED, "operation failed", False, id="failed"),
    ],
)
def test_only_an_unknown_result_is_asked_for_again(
    kind: tuple[int, int], text: str, *, unknown: bool
) -> None:
    """The library's codes distinguish the errors."""
    with pytest.raises(HypervisorFailed) as caught, failing("h1"):
        raise trouble(kind, text)
    assert isinstance(caught.value, PlatformUnanswered) == unknown


def test_guest_on_a_host_that_does_not_listen_is_unknown(config: LibvirtConfig) -> None:
    """The guest may be there. Source: R-5."""
    hosts = {"h1": HostConfig("qemu+tcp://127.0.0.1:1/system")}
    away = replace(config, hosts=hosts, unreachable_timeout_s=1)
    end, said = rebooted(away)
    assert "no connection to 127.0.0.1:1" in end.failed
    assert any("waiting for h1" in text for text in said)
