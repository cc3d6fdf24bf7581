"""Looks for broken promises in worlds nobody has seen: `python -m tests.simulator.hunt MINUTES`.

Sizes and rates take turns. What is found is kept under `.build/found`, with the command that
repeats it; a further argument is the first seed, else that is drawn.
"""

import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from tests.simulator.runs import WorldResult, run_world
from tests.simulator.world.faults import KINDS
from tests.simulator.world.people import OPTIONAL
from tests.simulator.world.world import WorldPlan

ROOT = Path(__file__).resolve().parents[2]
FOUND = ROOT / ".build" / "found"
SEED_MAX = 1 << 40
#: What is left out where maintenances meet only each other, failures and their operators.
MAINTAINED = frozenset({*KINDS, *OPTIONAL}) - {
    *("maintenances", "policies", "steering", "tenants", "deferrals"),
    *("changes", "evictions", "host", "drivers"),
}
#: Faults left out where the service and its network are sound.
SOUND = frozenset(KINDS) - {"host", "drivers", "silence"}
#: Hosts, VMs, days, rate and what is left out of small worlds in which much coincides, in turn.
SMALL = (
    {"hosts": 4, "vms": 10, "days": 0.4, "rate": 12, "without": MAINTAINED},
    {"hosts": 5, "vms": 16, "days": 0.08, "rate": 24, "without": SOUND},
    {"hosts": 3, "vms": 6, "days": 0.1, "rate": 60},
)
#: The same of all worlds.
SHAPES = (
    *SMALL,
    {"hosts": 6, "vms": 40, "days": 1.0},
    {"hosts": 6, "vms": 40, "days": 0.25, "rate": 12},
    {"hosts": 4, "vms": 12, "days": 2.0, "rate": 4},
    {"hosts": 20, "vms": 200, "days": 1.0},
)


def first_seed() -> int:
    """A seed that nobody has used."""
    return secrets.randbelow(SEED_MAX)


def plans(seed: int, shapes: Sequence[Mapping[str, object]] = SHAPES) -> Iterator[WorldPlan]:
    """Worlds without an end, each with a seed of its own, in each shape in turn."""
    for shape in cycle(shapes):
        yield WorldPlan(seed, **shape)  # type: ignore[arg-type]
        seed += 1


def keep(result: WorldResult, folder: Path = FOUND) -> str:
    """Write down a broken promise; return what was written."""
    text = "\n".join((result.text, f"repeat it with: {result.command}", *result.last, ""))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result.plan.seed}.txt").write_text(text, encoding="utf-8")
    return text


def main(arguments: list[str]) -> int:
    """Hunt for this many minutes."""
    seed = int(arguments[1]) if arguments[1:] else first_seed()
    until_s = time.monotonic() + float(arguments[0]) * 60
    print(f"from seed {seed}", flush=True)
    premises: Counter[str] = Counter()
    worlds = found = 0
    for plan in plans(seed):
        if time.monotonic() >= until_s:
            break
        result = run_world(plan)
        worlds += 1
        premises.update(result.premises)
        if result.invariant:
            found += 1
            print(keep(result), flush=True)
    print(f"{worlds} worlds, {found} broken promises")
    for name, count in premises.items():
        print(f"{count:9} {name}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
