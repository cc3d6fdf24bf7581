"""The tutorial of a node pool, as a test: from the announcement to the recorded outcome."""

from pathlib import Path

import pytest

from kubernetes_tests import film
from tests.agent.programs import program

pytestmark = pytest.mark.slow


def test_node_pool_drains_itself(tmp_path: Path) -> None:
    """The conditions come and go, and the budget holds at every moment. Source: K-1, K-3, C-3."""
    for name in ("kube-apiserver", "kube-controller-manager", "kubectl"):
        program(name)
    said: list[str] = []
    fewest = film.in_cluster(tmp_path, said.append)
    text = "\n".join(said)
    assert fewest >= 3
    scheduled, drained, after = (text.index(each) for each in ("Drain", "Drained", "event report"))
    assert scheduled < drained < after
    assert "MaintenanceInProgress" not in text[text.index("lease/forewarn-agent") :]
    assert "completed" in text[after:]
