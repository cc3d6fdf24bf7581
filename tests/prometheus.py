"""A real Prometheus of its own for tests, and what it answers. No test may go in here."""

import contextlib
import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.agent.programs import free_port, program
from tests.api.live import Json
from tests.waiting import LIMIT_S, wait_until


class Prometheus:
    """One that runs."""

    def __init__(self, address: str) -> None:
        """Ask it at its URL."""
        self.address = address

    def ask(self, path: str, **query: str) -> Json:
        """Return the data of an answer of its API, which must be a success."""
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def results(self, query: str) -> list[Json]:
        """Return the series that a query gives now."""
        found: list[Json] = self.ask("query", query=query)["result"]
        return found

    def firing(self) -> list[Mapping[str, str]]:
        """Return the labels of each alert that fires."""
        alerts = self.ask("alerts")["alerts"]
        return [each["labels"] for each in alerts if each["state"] == "firing"]


@contextlib.contextmanager
def running_prometheus(
    place: Path, jobs: Mapping[str, str] | None = None, rules: Path | None = None
) -> Iterator[Prometheus]:
    """Run one that scrapes itself and these jobs every second, and evaluates rules as often.

    Args:
        place: directory for its settings and data.
        jobs: address of each job's one target.
        rules: file of rules.
    """
    binary, own = program("prometheus"), f"127.0.0.1:{free_port()}"
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config = {
        "global": every,
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": [target]}]}
            for name, target in {"own": own, **(jobs or {})}.items()
        ],
    }
    settings = place / "prometheus.yml"
    settings.write_text(json.dumps(config))  # JSON is YAML, too
    words = [
        binary,
        f"--config.file={settings}",
        f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address={own}",
    ]
    with (place / "log").open("wb") as log, subprocess.Popen(words, stderr=log) as server:
        try:
            wait_until(lambda: _is_ready(own), what="Prometheus")
            yield Prometheus(f"http://{own}")
        finally:
            server.terminate()


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
