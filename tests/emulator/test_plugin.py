"""The pytest plugin, used as a project that installs Forewarn would use it.

What the emulator itself does is tested elsewhere.
"""

from __future__ import annotations

import pytest

from forewarn.emulator.options import Options
from forewarn.testing import EmulatorThread

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
            assert "forewarn.emulator.emulator" not in sys.modules

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
