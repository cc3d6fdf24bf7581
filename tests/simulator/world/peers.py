"""How VMs of one event learn that others are prepared: at a shared place, or when they ask.

What is said and what follows from an answer is decided by the agents; whether it was true is
checked in `coordination_checker.py`. Words travel as badly as everything else (`network.py`).
"""

from collections.abc import Callable, Iterable
from functools import partial

from forewarn.agent.core.values import PeersSeen
from forewarn.agent.status_server import prepared_form
from forewarn_base.protocol.documents import ScheduledEvent
from tests.simulator.checkers.coordination_checker import SHARED, STATUS, CoordinationChecker
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.machine import Machine
from tests.simulator.world.network import Network

#: An answer that takes longer is none: the agent ends the job that waits for it.
LATE_MS_MAX = 60_000

#: How long a VM that is back may take until it has polled and says what it knows.
NEW_MS = 60_000


class Peers:
    """Every word between agents of one group."""

    def __init__(
        self,
        queue: EventQueue,
        dice: Dice,
        *,
        network: Network,
        coordination_checker: CoordinationChecker,
    ) -> None:
        """Begin with nothing said."""
        #: Checks whether it is true what VMs say.
        self.checks = coordination_checker
        self._queue = queue
        self._dice = dice
        self._network = network
        self._machines = coordination_checker.machines
        #: (event, VM): what the shared place has, or a status endpoint said last time.
        self._said: dict[tuple[str, str], None] = {}
        #: When what a VM said last arrives: one word after another.
        self._last_ms: dict[str, int] = {}
        #: VM that was down when it was asked -> VMs that have asked it.
        self._missed: dict[str, dict[str, None]] = {}
        #: Event -> VMs that have asked who is prepared for it.
        self._asking: dict[str, dict[str, None]] = {}

    def announce(self, machine: Machine, event: ScheduledEvent, *, prepared: bool) -> None:
        """Say that a VM is prepared, or no longer; nothing is answered.

        That it holds is heard where its agent is asked, as by those who would stand in for it.
        """
        name, event_id = machine.profile.name, event.event_id.upper()
        if prepared and (event_id, name) in self._said:
            return  # said again, which changes nothing
        if machine.profile.place == STATUS:
            self._put(event_id, name, prepared=prepared)
            return
        rates = self._network.rates
        if self._dice.chance(rates.lost):
            machine.unheard = True
            return
        delay_ms = self._dice.between(1, LATE_MS_MAX if self._dice.chance(rates.late) else 50)
        at_ms = max(self._last_ms.get(name, 0), self._queue.now_ms + delay_ms)
        self._last_ms[name] = at_ms
        self._queue.at(at_ms, partial(self._put, event_id, name, prepared=prepared))

    def ask(
        self,
        machine: Machine,
        event: ScheduledEvent,
        others: tuple[str, ...],
        *,
        answered: Callable[[PeersSeen | None], None],
    ) -> None:
        """Find out what other VMs say; None where no answer comes in time."""
        name, event_id = machine.profile.name, event.event_id.upper()
        self._asking.setdefault(event_id, {})[name] = None
        rates = self._network.rates
        if self._dice.chance(rates.answer_lost):
            machine.unheard = True
            self._queue.after(LATE_MS_MAX, partial(answered, None))
            return
        has = self._has_said if machine.profile.place == SHARED else self._tells
        found = tuple(other for other in others if has(other.removeprefix("_"), event_id))
        heard = tuple(other for other in found if not self._dice.chance(rates.lost))
        deciding = tuple(
            other for other in others if self._tells(other.removeprefix("_"), event_id, "deciding")
        )
        says = {other for other in others if self._answers(machine, other.removeprefix("_"))}
        unprepared = tuple(other for other in others if other in says and other not in found)
        seen = PeersSeen(event.event_id, heard, unprepared=unprepared, deciding=deciding)
        machine.unheard = heard != found
        self._miss(others, name)
        delay_ms = self._dice.between(1, LATE_MS_MAX if self._dice.chance(rates.late) else 50)
        self._queue.after(delay_ms, partial(answered, seen))

    def _has_said(self, name: str, event_id: str) -> bool:
        return (event_id, name) in self._said

    def _answers(self, asker: Machine, name: str) -> bool:
        """Whether what another VM says of the event is to be had: a shared place always answers."""
        machine = self._machines.get(name)
        return asker.profile.place == SHARED or (machine is not None and machine.core is not None)

    def _tells(self, name: str, event_id: str, word: str = "prepared") -> bool:
        """What a VM's status endpoint says; one that is down says nothing."""
        machine = self._machines.get(name)
        if machine is None or machine.core is None:
            return False
        listed = prepared_form(name, machine.core)[word]
        assert isinstance(listed, list)
        return event_id in listed

    def returned(self, name: str) -> None:
        """A VM is back, with what its journal says: who missed it asks now and when it has polled.

        Asking on and on would be the same to all but the time a world takes.
        """
        missed = self._missed.pop(name, None)
        if missed:
            self._ask_again(missed)
            self._queue.after(NEW_MS, partial(self._ask_again, missed))

    def _ask_again(self, names: Iterable[str]) -> None:
        for name in names:
            machine = self._machines.get(name)
            if machine is not None:
                machine.look_again()

    def _miss(self, others: tuple[str, ...], asker: str) -> None:
        """Note which VMs are down and will be back: nothing can be heard of them until then."""
        for other in others:
            machine = self._machines.get(other.removeprefix("_"))
            if machine is not None and machine.core is None and machine.profile.habit.polls:
                self._missed.setdefault(machine.profile.name, {})[asker] = None

    def _put(self, event_id: str, name: str, *, prepared: bool) -> None:
        if prepared:
            self._said[event_id, name] = None
        else:
            self._said.pop((event_id, name), None)
        self._wake(event_id, name)

    def _wake(self, event_id: str, name: str) -> None:
        """Have those who wait for an answer ask again at their time: it may be another one."""
        for other in self._asking.get(event_id, ()):
            machine = self._machines.get(other)
            if other != name and machine is not None:
                machine.look_again()
