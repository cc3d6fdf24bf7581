"""The pytest plugin, used as a project that installs Forewarn would use it.

What the emulator itself does is tested elsewhere.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.testing import AgentThread, EmulatorThread
from forewarn_base.errors import CallerError
from forewarn_emulator.options import Options
from tests.waiting import LIMIT_S, wait_until

pytest_plugins = ["pytester"]


def test_fixture_gives_an_emulator_with_a_standing_clock(
    forewarn_emulator: EmulatorThread,
) -> None:
    """A test asks for maintenance, approves it, and lets it pass. Source: L-1, A-1."""
    before_ms = forewarn_emulator.now_ms
    assert forewarn_emulator.ask("host-reboot", "host-1", duration_s=60) == "op-1"
    [event] = forewarn_emulator.document().events
    assert (event.event_type, event.status) == ("Reboot", "Scheduled")
    forewarn_emulator.approve(event.event_id)
    assert forewarn_emulator.document().events[0].status == "Started"
    assert forewarn_emulator.now_ms == before_ms
    forewarn_emulator.advance(60)
    assert forewarn_emulator.document().events == ()


def test_event_can_be_withdrawn(forewarn_emulator: EmulatorThread) -> None:
    """What is cancelled is gone without having started. Source: L-3."""
    operation = forewarn_emulator.ask("reboot", "vm-1")
    forewarn_emulator.cancel(operation, "never mind")
    assert forewarn_emulator.document().events == ()
    assert forewarn_emulator.document().incarnation == 2


def test_faults_and_scenarios_are_at_hand(forewarn_emulator: EmulatorThread) -> None:
    """The fixture sets faults and tells scenarios. Source: E-10."""
    forewarn_emulator.set_fault("410=1x")
    with pytest.raises(OSError, match="410"):
        forewarn_emulator.document()
    forewarn_emulator.clear_faults()
    forewarn_emulator.run_scenario("spot-preemption")
    assert forewarn_emulator.document().events[0].event_type == "Preempt"
    forewarn_emulator.stop_scenario("spot-preemption")
    assert forewarn_emulator.document().events == ()


def test_mistakes_of_a_test_are_named(forewarn_emulator: EmulatorThread) -> None:
    """A wrong VM, id, time or scenario raises an error that names it."""
    emulator = forewarn_emulator
    mistakes: list[Callable[[], object]] = [
        lambda: emulator.document("vm-9"),
        lambda: emulator.approve("E1", vm="vm-9"),
        lambda: emulator.ask("reboot", "vm-9"),
        lambda: emulator.cancel("op-vm-9"),
        lambda: emulator.advance("vm-9"),
        lambda: emulator.run_scenario("vm-9"),
        lambda: emulator.stop_scenario("vm-9"),
        lambda: emulator.set_fault("vm-9"),
    ]
    for mistake in mistakes:
        with pytest.raises(CallerError, match="vm-9"):
            mistake()


class TestOptions:
    """A class of tests with an emulator of another kind."""

    @pytest.fixture
    def forewarn_options(self) -> Options:
        """Two VMs, and ids that repeat."""
        return Options(listen=("127.0.0.1:0",), operator="", vms=("a", "b"), seed=1)

    def test_options_are_overridden(self, forewarn_emulator: EmulatorThread) -> None:
        """Both VMs read the same document. Source: S-1."""
        forewarn_emulator.ask("reboot", "b")
        assert forewarn_emulator.document("a") == forewarn_emulator.document("b")


@pytest.mark.slow
def test_plugin_is_found_without_a_word(pytester: pytest.Pytester) -> None:
    """Whoever installs Forewarn has the fixture; whoever does not use it pays nothing."""
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            assert "forewarn_emulator.emulator" not in sys.modules

        def test_vm_sees_it(forewarn_emulator):
            forewarn_emulator.ask("reboot", "vm-1")
            assert len(forewarn_emulator.document().events) == 1
        """
    )
    pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_broken_start_leaves_no_thread() -> None:
    """An emulator that cannot start says so and is gone."""
    emulator = EmulatorThread(Options(listen=("nonsense",), operator=""))
    with pytest.raises(Exception, match="nonsense"):
        emulator.start()


AGENT = """
[step.note]
prepare = ["sh", "-c", "echo prepared >> {directory}/acts"]
recover = ["sh", "-c", "echo recovered >> {directory}/acts"]
"""


def test_agent_prepares_with_the_configuration_of_a_test(
    forewarn_emulator: EmulatorThread, forewarn_agent: AgentThread, tmp_path: Path
) -> None:
    """Hooks and rules of one's own are tested without a VM, also over a restart. Source: C-9."""
    config = tmp_path / "agent.toml"
    config.write_text(AGENT.format(directory=tmp_path))
    forewarn_agent.start(config)
    forewarn_emulator.ask("reboot", "vm-1", duration_s=60)
    forewarn_emulator.until(lambda document: document.events[0].status == "Started")
    forewarn_agent.stop()
    forewarn_emulator.advance("60s")
    forewarn_agent.start(config)
    acts = tmp_path / "acts"
    wait_until(lambda: acts.read_text() == "prepared\nrecovered\n", what="acts")


def test_errors_say_what_to_do(forewarn_emulator: EmulatorThread) -> None:
    """A slip is answered with what would have been right."""
    with pytest.raises(CallerError, match=r"one of .*host-reboot.*not 'restart'"):
        forewarn_emulator.ask("restart", "vm-1")
    with pytest.raises(CallerError, match="an id from `ask`"):
        forewarn_emulator.cancel("reboot")
    with pytest.raises(OSError, match="400") as refused:
        forewarn_emulator.approve("no-such-event")
    assert "The service answered: " in refused.value.__notes__[0]
    with pytest.raises(TimeoutError, match="the VM reads: no events"):
        forewarn_emulator.until(lambda document: document.events[0], within_s=0)
    with pytest.raises(CallerError, match="not running"):
        EmulatorThread().ask("reboot", "vm-1")


def test_process_ends_while_an_emulator_runs() -> None:
    """A test that fails before it stops its emulator does not keep pytest from ending."""
    script = "from forewarn.testing import EmulatorThread; EmulatorThread().start()"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LIMIT_S)


@pytest.mark.parametrize("kind", [EmulatorThread, AgentThread])
def test_every_public_method_is_documented(kind: type) -> None:
    """The how-to names what a test can call, and each has a docstring."""
    page = Path(__file__).parents[4] / "docs" / "howto" / "test-with-pytest.md"
    text = page.read_text("utf-8")
    for name, found in vars(kind).items():
        if not name.startswith("_"):
            assert found.__doc__, name
            assert f"`{name}`" in text or f"`{name}(" in text, name
