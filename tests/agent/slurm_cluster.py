"""A Slurm cluster of Debian's real controller and nodes, with its own directory and free ports."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from forewarn_base.clock import SystemClock
from tests.agent.programs import free_port, program, running
from tests.waiting import LIMIT_S, wait_until

CONFIG = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
SlurmdTimeout=3600
MinJobAge=3600
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
NodeName=node-1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 State=UNKNOWN
PartitionName=work Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
NODE = "node-1"


class Cluster:
    """A controller and one node."""

    def __init__(self, directory: Path) -> None:
        """Write the configuration."""
        self.directory = directory
        self.clock = SystemClock()
        self.config = directory / "slurm.conf"
        (directory / "state").mkdir()
        ports = [free_port(), free_port()]
        self.config.write_text(CONFIG.format(directory=directory, ports=ports))
        self.env = {**os.environ, "SLURM_CONF": str(self.config)}

    def run(self, *command: str) -> str:
        """Return the output of one of Slurm's commands, which must succeed."""
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, minutes: int, command: str = "true") -> str:
        """Submit a job with a time limit, and return its id."""
        words = ("-t", str(minutes), "-o", "/dev/null", "--wrap", command)
        return self.run("sbatch", "--parsable", "-n", "1", *words).strip()

    def jobs(self) -> list[dict[str, str]]:
        """Return the fields of all jobs that the controller remembers."""
        text = self.run("env", "SLURM_TIME_FORMAT=%s", "scontrol", "-o", "show", "job")
        lines = [line for line in text.splitlines() if line.startswith("JobId=")]
        return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in lines]

    def state(self) -> set[str]:
        """Return the words of the node's state."""
        text = self.run("scontrol", "-o", "show", "node", NODE)
        return set(re.findall(r"\bState=(\S+)", text)[0].split("+"))

    def reason(self) -> str:
        """Return the reason of the node's drain."""
        return self.run("sinfo", "-h", "-N", "-n", NODE, "-o", "%E").strip()

    def reservations(self) -> str:
        """Return all reservations."""
        text = self.run("scontrol", "-o", "show", "reservation")
        return "" if text.startswith("No reservations") else text

    def start(
        self, phase: str, state: Path, *, event: str, not_before_s: float, deadline_s: float
    ) -> subprocess.Popen[str]:
        """Start a phase of the preparation as the agent does; times are seconds from now."""
        state.mkdir(exist_ok=True)
        now_ms = self.clock.now_ms()
        not_before_ms = now_ms + int(not_before_s * 1000)
        form = {"event_id": event, "event_type": "Reboot", "not_before_ms": not_before_ms}
        env = {
            **self.env,
            "FOREWARN_SETTINGS": json.dumps({"node": NODE, "drain_before_s": 2}),
            "FOREWARN_STATE": str(state),
            "FOREWARN_DEADLINE": str(int(now_ms / 1000 + deadline_s)),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "forewarn.agent", "do", "slurm", phase],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(json.dumps({"phase": phase, "name": "vm_0", "event": form}))
        process.stdin.close()
        process.stdin = None
        return process


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Run a cluster until its node is idle."""
    for name in ("slurmctld-wlm", "slurmd-wlm", "scontrol", "sinfo", "squeue", "sbatch"):
        program(name)
    one = Cluster(directory)
    controller = (program("slurmctld-wlm"), "-D", "-f", str(one.config))
    node = (program("slurmd-wlm"), "-D", "-N", NODE, "-f", str(one.config))
    with (
        running(*controller, log=directory / "controller.out", env=one.env),
        running(*node, log=directory / "node.out", env=one.env),
    ):
        wait_until(lambda: _is_up(one), what="an idle node", every_s=0.2)
        yield one


def _is_up(one: Cluster) -> bool:
    done = subprocess.run(
        ["sinfo", "-h", "-N", "-o", "%T"],
        env=one.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() == "idle"
