"""What is broken in a campaign: each fault strikes, stays for a while, and heals."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.chaos.databases import AsynchronousPatroniDatabase, PatroniDatabase, PooledDatabase
from tests.chaos.scene import NODES, PLANES, WITH_PIPE, WITH_WORKERS
from tests.store.rewinding import Snapshot

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.chaos.scene import Program, Scene

    Heal = Callable[[], object]
    Strike = Callable[[Scene, random.Random], tuple[str, Heal]]

#: By how many seconds clocks are wrong.
SKEWS = (-3600, -20, 0, 20, 3600)


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    #: Breaks something; returns what, and what heals it.
    strike: Strike
    #: How long it stays, in seconds.
    hold_s: tuple[float, float] = (0.0, 0.0)
    #: Longest time without an answer to polls that the contract allows, in seconds; 0: no limit.
    bound_s: float = 0.0
    #: How often it is drawn.
    weight: int = 2
    #: Kinds of databases it needs; empty: any.
    databases: tuple[str, ...] = ()
    #: Whether no other fault strikes with it.
    alone: bool = False


def _nothing() -> None:
    pass


def _leader(scene: Scene, chance: random.Random) -> str:
    return scene.leader() or chance.choice(PLANES)


def _follower(scene: Scene, chance: random.Random) -> str:
    leader = scene.leader()
    return chance.choice([each for each in PLANES if each != leader])


def _signal(sign: signal.Signals) -> Strike:
    def strike(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
        name = _leader(scene, chance)
        scene.planes[name].signal(sign)
        return name, _nothing

    return strike


def _kill_follower(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    name = _follower(scene, chance)
    scene.planes[name].signal(signal.SIGKILL)
    return name, _nothing


def _step_down(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    asked = chance.choice(PLANES)
    status, _ = scene.ask(asked, "POST", "/v1/leader/step-down", {})
    return f"asked of {asked}: {status}", _nothing


def _pause(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Stop the main process, its workers, or both, and let them go on."""
    name = _leader(scene, chance)
    program = scene.planes[name]
    children = program.children()
    which = chance.choice(("main", "workers", "both")) if children else "main"
    pids = {"main": [program.pid], "workers": children, "both": [program.pid, *children]}[which]
    program.signal(signal.SIGSTOP, pids)
    return f"{which} of {name}", partial(program.signal, signal.SIGCONT, pids)


def _orphan_workers(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Stop or kill the main process of workers: of a follower, or of the leader."""
    program = scene.planes[WITH_WORKERS]
    leads = chance.random() < 0.5 and scene.bring_to_lead(WITH_WORKERS)
    what = f"{WITH_WORKERS}, {'which leads' if leads else 'wherever it is'}"
    if chance.random() < 0.5:
        return f"{what}, is killed", _down(program)
    pids = [program.pid]
    program.signal(signal.SIGSTOP, pids)
    return f"{what}, is stopped", partial(program.signal, signal.SIGCONT, pids)


def _stop_log_reader(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Stop the program that reads the log of a control plane from a pipe."""
    program = scene.planes[WITH_PIPE]
    leads = chance.random() < 0.8 and scene.bring_to_lead(WITH_PIPE)
    reader = program.reader
    if reader is None or reader.poll() is not None:
        return "it has ended", _nothing
    reader.send_signal(signal.SIGSTOP)
    heal = partial(reader.send_signal, signal.SIGCONT)
    return f"{WITH_PIPE}, {'which leads' if leads else 'wherever it is'}", heal


def _isolate(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Cut the leader from the database and from every other control plane."""
    name = _leader(scene, chance)
    others = [*scene.database.machines, *(each for each in PLANES if each != name)]
    for each in others:
        scene.cut(name, each)
    return name, scene.heal


def _cut_database(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    return _without_database(scene, _leader(scene, chance))


def _cut_database_of_follower(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    return _without_database(scene, _follower(scene, chance))


def _without_database(scene: Scene, name: str) -> tuple[str, Heal]:
    for each in scene.database.machines:
        scene.cut(name, each)
    return name, scene.heal


def _cut_pair(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    machines = {*PLANES, *scene.nodes, *scene.database.machines}
    one, other = chance.sample(sorted(machines), 2)
    scene.cut(one, other)
    return f"{one} and {other}", scene.heal


def _cut_node(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    name = chance.choice(sorted(scene.nodes))
    for each in PLANES:
        scene.cut(name, each)
    return name, scene.heal


def _down(program: Program) -> Heal:
    program.held = True
    program.signal(signal.SIGKILL)

    def heal() -> None:
        program.held = False

    return heal


def _kill_node(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    name = chance.choice(sorted(scene.nodes))
    return name, _down(scene.nodes[name])


def _pause_node(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    name = chance.choice(sorted(scene.nodes))
    program = scene.nodes[name]
    program.signal(signal.SIGSTOP)
    return name, partial(program.signal, signal.SIGCONT, [program.pid])


def _clone_node(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Start a second machine with the name, the certificate and the store of a node."""
    name = chance.choice(NODES)
    scene.clone_node(name)
    ends_s = time.monotonic() + TOLD_S
    while not (told := scene.clone_is_known(name)) and time.monotonic() < ends_s:
        _PAUSE.wait(0.1)
    # It is refused only at the control plane that the node follows.
    return f"{name}, {'which is notified' if told else 'which follows elsewhere'}", scene.end_clone


def _skew_node(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Set the clock of a node wrong; half of the time it starts with that clock."""
    name, seconds = chance.choice(NODES), chance.choice(SKEWS)
    scene.skew(name, seconds)
    restarts = chance.random() < 0.5
    if restarts:
        scene.nodes[name].signal(signal.SIGKILL)
    what = f"{name} {seconds:+} s{', restarted' if restarts else ''}"
    return what, partial(scene.skew, name, 0)


def _rush(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Send the approvals of many VMs at once; half of the time, kill the leader meanwhile."""
    kills = chance.random() < 0.5
    delay_s = chance.uniform(0, 0.4)

    def meanwhile() -> None:
        if kills:
            _PAUSE.wait(delay_s)
            scene.planes[_leader(scene, chance)].signal(signal.SIGKILL)

    if not scene.rush(meanwhile):
        scene.problems.append("VMs of a rush could not approve")
    return "and SIGKILL of the leader" if kills else "", _nothing


def _fill_disk(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    name = chance.choice(NODES)
    scene.fill_disk(name, full=True)
    return name, partial(scene.fill_disk, name, full=False)


def _skew(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Set a clock wrong, until it is set again; half of the time its process is killed, too."""
    name, seconds = chance.choice(PLANES), chance.choice(SKEWS)
    scene.skew(name, seconds)
    if chance.random() < 0.5:
        scene.planes[name].signal(signal.SIGKILL)
        return f"{name} {seconds:+} s, restarted", _nothing
    return f"{name} {seconds:+} s", _nothing


def _skew_heir(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Set the clocks of all followers wrong, and kill the leader."""
    name, seconds = _leader(scene, chance), chance.choice(SKEWS)
    for each in PLANES:
        if each != name:
            scene.skew(each, seconds)
    scene.planes[name].signal(signal.SIGKILL)
    return f"{name} killed, the others {seconds:+} s", _nothing


def _cut_sessions(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    del chance
    return scene.database.cut_sessions(), _nothing


def _crash_database(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    del chance
    scene.database.crash()
    return "", scene.database.revive


def _switch_over(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    del chance
    assert isinstance(scene.database, PatroniDatabase)
    return scene.database.switch_over(), _nothing


def _fail_over(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    del chance
    assert isinstance(scene.database, PatroniDatabase)
    name = scene.database.fail_over()
    return name, partial(scene.database.revive_member, name)


def _restart_pooler(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    del chance
    assert isinstance(scene.database, PooledDatabase)
    scene.database.crash_pooler()
    return "", scene.database.revive_pooler


def _go_back(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Put an old copy of the database in place, without `store restore`; perhaps with a restart."""
    begin_ms = time.time_ns() // 1_000_000
    copy = Snapshot(scene.database.direct())
    _PAUSE.wait(chance.uniform(*LOST_S))
    restarts = chance.random() < 0.5
    if restarts:
        scene.hold_planes(held=True)
    scene.gone_back = copy.put_back()  # without a commit since, nobody can notice
    scene.lost_ms.append((begin_ms, time.time_ns() // 1_000_000 + LOST_SLACK_MS))
    if restarts:
        scene.hold_planes(held=False)
    return "and every control plane restarts" if restarts else "", scene.finish_restore


def _promote_lagging(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    """Promote a replica that lacks the last seconds of the server that takes writes."""
    database = scene.database
    assert isinstance(database, AsynchronousPatroniDatabase)
    begin_ms = database.await_replicas()
    if not begin_ms:
        return "no replica follows", _nothing
    database.hold_back()
    _PAUSE.wait(chance.uniform(*LOST_S))
    known = database.generation()
    name = database.fail_over()
    scene.lost_ms.append((begin_ms, time.time_ns() // 1_000_000 + LOST_SLACK_MS))
    database.await_primary()
    scene.gone_back = lost = database.generation() < known

    def heal() -> None:
        database.revive_member(name)
        scene.finish_restore()

    return f"{name}, {'commits are lost' if lost else 'nothing is lost'}", heal


def _fill_logs(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    del chance
    scene.fill_logs(full=True)
    return "of every control plane", partial(scene.fill_logs, full=False)


def _fill_database(scene: Scene, chance: random.Random) -> tuple[str, Heal]:
    del chance
    scene.database.fill_disk()
    return "", scene.database.free_disk


#: For how long commits are made that are lost, and how long after that a driver may still begin.
LOST_S, LOST_SLACK_MS = (1.0, 5.0), 5000
#: For how long a clone may start and ask to follow, in seconds.
TOLD_S = 6.0
#: Never set.
_PAUSE = threading.Event()
#: H-2: an orderly stop, and a crash; H-3: a hang.
ORDERLY_S, CRASH_S, HANG_S = 1.0, 6.0, 15.0
#: Kinds of databases with one server, which has a disk of its own.
ONE_SERVER = ("single", "pooler")
#: A cut between members may lose commits of an asynchronous one.
DURABLE = (*ONE_SERVER, "patroni")
FAULTS = (
    Fault("SIGKILL of the leader", _signal(signal.SIGKILL), bound_s=CRASH_S, weight=6),
    Fault("SIGTERM of the leader", _signal(signal.SIGTERM), bound_s=ORDERLY_S, weight=4),
    Fault("leader step-down", _step_down, bound_s=ORDERLY_S, weight=4),
    Fault("SIGKILL of a follower", _kill_follower),
    Fault("SIGSTOP of the leader", _pause, hold_s=(1, 20), bound_s=HANG_S, weight=6),
    Fault("leader cut from the database", _cut_database, hold_s=(2, 14), bound_s=CRASH_S, weight=4),
    Fault("leader cut from all", _isolate, hold_s=(2, 14), bound_s=CRASH_S, weight=3),
    Fault("follower cut from the database", _cut_database_of_follower, hold_s=(2, 14)),
    Fault("a pair cut", _cut_pair, hold_s=(2, 10), weight=4, databases=DURABLE),
    Fault("workers without their main process", _orphan_workers, hold_s=(2, 14)),
    Fault("log pipe unread", _stop_log_reader, hold_s=(5, 12), bound_s=ORDERLY_S),
    Fault("rush of approvals", _rush, weight=3),
    Fault("node cloned", _clone_node, hold_s=(2, 10), alone=True),
    Fault("node cut", _cut_node, hold_s=(2, 12), weight=3),
    Fault("node killed", _kill_node, hold_s=(0, 6), weight=3),
    Fault("SIGSTOP of a node", _pause_node, hold_s=(1, 10)),
    Fault("disk of a node full", _fill_disk, hold_s=(3, 8)),
    Fault("disk of logs full", _fill_logs, hold_s=(3, 8)),
    Fault("disk of PostgreSQL full", _fill_database, hold_s=(3, 8), databases=ONE_SERVER),
    Fault("clock stepped", _skew, weight=4),
    Fault("clock of a node stepped", _skew_node, hold_s=(2, 8)),
    Fault("heirs with a wrong clock", _skew_heir, bound_s=CRASH_S, weight=4),
    Fault("sessions terminated", _cut_sessions, weight=3),
    Fault("database goes back", _go_back, hold_s=(2, 8), databases=ONE_SERVER),
    Fault("PostgreSQL SIGKILL", _crash_database, hold_s=(0, 3), weight=3),
    # Without synchronous replicas, one right after a crash of the server loses commits.
    Fault("Patroni switchover", _switch_over, hold_s=(5, 8), weight=3, databases=("patroni",)),
    Fault("Patroni failover", _fail_over, hold_s=(25, 35), weight=2, databases=("patroni",)),
    Fault(
        "lagging replica promoted",
        _promote_lagging,
        hold_s=(2, 8),
        weight=6,
        databases=("asynchronous",),
        alone=True,
    ),
    Fault("PgBouncer restart", _restart_pooler, hold_s=(0, 4), weight=4, databases=("pooler",)),
)
#: The short form has each of these once.
QUICK = frozenset(
    (
        "SIGKILL of the leader",
        "SIGTERM of the leader",
        "leader step-down",
        "SIGKILL of a follower",
        "SIGSTOP of the leader",
        "leader cut from the database",
        "node cut",
        "node killed",
        "disk of a node full",
        "node cloned",
        "log pipe unread",
        "rush of approvals",
        "sessions terminated",
        "database goes back",
    )
)


def faults_of(kind: str) -> tuple[Fault, ...]:
    """Return the faults that a kind of database knows."""
    return tuple(each for each in FAULTS if kind in (each.databases or (kind,)))
