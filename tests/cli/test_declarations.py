"""`forewarn declaration`, run against a service."""

from tests.api.live import Live
from tests.cli.conftest import Run


def test_list_says_how_long_the_window_is_still_open(run: Run, live: Live) -> None:
    """The time left counts from now, in the list as in `show`. Source: T-1."""
    form = {"cause": "host-reboot", "hosts": ["h1"], "duration": 600}
    live.call("POST", "/v1/maintenances", form)
    live.post("/v1/maintenances/m-1/declare", hand_back="P21D")
    for words in (("list",), ("show", "m-1")):
        shown = run("declaration", *words)
        assert shown.status == 0, shown.err
        assert "(in 21d)" in shown.out or "(in 20d 23h)" in shown.out
