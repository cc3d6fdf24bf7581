"""Kubernetes itself: etcd, kube-apiserver and kube-controller-manager, without kubelets.

Each program can be killed and started again, as a crash and a restart would do.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forewarn.agent.preparations.http_call import call
from tests.agent.programs import answers, free_port, program, until
from tests.waiting import LIMIT_S

ADMIN_TOKEN = "let-me-in"
#: Longest start of an API server on a busy machine.
START_S = 300.0
#: Controllers that tests use; kubelets and the scheduler are played where they are needed.
CONTROLLERS = "deployment,replicaset,disruption,clusterrole-aggregation"


class Program:
    """A program that runs until it is stopped or killed, and can be started again."""

    def __init__(self, command: tuple[str, ...], log: Path) -> None:
        """Start it; its output is appended to a file."""
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it again."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it with a signal, and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(LIMIT_S)


class ControlPlane:
    """The programs of one cluster."""

    def __init__(self, directory: Path, *options: str) -> None:
        """Start etcd and the API server, with further options for it."""
        self._directory = directory
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.ca_file = str(directory / "certs" / "apiserver.crt")
        apiserver, etcd = program("kube-apiserver"), program("etcd")
        (directory / "tokens.csv").write_text(f"{ADMIN_TOKEN},admin,admin,system:masters\n")
        key = str(directory / "account.key")
        command = ("openssl", "genrsa", "-out", key, "2048")
        subprocess.run(command, check=True, capture_output=True)
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.etcd_url = client
        store: tuple[str, ...] = (
            etcd,
            f"--data-dir={directory}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        serve = (
            apiserver,
            f"--etcd-servers={client}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={directory}/certs",
            f"--token-auth-file={directory}/tokens.csv",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://localhost",
            "--service-cluster-ip-range=10.9.0.0/24",
            "--endpoint-reconciler-type=none",  # 1.37 publishes no loopback address
            *options,
        )
        # Some releases of Debian have an etcd that does not know the option.
        known = subprocess.run((etcd, "--help"), check=False, capture_output=True, text=True)
        if "unsafe-no-fsync" not in known.stdout + known.stderr:
            store = store[:-1]
        self.etcd = Program(store, directory / "etcd.log")
        self.api = Program(serve, directory / "apiserver.log")
        self.controllers: Program | None = None

    def kubeconfig(self, token: str = ADMIN_TOKEN, name: str = "kubeconfig") -> Path:
        """Write a file for kubectl and the controllers, and return its path."""
        server = {"server": self.url, "certificate-authority": self.ca_file}
        form = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = self._directory / name
        path.write_text(json.dumps(form))
        return path

    def compact(self) -> None:
        """Have etcd forget all versions but the newest, as the API server does at intervals."""
        newest = call("POST", f"{self.etcd_url}/v3/kv/range", form={"key": "AA=="}).form()
        header: Any = newest["header"]
        form = {"revision": header["revision"], "physical": True}
        done = call("POST", f"{self.etcd_url}/v3/kv/compaction", form=form)
        assert done.status == 200, done.body

    def start_controllers(self, controllers: str = CONTROLLERS) -> None:
        """Start the controller manager with some of its controllers."""
        command = (
            program("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig()}",
            f"--controllers={controllers}",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self.controllers = Program(command, self._directory / "controllers.log")

    def close(self) -> None:
        """End all programs."""
        for each in (self.controllers, self.api, self.etcd):
            if each is not None:
                each.end()


@contextlib.contextmanager
def control_plane(directory: Path, *options: str) -> Iterator[ControlPlane]:
    """Run a control plane, once it listens."""
    parts = ControlPlane(directory, *options)
    try:
        until(lambda: answers(parts.port), "the API server listens", seconds=START_S)
        yield parts
    finally:
        parts.close()
