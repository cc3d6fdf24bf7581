"""What the nova driver asks of a cloud, once, and what it makes of refusals, silence and crashes.

On a server that speaks Nova's JSON; `test_cloud.py` does the same work on Nova itself.
"""

import json
from pathlib import Path

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import FollowedBy, with_execution
from forewarn_drivers import Task
from forewarn_drivers.task_records import (
    TaskAborted,
    TaskForgotten,
    TaskOfLaterWriter,
    TaskRecords,
)
from forewarn_openstack.client import CloudUnconfigured
from forewarn_openstack.config import NovaConfig
from forewarn_openstack.driver import NovaDriver, create
from forewarn_openstack.work import NovaStillWorking
from openstack_tests.keystone import PROJECT
from openstack_tests.small_cloud import SmallCloud
from openstack_tests.tasks import UNWARNED, carried_out, look, nova, task

pytestmark = UNWARNED

#: Requests of one task, at most.
REQUESTS_MAX = 60


def config_of(small: SmallCloud, directory: Path, **said: object) -> NovaConfig:
    """Return a configuration of a cloud."""
    config = NovaConfig(cloud="test", clouds_file=small.clouds_file)
    return replace(config, **said)


@pytest.fixture
def config(small: SmallCloud, tmp_path: Path) -> NovaConfig:
    """What the driver is told, where nothing is special."""
    return config_of(small, tmp_path)


def done(driver: NovaDriver, given: Task) -> bool:
    """Whether a task ends well."""
    return carried_out(driver, given).done


@pytest.mark.parametrize(
    ("cause", "verb"),
    [
        (Cause.LIVE_MIGRATION, "os-migrateLive"),
        (Cause.REDEPLOY, "confirmResize"),
        (Cause.REBOOT, "reboot"),
        (Cause.HOST_REBOOT, "reboot"),
        (Cause.REIMAGE, "rebuild"),
        (Cause.HARDWARE_DEGRADED, "migrate"),
    ],
)
def test_each_cause_is_asked_for_once(
    small: SmallCloud, config: NovaConfig, cause: Cause, verb: str
) -> None:
    """Every look is another driver's, as after a crash: nothing is asked for twice. Source: R-2."""
    given = task(cause, "h1", small.server("a"))
    nova(config).begin(given)
    said = [look(nova(config), given) for _ in range(10)]
    assert said[-1].done
    assert small.done(f'"{verb}"') == 1


@pytest.mark.parametrize(
    ("cause", "verbs"),
    [
        (Cause.LIVE_MIGRATION, ["os-migrateLive"]),
        (Cause.REDEPLOY, ["migrate", "confirmResize"]),
        (Cause.REBOOT, ["reboot"]),
    ],
)
@pytest.mark.parametrize("moves", [False, True], ids=["same machine", "another machine"])
def test_crash_after_any_request_repeats_nothing(
    small: SmallCloud, config: NovaConfig, cause: Cause, verbs: list[str], moves: bool
) -> None:
    """It is carried out, its answer is lost, and another driver goes on. Source: R-2."""
    for answered_max in range(int(moves), REQUESTS_MAX, 2):  # each case tries every other request
        small.asked.clear()
        small.services["h1"]["status"] = "enabled"
        given = task(cause, "h1", small.server("a"))
        small.answered_max = answered_max
        killed = nova(config)
        killed.begin(given)
        while small.answered_max >= 0 and not look(killed, given).text.startswith("Nova does"):
            if look(killed, given).done:
                return
        where = f"elsewhere-{answered_max}" if moves else "store"
        assert done(nova(config, where), given), answered_max
        assert [small.done(f'"{verb}"') for verb in verbs] == [1] * len(verbs), answered_max
        assert small.services["h1"]["status"] == "enabled"
    raise AssertionError("the task takes more requests than a test may try")


def test_reboot_survives_the_loss_of_its_directory(
    small: SmallCloud, config: NovaConfig, tmp_path: Path
) -> None:
    """A writer on another machine reads the mark in Nova, and reboots nothing again. R-2."""
    given = task(Cause.REBOOT, "h1", small.server("a"))
    assert done(nova(config), given)
    assert done(nova(config, "elsewhere"), given)
    assert small.done('"reboot"') == 1


def test_project_can_forge_no_mark(small: SmallCloud, config: NovaConfig, tmp_path: Path) -> None:
    """A mark of a later writer that its project makes up stops nothing. Source: R-2."""
    server = small.server("a")
    given = task(Cause.REBOOT, "h1", server)
    operation = given.operation
    forged = f"{operation.id}@{operation.created_ms} 1 999 1 0 - {'0' * 32}"
    small.servers[server]["metadata"]["forewarn"] = forged
    assert done(nova(config), given)
    small.servers[server]["metadata"].clear()
    assert done(nova(config, "elsewhere"), given)
    assert small.done('"reboot"') == 2  # without any mark nobody knows; only the project suffers


def test_mark_of_a_later_writer_stops_this_one(
    small: SmallCloud, config: NovaConfig, tmp_path: Path
) -> None:
    """Also where the two share nothing but the cloud. Source: R-2, H-10."""
    given = task(Cause.REBOOT, "h1", small.server("a"))
    later = Task(given.operation, given.generation + 1)
    assert done(nova(config, "elsewhere"), later)
    late = nova(config)
    late.begin(given)
    with pytest.raises(TaskOfLaterWriter):
        look(late, given)


def test_reboot_by_its_project_does_not_count(small: SmallCloud, config: NovaConfig) -> None:
    """What a project does to its server is not taken for the task's own work."""
    server = small.server("a")
    given = task(Cause.REBOOT, "h1", server)
    driver = nova(config)
    driver.begin(given)
    small.record(server, "reboot", "a-tenant")
    assert done(driver, given)
    assert small.done('"reboot"') == 1


def test_retry_after_a_failure_asks_again(small: SmallCloud, config: NovaConfig) -> None:
    """The reason is Nova's; servers that were rebooted are not rebooted again. Source: L-8."""
    first, second = small.server("a"), small.server("b")
    given = task(Cause.HOST_REBOOT, "h1", first, second)
    driver = nova(config)
    driver.begin(given)
    assert not look(driver, given).done
    small.actions[-1]["events"][0] |= {"result": "Error", "traceback": "x\nBadHost: no power\n"}
    said = carried_out(driver, given)
    assert said.failed == f"Nova failed during rebooting of {second}: BadHost: no power"
    again = Task(with_execution(given.operation, attempt=2), given.generation)
    assert done(driver, again)
    assert small.done('"reboot"') == 3
    third = Task(with_execution(given.operation, attempt=3), given.generation)
    assert done(driver, third)
    assert small.done('"reboot"') == 5


def test_host_is_disabled_while_it_is_drained(small: SmallCloud, config: NovaConfig) -> None:
    """Nothing is placed on it meanwhile; afterwards it is enabled again. Source: R-5."""
    small.holding.add("os-migrateLive")
    server = small.server("a")
    given = task(Cause.LIVE_MIGRATION, "h1", server)
    driver = nova(config)
    driver.begin(given)
    said = [look(driver, given) for _ in range(3)][-1]
    assert (said.text, said.share) == (f"migrating {server} to h2", 0.75)
    assert said.placements == {server: "h2"}
    reason = small.services["h1"]["disabled_reason"]
    assert reason == f"forewarn {given.operation.id}@{given.operation.created_ms}: live-migration"
    driver.abort(given)
    assert small.services["h1"]["status"] == "enabled"
    assert small.servers[server]["OS-EXT-SRV-ATTR:host"] == "h1"
    assert small.migrations[0]["status"] == "cancelled"
    with pytest.raises(TaskAborted):
        driver.begin(given)


def test_emptied_host_takes_no_server_before_the_work_that_follows(
    small: SmallCloud, tmp_path: Path
) -> None:
    """The scheduler could place one there that is rebooted without notice. Source: F-1, R-5."""
    config = config_of(small, tmp_path, reboot_command=("true",))
    move, work = task(Cause.LIVE_MIGRATION, "h1", small.server("a")), task(Cause.HOST_REBOOT, "h1")
    of_one = {"maintenance": 9, "followed_by": FollowedBy.WORK}
    assert done(nova(config), Task(replace(move.operation, **of_one), 7))
    assert small.services["h1"]["status"] == "disabled"
    assert done(nova(config), Task(replace(work.operation, maintenance=9), 7))
    assert small.services["h1"]["status"] == "enabled"


def test_server_returns_to_its_own_host(small: SmallCloud, config: NovaConfig) -> None:
    """Nova is asked for the host, which its scheduler checks; no host is disabled. F-1, R-5."""
    server = small.server("a", host="h3")  # people have moved it on from h2
    back = replace(
        task(Cause.LIVE_MIGRATION, "h2", server).operation,
        of_vm=True,
        maintenance=9,
        destination="h1",
    )
    assert carried_out(nova(config), Task(back, 7)).placements == {server: "h1"}
    assert small.done('{"os-migrateLive": {"host": "h1", "block_migration": "auto"}}') == 1
    assert {each["status"] for each in small.services.values()} == {"enabled"}


def test_host_that_people_have_disabled_stays_so(small: SmallCloud, config: NovaConfig) -> None:
    """Only who has disabled it enables it again."""
    small.services["h1"] |= {"status": "disabled", "disabled_reason": "new disks"}
    assert done(nova(config), task(Cause.LIVE_MIGRATION, "h1", small.server("a")))
    assert small.services["h1"]["disabled_reason"] == "new disks"


def test_host_that_other_work_has_disabled_stays_so(small: SmallCloud, config: NovaConfig) -> None:
    """Another operation of this service, which still goes on, enables it itself. Source: R-1."""
    reason = "forewarn op-999@1: live-migration"
    small.services["h1"] |= {"status": "disabled", "disabled_reason": reason}
    assert done(nova(config), task(Cause.LIVE_MIGRATION, "h1", small.server("a")))
    said = small.services["h1"]["status"], small.services["h1"]["disabled_reason"]
    assert said == ("disabled", reason), f"R-1: the work of another operation is changed: {said}"


def test_degraded_host_stays_disabled(small: SmallCloud, config: NovaConfig) -> None:
    """Nothing may be placed on hardware that fails."""
    assert done(nova(config), task(Cause.HARDWARE_DEGRADED, "h1", small.server("a")))
    assert small.services["h1"]["status"] == "disabled"


@pytest.mark.parametrize("fallback", ["give-up", "force-complete"])
def test_long_migration_ends_as_the_policy_says(
    small: SmallCloud, tmp_path: Path, fallback: str
) -> None:
    """Given up, or completed by force; asked for once. Source: R-5."""
    small.holding.add("os-migrateLive")
    config = config_of(small, tmp_path, migration_timeout_s=60, migration_fallback=fallback)
    driver, given = nova(config), task(Cause.LIVE_MIGRATION, "h1", small.server("a"))
    driver.begin(given)
    said = [driver.progress(given, 1000 * now_s) for now_s in (0, 1, 61, 63, 64)][-1]
    assert small.done("/migrations/") == 1
    assert said.done == (fallback == "force-complete")
    assert said.failed.endswith("still runs on its old host") != said.done


def test_failed_migration_is_told_in_novas_words(small: SmallCloud, config: NovaConfig) -> None:
    """The others are moved all the same; a retry moves what is left. Source: L-8."""
    small.failing.add("os-migrateLive")
    off = small.server("b", status="SHUTOFF")
    given = task(Cause.LIVE_MIGRATION, "h1", small.server("a"), off)
    said = carried_out(nova(config), given)
    assert "NoValidHost: No valid host was found" in said.failed
    assert small.servers[off]["OS-EXT-SRV-ATTR:host"] == "h2"
    small.failing.clear()
    assert done(nova(config), Task(with_execution(given.operation, attempt=2), 7))
    assert small.done('"os-migrateLive"') == 2


def test_silence_of_nova_is_waited_out(small: SmallCloud, config: NovaConfig) -> None:
    """An API that is away for a while fails nothing; for too long, it does. Source: R-1."""
    given, driver = task(Cause.REBOOT, "h1", small.server("a")), nova(config)
    driver.begin(given)
    small.refusing += [503, 500, 429]
    for now_s in (0, 1, 2):
        said = driver.progress(given, 1000 * now_s)
        assert said.text.startswith("Nova does not answer: ")
        assert said.again_ms
    assert done(driver, given)
    other = task(Cause.REBOOT, "h1", small.server("b"))
    driver.begin(other)
    small.refusing += [503, 503]
    assert driver.progress(other, 0).again_ms
    assert driver.progress(other, 301_000).failed == "Nova does not answer: 503, not now"


def test_refusal_names_its_vm(small: SmallCloud, tmp_path: Path) -> None:
    """One operation works on all VMs of a host, and Nova's words have the server's id. F-5."""
    driver = nova(config_of(small, tmp_path, vm_names="name"))
    small.server("web_0")
    small.server("web_1")
    given = task(Cause.HOST_REBOOT, "h1", f"{PROJECT}.web_0", f"{PROJECT}.web_1")
    driver.begin(given)
    small.refusing += [403]
    failed = carried_out(driver, given).failed
    assert failed.startswith(f"Nova failed during reboot of {PROJECT}.web_0: Nova refuses")


def test_wrong_password_is_said(small: SmallCloud, config: NovaConfig, tmp_path: Path) -> None:
    """It fails at once: asking again does not help."""
    path = tmp_path / "wrong.yaml"
    written = (tmp_path / "clouds.yaml").read_text("utf-8")
    path.write_text(written.replace("a-password", "another"), "utf-8")
    given = task(Cause.REBOOT, "h1", small.server("a"))
    driver = nova(replace(config, clouds_file=str(path)))
    said = carried_out(driver, given)
    assert said.failed.startswith("The OpenStack cloud test cannot be used: The request you have")


def test_busy_server_is_waited_for(small: SmallCloud, config: NovaConfig) -> None:
    """What its project has begun is not interrupted, but not waited for without end."""
    server = small.server("a")
    small.servers[server]["OS-EXT-STS:task_state"] = "image_snapshot"
    given, driver = task(Cause.REBOOT, "h1", server), nova(config)
    driver.begin(given)
    assert driver.progress(given, 0).text == f"waiting for {server}, which is image_snapshot"
    assert "after 900 s" in driver.progress(given, 901_000).failed
    assert small.asked == []


def test_task_that_was_never_begun_is_not_done(small: SmallCloud, config: NovaConfig) -> None:
    """Nor is one of a VM that the cloud does not have. Source: R-2."""
    given = task(Cause.REBOOT, "h1", small.server("a"))
    with pytest.raises(TaskForgotten):
        look(nova(config), given)
    stranger = task(Cause.REBOOT, "h1", "web_0")
    assert carried_out(nova(config), stranger).failed == "The cloud has no server web_0"


def test_servers_are_found_by_name_where_names_are_theirs(
    small: SmallCloud, tmp_path: Path
) -> None:
    """A name that two servers of a project have is refused; those of others do not count."""
    config = config_of(small, tmp_path, vm_names="name")
    small.server("web_0", project="another")
    small.server("web_0")
    assert done(nova(config), task(Cause.REBOOT, "h1", f"{PROJECT}.web_0"))
    small.server("web_0", "h2")
    said = carried_out(nova(config), task(Cause.REBOOT, "h1", f"{PROJECT}.web_0"))
    assert said.failed == f"The cloud has 2 servers called {PROJECT}.web_0"


def test_host_reboot_stops_and_starts_what_ran(small: SmallCloud, tmp_path: Path) -> None:
    """The command runs once, between the two; one that was off stays off. Source: R-5."""
    log = tmp_path / "log"
    config = config_of(small, tmp_path, reboot_command=("sh", "-c", f"echo {{host}} >>{log}"))
    ran, off = small.server("a"), small.server("b", status="SHUTOFF")
    given = task(Cause.HOST_REBOOT, "h1", ran, off)
    assert done(nova(config), given)
    assert log.read_text() == "h1\n"
    assert [small.servers[each]["status"] for each in (ran, off)] == ["ACTIVE", "SHUTOFF"]
    assert small.services["h1"]["status"] == "enabled"
    assert [small.done(each) for each in ("os-stop", "os-start")] == [1, 1]


def test_abort_unpauses_what_it_has_paused(small: SmallCloud, tmp_path: Path) -> None:
    """It is told again until every server of the operation goes on. Source: L-7."""
    config = config_of(small, tmp_path, update_command=("true",))
    server = small.server("a")
    given, driver = task(Cause.HOST_UPDATE, "h1", server), nova(config)
    driver.begin(given)
    look(driver, given)
    assert small.servers[server]["status"] == "PAUSED"
    small.servers[server]["OS-EXT-STS:task_state"] = "image_snapshot"
    with pytest.raises(NovaStillWorking):
        driver.abort(given)
    small.servers[server]["OS-EXT-STS:task_state"] = None
    with pytest.raises(NovaStillWorking):
        driver.abort(given)  # Nova has just been asked
    driver.abort(given)
    assert small.servers[server]["status"] == "ACTIVE"
    assert small.done('"unpause"') == 1


def test_failed_command_leaves_the_host_disabled(small: SmallCloud, tmp_path: Path) -> None:
    """Servers that were paused go on; people look at the host. Source: R-5."""
    config = config_of(small, tmp_path, update_command=("sh", "-c", "echo no space >&2; exit 3"))
    server = small.server("a")
    given, driver = task(Cause.HOST_UPDATE, "h1", server), nova(config)
    assert carried_out(driver, given).failed == (
        "update_command of host h1 failed: sh ended with status 3: no space"
    )
    assert (small.done('"pause"'), small.done('"unpause"')) == (1, 1)
    assert small.services["h1"]["status"] == "disabled"
    driver.abort(given)
    assert small.services["h1"]["status"] == "enabled"


def test_lost_host_is_fenced_before_it_is_evacuated(small: SmallCloud, tmp_path: Path) -> None:
    """Without a command that makes sure that it is off nothing is started. Source: R-5."""
    config, server = config_of(small, tmp_path), small.server("a")
    said = carried_out(nova(config), task(Cause.HOST_LOST, "h1", server))
    assert "fence_command is not set" in said.failed
    assert small.asked == []
    config = config_of(small, tmp_path, fence_command=("true",))
    assert done(nova(config), task(Cause.HOST_LOST, "h1", server))
    assert small.services["h1"]["forced_down"] is True
    assert [each.split()[0] for each in small.asked] == ["PUT", "POST", "POST"]


def test_failed_host_starts_what_people_have_not_stopped(
    small: SmallCloud, config: NovaConfig
) -> None:
    """Once its compute service is back. Source: L-4, R-5."""
    fallen, stopped = small.server("a", status="SHUTOFF"), small.server("b", status="SHUTOFF")
    small.record(fallen, "stop", None)
    small.record(stopped, "stop", "a-tenant")
    small.services["h1"]["state"] = "down"
    given, driver = task(Cause.HARDWARE_FAILURE, "h1", fallen, stopped), nova(config)
    driver.begin(given)
    assert look(driver, given).text == "waiting for the compute service of h1"
    small.services["h1"]["state"] = "up"
    assert done(driver, given)
    assert [small.servers[each]["status"] for each in (fallen, stopped)] == ["ACTIVE", "SHUTOFF"]


def test_removed_server_has_the_rest_of_its_notice(small: SmallCloud, config: NovaConfig) -> None:
    """It is shut down, and deleted once it is off or the notice is over. Source: R-5, N-1."""
    given = task(Cause.EVICTION, "h1", small.server("a"))
    small.holding.add("os-stop")
    driver, started_ms = nova(config), given.operation.execution.started_ms or 0
    driver.begin(given)
    for later_ms in (0, 1000, 4999):
        assert driver.progress(given, started_ms + later_ms).text.startswith("shutting ")
    assert small.done("os-stop") == 1
    driver.progress(given, started_ms + 5000)
    assert small.servers == {}
    assert driver.progress(given, started_ms + 6000).done


def test_cloud_without_a_secret_is_refused_at_start(small: SmallCloud, tmp_path: Path) -> None:
    """Any project could sign a mark that nothing secret goes into."""
    options = {"cloud": "test", "clouds_file": small.clouds_file}
    create("nova", options, TaskRecords("", "nova"))
    auth = {"auth_url": "http://127.0.0.1:1", "token": "a-token"}
    cloud = {"auth_type": "v3token", "auth": auth}
    Path(small.clouds_file).write_text(json.dumps({"clouds": {"test": cloud}}))
    with pytest.raises(CloudUnconfigured, match="password or an application credential"):
        create("nova", options, TaskRecords("", "nova"))
