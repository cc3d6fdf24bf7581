"""Reads the trace `openb`: nodes and tasks of a production GPU cluster; makes what it lacks.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023; `cluster-trace-gpu-v2023` of alibaba/clusterdata. The trace has
no owners, racks and durations of maintenance: seeded rules make these, and are called synthetic.
"""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

from forewarn_base.values import value
from forewarn_core.fleet.topology import Group, Host, Vm

#: Synthetic: nodes of a rack, which is a fault domain, and owners.
RACK_NODES, OWNERS = 16, 60
#: Synthetic: median of a firmware update by model, in seconds, and the spread of its logarithm.
MEDIAN_S = {"": 900, "T4": 1200, "P100": 1200, "A10": 1200, "G2": 1800, "G3": 1800}
MEDIAN_OTHER_S, SPREAD = 2400, 0.7
DAY_MS = 86_400_000


@value
class Node:
    """A node of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@value
class Task:
    """A task of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    models: frozenset[str]
    lasts_s: int


@value
class Cluster:
    """The fleet with its tasks, placed in time order until nothing fits."""

    hosts: tuple[Host, ...]
    groups: tuple[Group, ...]
    vms: tuple[Vm, ...]
    models: dict[str, str]
    #: End of each task, ms after the beginning of the maintenance.
    ends_ms: dict[str, int]


def read_nodes(path: Path) -> list[Node]:
    """Return the nodes of `nodes.csv`."""
    with path.open(newline="", encoding="utf-8") as lines:
        return [
            Node(
                row["sn"],
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                int(row["gpu"]),
                row["model"],
            )
            for row in csv.DictReader(lines)
        ]


def read_tasks(path: Path) -> list[Task]:
    """Return the tasks of `tasks.csv` that were scheduled, in time order."""
    with path.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["scheduled_time"]]
    rows.sort(key=lambda row: (float(row["scheduled_time"]), row["name"]))
    return [
        Task(
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            frozenset(filter(None, row["gpu_spec"].split("|"))),
            int(float(row["deletion_time"]) - float(row["scheduled_time"])),
        )
        for row in rows
    ]


def small(nodes: int) -> tuple[list[Node], list[Task]]:
    """Return a made-up cluster of the same form, for a run without the trace."""
    draw = random.Random(nodes)
    made = [Node(f"n{n}", 96_000, 393_216, 8, draw.choice(("G2", "T4"))) for n in range(nodes)]
    tasks = [
        Task(f"t{n}", 8000, 32_768, 1, frozenset(), int(draw.lognormvariate(8, 2)))
        for n in range(nodes * 3)
    ]
    return made, tasks


def placed(nodes: list[Node], tasks: list[Task], seed: int) -> Cluster:
    """Place tasks in time order, each on the fitting node with the fewest free GPUs.

    At most 56 tasks of the trace run at the same time on its 1,523 nodes, so as in the paper tasks
    arrive without leaving, and the maintenance begins when all have arrived. Each has passed a
    share of its time that the seed draws.
    """
    draw = random.Random(seed)
    free = {each.name: [each.cpu_milli, each.memory_mib, each.gpus] for each in nodes}
    groups, vms, ends_ms = {}, [], {}
    for task in tasks:
        fitting = [
            (free[node.name][2], number, node.name)
            for number, node in enumerate(nodes)
            if (not task.models or node.model in task.models)
            and bool(node.gpus) == bool(task.gpus)
            and free[node.name][0] >= task.cpu_milli
            and free[node.name][1] >= task.memory_mib
            and free[node.name][2] >= task.gpus
        ]
        if not fitting:
            continue
        name = min(fitting)[2]
        for place, size in enumerate((task.cpu_milli, task.memory_mib, task.gpus)):
            free[name][place] -= size
        groups[task.name] = Group(task.name, owner=f"owner-{draw.randrange(OWNERS):02}")
        vms.append(Vm(task.name, name, task.name, memory_mib=task.memory_mib, gpu=bool(task.gpus)))
        ends_ms[task.name] = int(task.lasts_s * draw.random() * 1000)
    hosts = tuple(
        Host(
            node.name,
            fault_domain=number // RACK_NODES,
            memory_mib=node.memory_mib,
            labels=(("model", node.model or "none"), ("rack", f"r{number // RACK_NODES}")),
        )
        for number, node in enumerate(nodes)
    )
    models = {node.name: node.model for node in nodes}
    return Cluster(hosts, tuple(groups.values()), tuple(vms), models, ends_ms)


def update_s(model: str, draw: random.Random) -> int:
    """Return the duration of a firmware update, in seconds: log-normal, with a heavy tail."""
    median_s = MEDIAN_S.get(model, MEDIAN_OTHER_S)
    return max(int(draw.lognormvariate(math.log(median_s), SPREAD)), 60)


def quantile_s(share: float, models: list[str], seed: int, samples: int = 2000) -> int:
    """Return a quantile of earlier updates of these nodes, which another seed draws."""
    draw = random.Random(seed)
    seen = sorted(update_s(draw.choice(models), draw) for _ in range(samples))
    return seen[min(int(share * samples), samples - 1)]
