"""A real Ray cluster on the loopback for tests: a head without processors, and four workers."""

import functools
import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.agent.programs import answers, free_port, program, running
from tests.waiting import wait_until
from tools.product import PYTHONPATH

ROOT = Path(__file__).parents[2]
WORKERS = ("w0", "w1", "w2", "w3")
#: Longest start of a node on a busy machine.
START_S = 900.0
#: Ray's own waits, most of which are too short on a busy machine.
PATIENT = {
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "900",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    "RAY_agent_register_timeout_ms": "900000",
    "RAY_gcs_server_port_wait_time_s": "900",
    "RAY_NUM_REDIS_GET_RETRIES": "900",
    "RAY_gcs_rpc_server_connect_timeout_s": "300",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_health_check_failure_threshold": "200",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_raylet_start_wait_time_s": "900",
    "RAY_worker_register_timeout_seconds": "900",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "900",
}
#: Files in which a node's agents tell their ports, and the options that choose these.
PORTS = {
    "dashboard_agent_listen_port": "--dashboard-agent-listen-port",
    "metrics_agent_port": "--dashboard-agent-grpc-port",
    "metrics_export_port": "--metrics-export-port",
    "runtime_env_agent_port": "--runtime-env-agent-port",
}
#: `ray`, without two waits that nothing can set: of the command for its node, and of the node for
#: its agents' ports, which are known before.
STARTER = """
import json, os, sys, time
from pathlib import Path
import ray._private.services as services
from ray._private.node import Node
from ray.scripts.scripts import main
start_raylet, get_node = Node.start_raylet, services.get_node
def with_ports(self, *words, **more):
    for name, port in json.loads(os.environ["AGENT_PORTS"]).items():
        Path(self._session_dir, f"{name}_{self._node_id}").write_text(str(port))
    return start_raylet(self, *words, **more)
def patient(*words):
    for _ in range(900):
        try:
            return get_node(*words)
        except RuntimeError:
            time.sleep(1)
Node.start_raylet, services.get_node = with_ports, patient
main()
"""
#: Answers each line, `[NODE, PATH]`, with Ray's own view of all nodes; first, if NODE is not empty,
#: keeps the node busy until PATH exists.
OBSERVER = """
import json, os, sys, time
import ray
from ray._private.state import state
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
from tools.product import PYTHONPATH
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
@ray.remote(num_cpus=1, max_retries=0)
def hold(path):
    while not os.path.exists(path):
        time.sleep(0.1)
held = []
for line in sys.stdin:
    node, path = json.loads(line)
    if node:
        held.append(hold.options(scheduling_strategy=On(node, soft=False)).remote(path))
    drains = state.get_draining_nodes()
    answer = [
        {"id": n["NodeID"], "name": n["NodeName"], "alive": n["Alive"],
         "end": n["DeathReasonMessage"], "deadline_ms": drains.get(n["NodeID"]),
         "free": state.available_resources_per_node().get(n["NodeID"], {}).get("CPU", 0)}
        for n in ray.nodes()
    ]
    print(json.dumps(answer), flush=True)
"""


class RayCluster:
    """Head and workers as processes; a worker can be started again after it has left."""

    def __init__(self, directory: Path, short: Path, stack: ExitStack) -> None:
        """Start all nodes; `short` is a directory with a short name, for Ray's sockets."""
        self.command = program("ray")
        self.address = f"127.0.0.1:{free_port()}"
        self.python = str(Path(self.command).resolve().parent / "python")
        self.env = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ADDRESS": self.address,
            "RAY_DEDUP_LOGS": "0",
            "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "1",
            "PYTHONPATH": PYTHONPATH,
            **PATIENT,
        }
        self._directory, self._stack, self._starts = directory, stack, 0
        port = int(self.address.rpartition(":")[2])
        head = (f"--port={port}", f"--dashboard-port={free_port()}", f"--temp-dir={short}")
        self._start("head", "--head", "--num-cpus=0", "--no-monitor", *head)
        wait_until(lambda: answers(port), what="the head", every_s=1, limit_s=START_S)
        self._observer = stack.enter_context(
            subprocess.Popen(
                (self.python, "-c", OBSERVER, self.address),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **self.env},
            )
        )
        stack.callback(self._observer.terminate)
        for name in WORKERS:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a worker, as its machine's service does, and wait until it has joined."""
        self._start(name, f"--address={self.address}", "--num-cpus=1")
        joined = functools.partial(self.alive, name)
        wait_until(joined, what=f"worker {name}", every_s=1, limit_s=START_S)

    def run(self, *words: str) -> None:
        """Run a command of Ray, which must succeed."""
        command = (self.command, *words, "--address", self.address)
        subprocess.run(command, check=True, env={**os.environ, **self.env}, timeout=START_S)

    def alive(self, name: str) -> dict[str, Any] | None:
        """Return the node of this name that is in the cluster."""
        return next((n for n in self.nodes() if n["name"] == name and n["alive"]), None)

    def nodes(self, *, hold: str = "", until: Path | None = None) -> list[dict[str, Any]]:
        """Return Ray's view of all nodes; with `hold`, first keep a node busy until a file exists.

        Each has `id`, `name`, `alive`, `end` (why it left), `deadline_ms` of its drain (None: not
        draining) and `free` processors.
        """
        assert self._observer.stdin is not None
        assert self._observer.stdout is not None
        print(json.dumps([hold, str(until or "")]), file=self._observer.stdin, flush=True)
        lines = iter(self._observer.stdout.readline, "")
        line = next(each for each in lines if each.startswith("[{"))  # Ray writes here as well
        answer: list[dict[str, Any]] = json.loads(line)
        return answer

    def _start(self, name: str, *more: str) -> None:
        words = ("start", "--block", "--disable-usage-stats", "--object-store-memory=80000000")
        self._starts += 1
        log = self._directory / f"{name}-{self._starts}.log"
        ports = {file: free_port() for file in PORTS}
        options = [f"{option}={ports[file]}" for file, option in PORTS.items()]
        command = (self.python, "-c", STARTER, *words, f"--node-name={name}", *options, *more)
        env = {**self.env, "AGENT_PORTS": json.dumps(ports)}
        self._stack.enter_context(running(*command, log=log, env=env))
