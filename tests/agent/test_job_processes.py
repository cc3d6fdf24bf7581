"""Jobs of eight real processes with a real agent: one step, one consent, and deaths in between."""

import contextlib
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent.jobs.wire import LineReader, connect, line_of
from forewarn.job import Job, JobNotice, JobRefused
from tests.agent.agents import Agent
from tests.agent.making import event
from tests.agent.programs import free_port, running
from tests.agent.service import Service
from tests.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WORLD = 8
#: Events of the job whose ranks are killed; `make test-jobs` plays 1,000.
RUNS = int(os.environ.get("JOB_RUNS", "6"))
FAR_MS = 4_000_000_000_000
JOBS = """
[jobs]
listen = "{listen}"
{token}
[step.train]
use = "job"
address = "{listen}"
timeout_s = {timeout_s}
{token}
"""


def agent_of(
    directory: Path, service: Service, *, listen: str = "", token: str = "", timeout_s: float = 600
) -> Agent:
    """Return an agent with a job socket, whose step waits for the jobs' consent."""
    listen = listen or str(directory / "jobs.sock")
    token = f'token_file = "{token}"' if token else ""
    text = JOBS.format(listen=listen, token=token, timeout_s=timeout_s)
    return Agent(directory, service.endpoint, agent=text)


class Ranks:
    """The processes of a job, as a launcher starts them: all again after a death."""

    def __init__(self, directory: Path, address: str) -> None:
        """Start nothing yet."""
        self.directory, self.address = directory, address
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start all ranks from the last checkpoint."""
        command = [sys.executable, "-m", "tests.agent.job_rank", str(self.directory), self.address]
        for rank in range(WORLD):
            with (self.directory / f"rank-{rank}.log").open("ab") as log:
                words = [*command, str(rank), str(WORLD)]
                self.processes.append(subprocess.Popen(words, stdout=log, stderr=log))

    def kill(self) -> None:
        """Kill all ranks without warning."""
        for process in self.processes:
            process.kill()
            process.wait(LIMIT_S)
        self.processes.clear()

    def shards(self) -> dict[int, int]:
        """Return for each step how many ranks have stopped and saved there."""
        steps = [int(path.name.split("-")[1]) for path in self.directory.glob("shard-*")]
        return {step: steps.count(step) for step in steps}


@contextlib.contextmanager
def training(directory: Path, address: str) -> Iterator[Ranks]:
    """Run the ranks of a job, until they finish or are killed."""
    ranks = Ranks(directory, address)
    ranks.start()
    try:
        yield ranks
    finally:
        ranks.kill()


def registered(
    directory: Path, agent: Agent, count: int = WORLD, *, limit_s: float = LIMIT_S
) -> None:
    """Wait until this many ranks follow the agent."""

    def sockets() -> int:
        assert agent.process is not None
        links = Path(f"/proc/{agent.process.pid}/fd").iterdir()
        targets = []
        for link in links:
            with contextlib.suppress(OSError):
                targets.append(str(link.readlink()))
        return sum(target.startswith("socket:") for target in targets)

    jobs = directory / "state" / "jobs.json"
    wait_until(jobs.exists, what="a job")
    wait_until(lambda: sockets() >= count + 1, what=f"{count} ranks", limit_s=limit_s)


def durable(directory: Path) -> list[str]:
    """Return the acknowledged checkpoints in the agent's state."""
    form = json.loads((directory / "state" / "jobs.json").read_text())
    return [one["checkpoint"] for job in form["jobs"] for one in job["acknowledged"].values()]


def test_eight_ranks_stop_at_one_step_and_the_vm_is_approved(tmp_path: Path) -> None:
    """One acknowledgement, durable before the approval; the job goes on after it. Source: J-1."""
    address = str(tmp_path / "jobs.sock")
    with (
        Service() as service,
        agent_of(tmp_path, service) as agent,
        training(tmp_path, address) as ranks,
    ):
        registered(tmp_path, agent)
        service.show(event(not_before_ms=FAR_MS))
        service.until(lambda: service.approvals, "the approval")
        [(step, count)] = ranks.shards().items()
        assert (count, durable(tmp_path)) == (WORLD, [str(step)])
        assert service.approvals == ["E1"]
        service.show()
        agent.until_acts("prepare", "recover")
        wait_until(lambda: not durable(tmp_path), what="the end of the notice")
        (tmp_path / "finish").touch()
        assert [process.wait(LIMIT_S) for process in ranks.processes] == [0] * WORLD


def test_job_without_consent_holds_the_event(tmp_path: Path) -> None:
    """A dead rank: nobody approves, and the reason names the rank. Source: J-1."""
    with Service() as service, agent_of(tmp_path, service, timeout_s=5) as agent:
        address = str(tmp_path / "jobs.sock")
        wait_until(Path(address).exists, what="the socket")
        with Job("train", rank=1, world=2, address=address) as job:
            service.show(event(not_before_ms=FAR_MS))
            agent.until_said("held")
            assert "job train: rank 0 is not connected" in agent.log()
            assert (job.poll(), service.approvals) == (None, [])


@pytest.mark.parametrize("seed", range(4))
def test_deaths_in_the_middle_lose_no_consent(seed: int, tmp_path: Path) -> None:
    """Whoever is killed, the VM is approved only with a checkpoint of all ranks. Source: J-1."""
    dice = random.Random(seed)
    address = str(tmp_path / "jobs.sock")
    with (
        Service() as service,
        agent_of(tmp_path, service) as agent,
        training(tmp_path, address) as ranks,
    ):
        registered(tmp_path, agent)
        service.show(event(not_before_ms=FAR_MS))
        for _ in range(3):
            if dice.random() < 0.5:
                dice.choice(ranks.processes).kill()
                ranks.kill()
                ranks.start()
            else:
                agent.kill()
                agent.start()
            wait_until(lambda: agent.acts() or True, what="a moment")
        service.until(lambda: service.approvals, "the approval")
        [checkpoint] = durable(tmp_path)
        assert ranks.shards()[int(checkpoint)] == WORLD


def killed(directory: Path, dice: random.Random) -> None:
    """Kill one rank; its launcher then kills the others and starts all again."""
    ranks = (directory / "ranks").read_text()
    os.kill(int(dice.choice(ranks.split())), signal.SIGKILL)
    wait_until(lambda: (directory / "ranks").read_text() != ranks, what="new ranks")


def test_killed_ranks_stop_at_one_step_and_consent_once(tmp_path: Path) -> None:
    """Each event has one acknowledgement, of ranks that all stood at its step. Source: J-1."""
    dice, address = random.Random(RUNS), str(tmp_path / "jobs.sock")
    command = [sys.executable, "-m", "tests.agent.job_rank", str(tmp_path), address, "all"]
    env = {"PYTHONPATH": str(ROOT)}

    def shards() -> list[Path]:
        return list(tmp_path.glob("shard-*"))

    def stopped(count: int) -> bool:
        return len(shards()) >= count

    def approved(count: int) -> bool:
        return len(service.approvals) >= count

    with (
        Service() as service,
        agent_of(tmp_path, service) as agent,
        running(*command, str(WORLD), log=tmp_path / "ranks.log", env=env),
    ):
        wait_until((tmp_path / "ranks").exists, what="the ranks")
        for run in range(RUNS):
            registered(tmp_path, agent)
            name = f"E{run}"
            service.show(event(name, not_before_ms=FAR_MS))
            for _ in range(dice.choice([1, 1, 2])):
                wait_until(functools.partial(stopped, dice.randint(0, WORLD)), what="stops")
                killed(tmp_path, dice)
            service.until(functools.partial(approved, run + 1), "the approval")
            [checkpoint] = durable(tmp_path)
            saved = [path.read_text() for path in tmp_path.glob(f"shard-{checkpoint}-*")]
            assert (len(saved), len(set(saved))) == (WORLD, 1), (run, checkpoint, saved)
            stops = {(path.read_text(), path.name.split("-")[1]) for path in shards()}
            generations = [generation for generation, _ in stops if generation]
            assert len(generations) == len(set(generations)), (run, stops)
            service.show()
            wait_until(lambda: not durable(tmp_path), what="the end of the notice")
            for path in shards():
                path.unlink()
        assert service.approvals == [f"E{run}" for run in range(RUNS)]


def test_job_over_several_vms_needs_a_rendezvous(tmp_path: Path) -> None:
    """Its registration fails with that reason. Source: J-1."""
    with Service() as service, agent_of(tmp_path, service):
        address = str(tmp_path / "jobs.sock")
        wait_until(Path(address).exists, what="the socket")
        with pytest.raises(JobRefused, match="needs a rendezvous"):
            Job("train", world=8, vms=2, address=address)


def test_two_vms_of_two_groups_agree_by_a_rendezvous(tmp_path: Path) -> None:
    """The VM that has the event waits for the job at the other VM's agent. Source: J-1."""
    token = tmp_path / "token"
    token.write_text("between us")
    token.chmod(0o600)
    listen = f"127.0.0.1:{free_port()}"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with Service() as here, Service() as there:
        first = agent_of(tmp_path / "one", here, listen=listen, token=str(token))
        second = agent_of(tmp_path / "two", there, listen=listen, token=str(token))
        text = second.config.read_text()
        second.config.write_text(re.sub(r"\[jobs\]\n.*\n.*\n", "", text))
        with first, second:
            first.until_said("agent-started")
            join = functools.partial(
                Job, "train", world=2, vms=2, address=listen, token_file=str(token)
            )
            with join(rank=0) as zero, join(rank=1) as one:
                there.show(event(not_before_ms=FAR_MS))
                notices = until_notice(zero, one)
                assert notices[0].step == notices[1].step
                assert not there.approvals
                zero.acknowledge("s3://bucket/17")
                there.until(lambda: there.approvals, "the approval")
                assert not here.approvals


def until_notice(*jobs: Job) -> list[JobNotice]:
    """Step all ranks, each in a thread of its own, until they stop."""
    notices: list[JobNotice] = []

    def step(job: Job) -> None:
        def stops() -> bool:
            notice = job.poll()
            notices.extend([notice] if notice else [])
            return notice is not None

        wait_until(stops, what="a notice")

    threads = [threading.Thread(target=step, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    return notices


def test_wrong_token_registers_nothing(tmp_path: Path) -> None:
    """A connection without the proof is ended. Source: J-1."""
    token = tmp_path / "token"
    token.write_text("between us")
    token.chmod(0o600)
    listen = f"127.0.0.1:{free_port()}"
    with Service() as service, agent_of(tmp_path, service, listen=listen, token=str(token)) as one:
        one.until_said("named")
        with connect(listen, timeout_s=LIMIT_S) as connection:
            [nonce] = LineReader().feed(connection.recv(4096))
            assert nonce["say"] == "nonce"
            connection.sendall(line_of({"do": "prove", "proof": "none"}))
            assert connection.recv(4096) == b""
        assert not (tmp_path / "state" / "jobs.json").exists()


def test_program_of_the_how_to_stops_and_goes_on(tmp_path: Path) -> None:
    """The example is run as it stands, with two ranks. Source: J-1."""
    guide = (ROOT / "docs/howto/jobs.md").read_text("utf-8")
    (tmp_path / "train.py").write_text(guide.split("```python\n")[1].split("```")[0])
    address = str(tmp_path / "jobs.sock")
    known = {**os.environ, "WORLD_SIZE": "2", "FOREWARN_JOB_ADDRESS": address}
    known["CHECKPOINT"] = str(tmp_path / "checkpoint")
    with Service() as service, agent_of(tmp_path, service) as agent, contextlib.ExitStack() as ends:
        agent.until_said("agent-started")
        ranks = []
        for rank in ("0", "1"):
            command = [sys.executable, str(tmp_path / "train.py"), "100000000"]
            env = {**known, "RANK": rank}
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
            ends.callback(process.communicate)
            ends.callback(process.kill)
            ranks.append(process)
        registered(tmp_path, agent, 2)
        service.show(event(not_before_ms=FAR_MS))
        service.until(lambda: service.approvals, "the approval")
        step = int((tmp_path / "checkpoint").read_text())
        assert durable(tmp_path) == [f"step-{step}"]
        service.show()
        for number, process in enumerate(ranks):
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == f"rank {number} stopped at step {step}, and goes on: over\n"


SAVING = """
trap 'echo saved >{0}/kept.new; mv {0}/kept.new {0}/kept; {1}' {2}
echo up >{0}/up
while :; do sleep 0.05; done
"""


def wrapping(directory: Path, *options: str, then: str = ":") -> list[str]:
    """Return the command that runs a program which saves a file at a signal, then does more."""
    number = options[options.index("--signal") + 1]
    command = [sys.executable, "-m", "forewarn.agent", "run", "--job", "train", *options]
    command += ["--address", str(directory / "jobs.sock")]
    return [*command, "--", "sh", "-c", SAVING.format(directory, then, number)]


@pytest.mark.parametrize(("number", "then"), [("TERM", "exit 0"), ("USR1", ":")])
def test_wrapped_program_consents_by_its_end_or_its_checkpoint(
    number: str, then: str, tmp_path: Path
) -> None:
    """SIGTERM and the end of the program, or SIGUSR1 and a fresh file. Source: J-1."""
    kept = tmp_path / "kept"
    options = ("--before", "86000", "--signal", number, "--checkpoint", str(kept))
    with Service() as service, agent_of(tmp_path, service) as agent:
        agent.until_said("agent-started")
        command = wrapping(tmp_path, *options, then=then)
        with running(*command, log=tmp_path / "out") as wrapper:
            wait_until((tmp_path / "up").exists, what="the program")
            registered(tmp_path, agent, 1)
            service.show(event(not_before_ms=FAR_MS))
            service.until(lambda: service.approvals, "the approval")
            assert kept.read_text() == "saved\n"
            if then == "exit 0":
                assert wrapper.wait(LIMIT_S) == 0
            else:
                assert (wrapper.poll(), durable(tmp_path)) == (None, [str(kept)])


def test_wrapped_program_receives_its_signal_before_the_deadline(tmp_path: Path) -> None:
    """Without a checkpoint file and without its end, it has not consented. Source: J-1."""
    options, shown = ("--before", "6", "--signal", "USR1"), tmp_path / "shown"
    with (
        Service() as service,
        agent_of(tmp_path, service, timeout_s=12) as agent,
        running(*wrapping(tmp_path, *options), log=tmp_path / "out") as wrapper,
    ):
        wait_until((tmp_path / "up").exists, what="the program")
        registered(tmp_path, agent, 1)
        shown.touch()
        service.show(event(not_before_ms=FAR_MS))
        agent.until_said("held")
        kept_s = (tmp_path / "kept").stat().st_mtime - shown.stat().st_mtime
        assert (kept_s > 2, service.approvals, wrapper.poll()) == (True, [], None)
