"""The agent as one file: what is in it is enough, and it says what it needs."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.service import Service
from tests.agent.test_node_conditions import FAR, agent_of, until_true
from tests.kubernetes.small_cluster import Cluster, served

BUILD = Path(__file__).resolve().parents[2] / "dist" / "agent" / "build.py"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the file once."""
    path = tmp_path_factory.mktemp("bundle") / "forewarn-agent.pyz"
    subprocess.run([sys.executable, str(BUILD), str(path)], check=True, capture_output=True)
    return path


def run(bundle: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the file without anything that is installed, as its first line does."""
    command = [sys.executable, "-S", "-I", str(bundle), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=bundle.parent)


def test_bundle_writes_and_checks_a_configuration(bundle: Path) -> None:
    """A fresh installation approves nothing before it has a step; its file is its user's own."""
    config = bundle.parent / "agent.toml"
    assert run(bundle, "init", "--config", str(config)).returncode == 0
    assert config.stat().st_mode & 0o777 == 0o600
    checked = run(bundle, "check", "--config", str(config))
    assert checked.returncode == 0, checked.stderr
    assert "approves" not in checked.stdout


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root's agent is refused"
)
def test_bundle_that_others_can_write_is_refused_to_root(bundle: Path, tmp_path: Path) -> None:
    """Root would run what anybody may have put there."""
    copy = tmp_path / bundle.name
    shutil.copyfile(bundle, copy)
    assert run(copy, "init", "--config", str(tmp_path / "agent.toml")).returncode == 0
    copy.chmod(0o666)
    checked = run(copy, "check", "--config", str(tmp_path / "agent.toml"))
    assert (checked.returncode, str(copy) in checked.stderr) == (2, True)


def test_bundle_says_its_version(bundle: Path) -> None:
    """What runs on a VM can be told without its package."""
    done = run(bundle, "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "forewarn-agent")
    assert "unknown" not in done.stdout


def test_bundle_runs_its_own_preparations(bundle: Path, service: Service, tmp_path: Path) -> None:
    """Steps with `use`, notifications and marks of the node start the file again. Source: K-1."""
    cluster = Cluster()
    cluster.pod("web")
    with served(cluster) as url, agent_of(tmp_path, service, url) as agent:
        agent.kill()
        words = ("run", "--config", str(agent.config))
        agent.command = [sys.executable, "-S", "-I", str(bundle), *words]
        agent.start()
        service.show(FAR)
        service.until(lambda: service.approvals, "approval")
        until_true(cluster, "MaintenancePlanned", "Drained")


def test_bundle_refuses_an_old_python_with_a_sentence() -> None:
    """An older interpreter must not end in a traceback."""
    main = runpy.run_path(str(BUILD), run_name="build")["MAIN"]
    program = f"import sys\nsys.version_info = (3, 10)\nexec({main!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.strip() == "The forewarn agent needs Python 3.11 or newer; this is 3.10."


def test_build_help_writes_nothing(tmp_path: Path) -> None:
    """Asking how to build builds nothing."""
    done = subprocess.run(
        [sys.executable, str(BUILD), "--help"], check=True, capture_output=True, cwd=tmp_path
    )
    assert b"usage" in done.stdout
    assert not list(tmp_path.iterdir())
