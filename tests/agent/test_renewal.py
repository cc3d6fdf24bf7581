"""An agent that starts over: told to, for a clock that was set, or with another's journal."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forewarn.agent.holdings import Holdings
from forewarn.agent.journal import Journal, JournalLost, JournalOpen
from forewarn.agent.log import Log
from forewarn.agent.preparations.http_call import call
from forewarn.agent.runner import Runner
from forewarn.agent.settings import AgentSettings
from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from tests.agent.agents import HOOK_S, Agent
from tests.agent.making import event
from tests.agent.programs import free_port
from tests.agent.service import Service
from tests.waiting import LIMIT_S, wait_until

AHEAD = event(not_before_ms=4_000_000_000_000)


def renew(agent: Agent) -> None:
    """Tell an agent to start over."""
    assert agent.process is not None
    agent.process.send_signal(signal.SIGHUP)


def test_configuration_is_taken_up_anew(service: Service, tmp_path: Path) -> None:
    """`systemctl reload` needs no new process."""
    with Agent(tmp_path, service.endpoint) as agent:
        agent.until_said("named")
        text = agent.config.read_text()
        agent.config.write_text(text.replace("echo prepare", "echo differently"))
        renew(agent)
        agent.until_said("named", 2)
        service.show(AHEAD)
        agent.until_acts("differently")


def test_broken_configuration_changes_nothing(service: Service, tmp_path: Path) -> None:
    """A typing mistake must not leave the VM without an agent."""
    with Agent(tmp_path, service.endpoint) as agent:
        agent.until_said("named")
        agent.config.write_text("[agent\n")
        renew(agent)
        agent.until_said("config-refused")
        service.show(AHEAD)
        agent.until_acts("prepare")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_preparation_goes_on_while_the_agent_changes(
    service: Service, tmp_path: Path, number: int
) -> None:
    """Neither a reload nor an update in the middle of it repeats or forgets a preparation."""
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    with Agent(tmp_path, service.endpoint, prepare=wait) as agent:
        service.show(AHEAD)
        agent.until_acts("prepare")
        hook = agent.hook_pid()
        assert agent.process is not None
        agent.process.send_signal(number)
        if number == signal.SIGTERM:
            assert agent.exit_status() == 0
            agent.start()
        agent.until_said("named", 2)
        (tmp_path / "go").touch()
        service.until(lambda: service.approvals == ["E1"], "the approval")
        agent.until_acts("prepare")
        if number == signal.SIGHUP:
            with pytest.raises(ProcessLookupError):  # not even as a zombie
                os.kill(hook, 0)


def runner_of(service: Service, directory: Path, wall: list[int]) -> Runner:
    """Return a runner whose system clock is set by the test, after its first poll."""
    form = {"endpoint": service.endpoint, "name": "vm_0", "state_dir": str(directory)}
    clock = SystemClock(wall_ns=lambda: wall[0] + time.monotonic_ns())
    runner = Runner(
        AgentSettings({**form, "wait_s": 0.0, "interval_s": 0.05}),
        clock=clock,
        ids=Ids(),
        log=Log(),
    )
    while not runner.contact.polls:
        runner.turn()
    return runner


def begins_anew(runner: Runner) -> bool:
    """Tell whether a runner wants to, after a turn."""
    runner.turn()
    return runner.again


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_clock_that_was_set_is_taken_over_when_nothing_is_scheduled(
    service: Service, tmp_path: Path, step_s: int
) -> None:
    """A VM that started before its clock was right must not think every event due. Source: N-4."""
    wall = [10**18]
    runner = runner_of(service, tmp_path, wall)
    assert not begins_anew(runner)
    service.show(AHEAD)
    while not (runner.core and runner.core.events):
        runner.turn()
    wall[0] += step_s * 10**9
    assert not begins_anew(runner)
    service.show()
    while runner.core.events:
        runner.turn()
    assert begins_anew(runner)
    runner.close()


@pytest.mark.parametrize("change", [{"version": 99}, {"events": [{"stage": "new"}]}])
def test_journal_of_another_release_is_kept_and_put_aside(
    service: Service, tmp_path: Path, change: dict[str, object]
) -> None:
    """After a step back to an older release the VM has an agent, and the journal is not lost."""
    journal = Journal(str(tmp_path / "state"))
    form = {"version": 1, "incarnation": 5, "events": [], "finished": {}, "steps": []}
    journal.write({**form, "unrecovered": {}, "run": 3, **change})
    journal.close()
    with Agent(tmp_path, service.endpoint) as agent:
        agent.until_said("journal-corrupt")
        service.show(AHEAD)
        service.until(lambda: service.approvals == ["E1"], "the approval")
    aside = (tmp_path / "state" / "journal.1.corrupt").read_text()
    assert json.dumps(change, separators=(",", ":"))[1:-1] in aside


def test_directory_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """Who writes the journal of an agent that is root has its commands run as root."""
    tmp_path.chmod(0o757)
    with pytest.raises(JournalOpen):
        Journal(str(tmp_path))


def test_directory_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    """A file in its place, or in place of a journal, is a sentence and no traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(JournalLost):
        Journal(str(tmp_path / "file"))
    (tmp_path / "state" / "journal.0").mkdir(parents=True)
    journal = Journal(str(tmp_path / "state"))
    with pytest.raises(JournalLost):
        journal.read()
    journal.close()


def test_state_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    """The state before is still there."""
    journal = Journal(str(tmp_path))
    journal.write({"known": True})
    with pytest.raises(JournalLost):
        journal.write({"text": "x" * 17_000_000})
    assert journal.read() == {"known": True}
    journal.close()


def test_status_address_that_is_taken_is_said(service: Service, tmp_path: Path) -> None:
    """What cannot be listened on ends the agent with a sentence."""
    taken = service.endpoint.removeprefix("http://")
    with Agent(tmp_path, service.endpoint, agent=f'[status]\nlisten = "{taken}"') as agent:
        assert agent.exit_status() == 1
        assert "cannot continue: address already in use" in agent.log()
        assert "Traceback" not in agent.log()
        program = "from forewarn_server.cli.main import main; raise SystemExit(main())"
        words = ["agent", "run", "--config", str(agent.config)]
        typed = subprocess.run(
            [sys.executable, "-c", program, *words],
            capture_output=True,
            check=False,
            text=True,
            timeout=LIMIT_S,
        )
        assert (typed.returncode, typed.stderr) == (1, agent.log())


@pytest.mark.parametrize(
    "status",
    ['listen = "{taken}"', 'listen = "{free}"\ncert = "/nowhere.pem"\nkey = "/nowhere.pem"'],
    ids=["taken", "no-certificate"],
)
def test_status_that_cannot_be_had_changes_nothing(
    service: Service, tmp_path: Path, status: str
) -> None:
    """A reload that cannot be done leaves the agent and its status endpoint as they were."""
    free = f"127.0.0.1:{free_port()}"
    status = status.format(taken=service.endpoint.removeprefix("http://"), free=free)
    with Agent(tmp_path, service.endpoint, agent=f'[status]\nlisten = "{free}"') as agent:
        agent.until_said("named")
        text = agent.config.read_text()
        agent.config.write_text(text.replace(f'listen = "{free}"', status))
        renew(agent)
        agent.until_said("config-refused")
        assert call("GET", f"http://{free}/healthz").status == 200
        service.show(AHEAD)
        agent.until_acts("prepare")


def test_status_address_changes_at_the_same_port(service: Service, tmp_path: Path) -> None:
    """The one before is in the way of the new one, but is there where that cannot be had."""
    port = free_port()
    form = {"endpoint": service.endpoint, "name": "vm_0", "state_dir": str(tmp_path)}
    holdings = Holdings(AgentSettings({**form, "status_listen": f"127.0.0.1:{port}"}))
    with pytest.raises(OSError, match="assign"):
        holdings.change(AgentSettings({**form, "status_listen": f"192.0.2.1:{port}"}))
    assert holdings.status is not None
    assert holdings.status.port == port
    holdings.change(AgentSettings({**form, "status_listen": f"0.0.0.0:{port}"}))
    assert holdings.status.port == port
    holdings.close()


def test_end_that_is_asked_for_between_two_runners_is_not_lost(
    service: Service, tmp_path: Path
) -> None:
    """SIGTERM just after SIGHUP, while no runner looks, ends the agent."""
    form = {"endpoint": service.endpoint, "name": "vm_0", "state_dir": str(tmp_path)}
    settings = AgentSettings(form)
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    holdings = Holdings(settings)
    try:
        holdings.signals.listen()
        os.kill(os.getpid(), signal.SIGHUP)
        first = Runner(settings, clock=SystemClock(), ids=Ids(), log=Log(), holdings=holdings)
        assert first.run()
        os.kill(os.getpid(), signal.SIGTERM)
        second = Runner(settings, clock=SystemClock(), ids=Ids(), log=Log(), holdings=holdings)
        assert not second.run()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


# -- stopping a hook: it is asked, given its grace, and then ended with all it has started -------


def test_hook_that_ignores_the_request_is_ended(service: Service, tmp_path: Path) -> None:
    """Nothing goes on behind the agent's back once it says that the hook has ended."""
    pids = tmp_path / "pids"
    deaf = f"trap '' TERM; echo $$ >>{pids}; sleep 600 & echo $! >>{pids}; wait"
    with Agent(tmp_path, service.endpoint, prepare=deaf, timeout_s=HOOK_S) as agent:
        service.show(AHEAD)
        agent.until_said("held")
        wait_until(lambda: not any(map(runs, pids.read_text().split())), what="their ends")


def test_hook_is_given_its_grace(service: Service, tmp_path: Path) -> None:
    """A hook that tidies up when it is asked to end has ended when it has done so, not before."""
    tidy = f"trap 'touch {tmp_path}/tidied; exit 1' TERM; sleep 600 & wait"
    with Agent(tmp_path, service.endpoint, prepare=tidy, timeout_s=HOOK_S) as agent:
        service.show(AHEAD)
        agent.until_said("held")
        assert (tmp_path / "tidied").exists()


def runs(pid: str) -> bool:
    """Tell whether a process runs; one that has ended and was not collected has no words."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False
