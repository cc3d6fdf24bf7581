"""The libvirt driver carries each impact out on real guests, once, also after a crash."""

import itertools
import json
import sys
from pathlib import Path

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import TRAITS, Cause, Impact
from forewarn_core.fleet.lifecycle import Execution, Operation, with_execution
from forewarn_drivers import Progress, Task
from forewarn_libvirt.config import Fallback, HostConfig, LibvirtConfig
from forewarn_libvirt.driver import LibvirtDriver, TaskCalledOff, TaskUnknown
from libvirt_tests.guest_image import poller_image
from libvirt_tests.laboratory import WAIT_S, Guest, Laboratory
from tests.e2e.certificates import make_certificates
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.netns]

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def guest(lab: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A guest that runs on one of the hosts."""
    lab.define("h1", Guest("a1", 11, poller_image(tmp_path_factory.mktemp("image"))))
    wait_until(lambda: boots(lab) == 1, what="the guest to be up", limit_s=WAIT_S)
    return "a1"


@pytest.fixture
def config(lab: Laboratory, tmp_path: Path) -> LibvirtConfig:
    """What the driver is told of the laboratory."""
    hosts = {name: HostConfig(each.local_uri, each.uri) for name, each in lab.hosts.items()}
    return LibvirtConfig(
        hosts, directory=str(tmp_path), shutdown_timeout_s=20, storage_is_shared=True
    )


def boots(lab: Laboratory) -> int:
    """How often the guest has been up."""
    return sum(" up " in line for line in lab.console("a1"))


def home(lab: Laboratory) -> str:
    """The host on which the guest runs."""
    return next(
        name for name, node in lab.hosts.items() if "a1" in node.run("virsh", "list", "--name")
    )


def task(lab: Laboratory, cause: Cause, impact: Impact | None = None) -> Task:
    """An operation on the guest, or on its host."""
    traits = TRAITS[cause]
    number = next(NUMBERS)
    return Task(
        Operation(
            number=number,
            request=number,
            cause=cause,
            impact=impact or traits.impact,
            source=traits.source,
            routine=traits.routine,
            host=home(lab),
            vms=("a1",),
            of_vm=traits.target.value == "vm",
            description=traits.description,
            execution=Execution(attempt=1),
        )
    )


def carried_out(driver: LibvirtDriver, given: Task) -> Progress:
    """Begin a task, and ask after it until it has ended."""
    driver.begin(given)
    driver.begin(given)
    said: list[Progress] = []

    def ended() -> bool:
        said.append(driver.progress(given, 0))
        return said[-1].done or bool(said[-1].failed)

    wait_until(ended, what="the task")
    return said[-1]


def by_tls(lab: Laboratory, config: LibvirtConfig, pki: Path | None = None) -> LibvirtConfig:
    """Return a configuration whose hosts reach one another by TLS, each with its certificates."""
    names = list(lab.hosts)
    hosts = {}
    for name, other in zip(names, reversed(names), strict=True):
        uri = lab.hosts[name].tls_uri(pki or lab.hosts[other].pki)
        hosts[name] = replace(config.hosts[name], migration_uri=uri)
    return replace(config, hosts=hosts, migration_tls=True)


def test_freeze_moves_the_guest_alive(lab: Laboratory, guest: str, config: LibvirtConfig) -> None:
    """A live migration keeps the guest's memory, which TLS protects. Source: R-5, D-4, X-1."""
    given, config = task(lab, Cause.LIVE_MIGRATION), by_tls(lab, config)
    with pytest.raises(TaskUnknown):
        LibvirtDriver(config).progress(given, 0)
    said = carried_out(LibvirtDriver(config), given)
    assert home(lab) != given.operation.host
    assert 0 <= said.interruption_ms < 60_000
    moved = replace(said, interruption_ms=-1)
    assert moved == Progress(done=True, placements={"a1": home(lab)})
    assert boots(lab) == 1


def test_guest_stays_where_a_host_is_not_known(
    lab: Laboratory, guest: str, config: LibvirtConfig, tmp_path: Path
) -> None:
    """A host with a certificate of another authority is given no guest. Source: R-5."""
    other = tmp_path / "other"
    other.mkdir()
    make_certificates(other, client="DNS:stranger")
    for name, made in (
        ("cacert", "ca.pem"),
        ("clientcert", "client.pem"),
        ("clientkey", "client.key"),
    ):
        (other / made).rename(other / f"{name}.pem")
    given = task(lab, Cause.LIVE_MIGRATION)
    said = carried_out(LibvirtDriver(by_tls(lab, config, other)), given)
    assert "certificate" in said.failed
    assert f"Host {home(lab)}: vm a1: " in said.failed
    assert home(lab) == given.operation.host


def test_hosts_are_discovered_by_tls(lab: Laboratory, guest: str, tmp_path: Path) -> None:
    """As the service reaches them over a network, with a certificate of its own. Source: R-4."""
    pki = lab.control.pki
    hosts = [f'[hosts.{n}]\nuri = "{each.tls_uri(pki)}"\n' for n, each in lab.hosts.items()]
    (tmp_path / "libvirt.toml").write_text(f'directory = "{tmp_path}/kept"\n' + "".join(hosts))
    settings = tmp_path / "forewarn.toml"
    settings.write_text(f'[drivers.libvirt]\nconfig = "{tmp_path}/libvirt.toml"\n')
    words = ("-m", "forewarn_server.cli.main", "driver", "discover", "libvirt")
    said = lab.control.run(sys.executable, *words, "--config", str(settings))
    found = json.loads(said)
    assert found["hosts"].keys() == {"h1", "h2"}
    assert found["vms"]["a1"]["host"] == home(lab)


def test_late_migration_is_given_up_or_goes_on_after_its_guest(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """Postcopy: the guest runs at its destination before its memory is there. Source: R-5.

    The limit comes while both hosts still prepare, when libvirt refuses both ways to keep it.
    """
    given, before = task(lab, Cause.LIVE_MIGRATION), boots(lab)
    slow = replace(config, migration_timeout_s=1, migration_mib_s=1)
    said = carried_out(LibvirtDriver(slow), given)
    assert "was aborted after 1 s" in said.failed
    assert home(lab) == given.operation.host
    over = replace(slow, migration_fallback=Fallback.POSTCOPY)
    given = task(lab, Cause.LIVE_MIGRATION)
    said = carried_out(LibvirtDriver(over), given)
    assert (said.done, said.failed) == (True, "")
    assert home(lab) != given.operation.host
    assert boots(lab) == before


def test_ended_move_is_not_repeated_by_a_driver_that_starts_anew(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """What has been done is known at the hypervisor. Source: R-2."""
    given = task(lab, Cause.LIVE_MIGRATION)
    assert carried_out(LibvirtDriver(config), given).done
    there = home(lab)
    assert carried_out(LibvirtDriver(config), given).done
    assert home(lab) == there


def test_host_forgets_a_guest_that_has_left_it(
    lab: Laboratory, guest: str, config: LibvirtConfig, tmp_path: Path
) -> None:
    """What a libvirtd that died at the end of a move has kept is removed. Source: R-2, D-4."""
    given = task(lab, Cause.LIVE_MIGRATION)
    source = lab.hosts[given.operation.host]
    assert carried_out(LibvirtDriver(config), given).done
    kept = tmp_path / "kept.xml"
    kept.write_text(lab.hosts[home(lab)].run("virsh", "dumpxml", "--inactive", guest))
    source.run("virsh", "define", str(kept))
    unended = replace(config, directory=str(tmp_path / "unended"))
    assert carried_out(LibvirtDriver(unended), given).done
    assert guest not in source.run("virsh", "list", "--all", "--name")


def test_reboot_ends_one_run_and_begins_another_once(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """A guest is rebooted once, also if the driver forgets that it was. Source: R-2, R-5."""
    before, given = boots(lab), task(lab, Cause.REBOOT)
    assert carried_out(LibvirtDriver(config), given).interruption_ms >= 0
    wait_until(lambda: boots(lab) == before + 1, what="its boot", limit_s=WAIT_S)
    assert carried_out(LibvirtDriver(config), given).done
    assert home(lab) == given.operation.host
    assert boots(lab) == before + 1


def test_reboot_of_a_host_measures_the_interruption(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """From the request to shut down to the guest's next start. Source: R-5, X-1."""
    rebooting = replace(config, reboot_command=("sleep", "1"))
    said = carried_out(LibvirtDriver(rebooting), task(lab, Cause.HOST_REBOOT))
    assert said.interruption_ms >= 1000


def test_redeploy_starts_the_guest_elsewhere(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """It is defined and runs on one host only. Source: R-5."""
    before, given = boots(lab), task(lab, Cause.REDEPLOY)
    assert carried_out(LibvirtDriver(config), given).done
    wait_until(lambda: boots(lab) == before + 1, what="its boot", limit_s=WAIT_S)
    there = [name for name, node in lab.hosts.items() if "a1" in node.run("virsh", "list", "--all")]
    assert there == [home(lab)] != [given.operation.host]


def test_retry_moves_no_guest_that_has_gone(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """People may retry before they hear that the attempt before has ended well. Source: R-2."""
    before, given = boots(lab), task(lab, Cause.REDEPLOY)
    driver = LibvirtDriver(config)
    assert carried_out(driver, given).done
    there = home(lab)
    assert carried_out(driver, Task(with_execution(given.operation, attempt=2))) == Progress(
        done=True
    )
    wait_until(lambda: boots(lab) == before + 1, what="its boot", limit_s=WAIT_S)
    assert home(lab) == there != given.operation.host


def test_update_suspends_and_resumes(lab: Laboratory, guest: str, config: LibvirtConfig) -> None:
    """A memory-preserving update runs its command between the two. Source: R-5, X-1."""
    given = task(lab, Cause.HOST_UPDATE)
    assert "update_command is not set" in carried_out(LibvirtDriver(config), given).failed
    node = lab.hosts[home(lab)]
    seen = node.directory / "state"
    look = ("sh", "-c", f"virsh -c '{node.local_uri}' domstate a1 >{seen}; sleep 0.5")
    updating = replace(config, update_command=look)
    said = carried_out(LibvirtDriver(updating), task(lab, Cause.HOST_UPDATE))
    assert said.done
    assert said.interruption_ms >= 500
    assert seen.read_text().strip() == "paused"
    assert node.run("virsh", "domstate", "a1").strip() == "running"


def test_abort_of_a_migration_leaves_the_guest_where_it_was(
    lab: Laboratory, guest: str, config: LibvirtConfig
) -> None:
    """An operation that ended without its driver moves nothing any more. Source: L-7, R-5."""
    given = task(lab, Cause.LIVE_MIGRATION)
    driver = LibvirtDriver(replace(config, migration_mib_s=1))
    driver.begin(given)
    node = lab.hosts[given.operation.host]
    wait_until(
        lambda: (
            "Unbounded" in node.run("virsh", "domjobinfo", "a1", check=False)
            or "remaining" in node.run("virsh", "domjobinfo", "a1", check=False)
        ),
        what="the migration to be under way",
        limit_s=WAIT_S,
    )
    driver.abort(given)
    assert home(lab) == given.operation.host
    assert node.run("virsh", "domstate", "a1").strip() == "running"
    with pytest.raises(TaskCalledOff):
        driver.begin(given)
    assert home(lab) == given.operation.host


def test_preempt_removes_the_guest(lab: Laboratory, guest: str, config: LibvirtConfig) -> None:
    """It is shut down and forgotten; a second time changes nothing. Source: R-5."""
    given = task(lab, Cause.EVICTION)
    assert carried_out(LibvirtDriver(config), given).done
    assert not [n for n in lab.hosts.values() if "a1" in n.run("virsh", "list", "--all")]
    assert carried_out(LibvirtDriver(config), given).done
