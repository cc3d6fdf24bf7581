"""One laboratory for a module's tests; skipped with a sentence where there can be none."""

from collections.abc import Iterator

import pytest

from libvirt_tests import laboratory
from libvirt_tests.laboratory import Laboratory


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """Start two libvirt hosts; end them, and all that runs on them, with the module."""
    said = laboratory.missing()
    if said:
        pytest.skip(said)
    with laboratory.laboratory_in(tmp_path_factory.mktemp("laboratory") / "lab") as made:
        yield made
