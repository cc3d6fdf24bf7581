"""One cloud for all tests of the room; skipped with a sentence where Nova is not installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from openstack_tests import cloud as clouds
from openstack_tests.cloud import Cloud
from openstack_tests.small_cloud import SmallCloud, serving


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Start Nova, with three hosts."""
    said = clouds.missing()
    if said:
        pytest.skip(said)
    with clouds.cloud_in(tmp_path_factory.mktemp("cloud")) as made:
        yield made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallCloud]:
    """Start a server that speaks as Nova does."""
    pytest.importorskip("openstack", reason="openstacksdk is an extra")
    with serving(tmp_path) as made:
        yield made
