"""What simulated worlds came to, for people: progress, summary, violations."""

import sys
from collections import Counter
from collections.abc import Mapping

from forewarn_base.clock import SystemClock
from forewarn_server.cli.output import note, noun
from tests.simulator.runs import WorldResult

DAY_MS = 24 * 3600 * 1000
#: Lines of progress in a log, at most: one each 5 % of the worlds.
LINE_SHARES = 20
#: Least time between two of them, in milliseconds.
LINE_MS = 60_000


class Summary:
    """Adds results up as they come."""

    def __init__(self, runs: int, jobs: int) -> None:
        """Begin to count worlds, of which `jobs` run at a time.

        Progress is one line on a terminal, elsewhere a line now and then.
        """
        self._runs = runs
        self._jobs = jobs
        self._on_terminal = sys.stderr.isatty()
        self._clock = SystemClock()
        self._begun_ms = self._line_ms = self._clock.now_ms()
        self._share = 0
        self._lasted_ms = 0
        self._steps = 0
        self._done = 0
        self._faults: Counter[tuple[str, str]] = Counter()
        self._habits: Counter[str] = Counter()
        self._premises: Counter[str] = Counter()
        self.broken = 0

    def add(self, result: WorldResult) -> None:
        """Count one world."""
        self._done += 1
        self._lasted_ms += result.lasted_ms
        self._steps += result.steps
        self._faults.update(result.faults)
        self._habits.update(result.habits)
        self._premises.update(result.premises)
        self.broken += bool(result.invariant)
        self._show_progress()

    def end_progress(self) -> None:
        """Let the next line begin at the left."""
        if self._on_terminal:
            print(file=sys.stderr)

    def print(self) -> None:
        """Print what all worlds came to."""
        faults = "; ".join(
            f"{kind}: {_counts(effects)}"
            for kind, effects in self._effects().items()
            if any(effects.values())
        )
        note(f"faults: {faults or 'none'}")
        note(f"habits: {_counts(self._habits) or 'none'}")
        note(f"rules that were never tested: {'; '.join(self.untested()) or 'none'}")
        days = round(self._lasted_ms / DAY_MS)
        note(
            f"{self._done} {noun(self._done, 'world')}, {days:,} {noun(days, 'day')}, "
            f"{self._steps:,} {noun(self._steps, 'step')}, {self._speed():,.0f} times real time "
            f"on {self._jobs} {noun(self._jobs, 'processor')}, "
            f"{self.broken} {noun(self.broken, 'broken promise')}"
        )

    def untested(self) -> list[str]:
        """Rules that no world gave a chance to be broken."""
        return [name for name, count in self._premises.items() if not count]

    def _show_progress(self) -> None:
        worlds = noun(self._runs, "world")
        text = f"{self._done} of {self._runs} {worlds}, {self._speed():,.0f} times real time"
        now_ms, share = self._clock.now_ms(), self._done * LINE_SHARES // self._runs
        if self._on_terminal:
            print(f"\r{text} ", end="", file=sys.stderr, flush=True)
        elif share > self._share and now_ms - self._line_ms >= LINE_MS:
            self._share, self._line_ms = share, now_ms
            print(text, file=sys.stderr, flush=True)

    def _effects(self) -> dict[str, dict[str, int]]:
        """Kind of fault -> what it did -> how often."""
        effects: dict[str, dict[str, int]] = {}
        for (kind, effect), count in self._faults.items():
            effects.setdefault(kind, {})[effect] = count
        return effects

    def _speed(self) -> float:
        return self._lasted_ms / max(self._clock.now_ms() - self._begun_ms, 1)


def print_violation(result: WorldResult) -> None:
    """Report a broken promise: seed, step, last entries, and how to see it again."""
    note(f"seed {result.plan.seed}, step {result.steps}: {result.text}")
    for line in result.last:
        note(f"  {line}")
    note(f"repeat it with: {result.command}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
