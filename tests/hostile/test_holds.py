"""Reading a large body lets other threads run, which answer polls."""

import json

import pytest

from forewarn_base.validation.json_reader import read_json
from tests.hostile.growth import longest_step_s

pytestmark = pytest.mark.slow

BODIES = {
    "long names": json.dumps({"hosts": [f"{n:0>128}" for n in range(50_000)]}),
    "empty lists": "[" + "[]," * 100_000 + "0]",
}


@pytest.mark.parametrize("title", BODIES)
def test_large_body_is_read_in_short_steps(title: str) -> None:
    """No step takes half of the time for which Python's own parser stops all threads."""
    body = BODIES[title].encode()
    whole_s = longest_step_s(lambda: json.loads(body))
    assert longest_step_s(lambda: read_json(body)) < whole_s / 2
