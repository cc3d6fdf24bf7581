"""A small cluster and a driver for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_kubernetes.driver import KubernetesDriver, create
from tests.kubernetes.small_cluster import REBOOT, Cluster, served


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes, and two VMs on the first."""
    made = Cluster()
    made.machine("a")
    made.machine("b")
    return made


@pytest.fixture
def options(cluster: Cluster, tmp_path: Path) -> Iterator[dict[str, object]]:
    """Serve the cluster; give the options of a driver for it."""
    (tmp_path / "token").write_text("right\n")
    with served(cluster) as url:
        yield {
            "server": url,
            "token_file": str(tmp_path / "token"),
            "ca_file": "",
            "reboot_annotation": REBOOT,
        }


@pytest.fixture
def driver(options: dict[str, object]) -> KubernetesDriver:
    """Make a driver."""
    return create("kubernetes", options)
