"""Measures the cost of metrics: polls a service with metrics and a service without, in turn.

Both are whole services on one core, the load is on the other. The one with metrics is scraped
once a second, fifteen times as often as Prometheus does by default. The figures of a round are
compared with each other, and the median of the rounds' ratios is what counts.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from bench.metadata.__main__ import wrk
from bench.metadata.rivals import LOAD_CORE, Rival, install, on_core
from bench.sizes import Parser
from tests.agent.programs import free_port
from tests.waiting import wait_until

CONNECTIONS = 64
STARTS_S_MAX = 60
SETTINGS = """
[listen]
metadata = ["127.0.0.1:{metadata}"]
operator = "127.0.0.1:{operator}"
metrics = "{metrics}"
[metadata]
rate_per_s = 1000000
rate_burst = 1000000
[operator]
open_on_loopback = true
[store]
url = "sqlite:///{place}/{name}.db"
"""
FLEET = {
    "hosts": {f"h{n}": {} for n in range(100)},
    "groups": {f"g{n}": {} for n in range(100)},
    "vms": {
        f"vm-{n}": {
            "host": f"h{n % 100}",
            "group": f"g{n % 100}",
            "addresses": [] if n else ["127.0.0.1"],  # the load comes from this address
        }
        for n in range(1000)
    },
}


class Scraper:
    """Scrapes an address once a second, and records the duration of each answer."""

    def __init__(self, address: str) -> None:
        """Store the address; an empty address disables scrapes."""
        self.took_ms: list[float] = []
        self._address = address
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        """Start the scrapes."""
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Stop the scrapes."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while self._address and not self._ended.is_set():
            began = time.perf_counter()
            urllib.request.urlopen(f"http://{self._address}/metrics", timeout=30).read()
            self.took_ms.append((time.perf_counter() - began) * 1000)
            self._ended.wait(1)


def service(place: Path, name: str, metrics: str) -> Rival:
    """Start a service with a fleet."""
    port, operator = free_port(), free_port()
    told = {"metadata": port, "operator": operator, "metrics": metrics}
    file = place / f"{name}.toml"
    file.write_text(SETTINGS.format(**told, place=place, name=name))
    made = Rival(
        name,
        port,
        [sys.executable, "-m", "forewarn_server.cli.main", "serve", "--config", str(file)],
    )
    threading.Thread(target=_lay_out, args=(operator,), daemon=True).start()
    made.start()
    return made


def _lay_out(operator: int) -> None:
    url, body = f"http://127.0.0.1:{operator}/v1/topology", json.dumps(FLEET).encode()
    header = {"Content-Type": "application/json"}

    def applied() -> bool:
        request = urllib.request.Request(url, body, header, method="PUT")
        try:
            return bool(urllib.request.urlopen(request, timeout=30).status == 200)
        except OSError:
            return False

    wait_until(applied, what="the service", limit_s=STARTS_S_MAX)


def main() -> None:
    """Measure, and print one table."""
    parser = Parser("bench.telemetry", __doc__)
    parser.add_size("--rounds", 7, 1, 1, "number of rounds")
    parser.add_size("--seconds", 4, 2, 1, "duration of a service's polls in a round, in seconds")
    options = parser.sized()
    install("wrk")
    on_core(LOAD_CORE)()
    metrics = f"127.0.0.1:{free_port()}"
    found: dict[str, list[dict[str, float]]] = {"with": [], "without": []}
    took_ms: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        rivals = [service(Path(folder), "without", ""), service(Path(folder), "with", metrics)]
        try:
            for number in range(options.rounds):
                for rival in rivals if number % 2 else rivals[::-1]:
                    scraper = Scraper(metrics if rival.name == "with" else "")
                    with scraper:
                        figures = wrk(rival, CONNECTIONS, seconds=options.seconds, close=False)
                    found[rival.name].append(figures)
                    took_ms += scraper.took_ms
        finally:
            for rival in rivals:
                rival.stop()
    for figure, name in (("per_s", "requests a second"), ("cpu_us", "processor µs a request")):
        on, off = ([each[figure] for each in found[side]] for side in ("with", "without"))
        ratios = [one / other for one, other in zip(on, off, strict=True)]
        print(
            f"{name:24}with metrics {statistics.median(on):10,.1f}"
            f"  without {statistics.median(off):10,.1f}"
            f"  ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )
    print(f"a scrape under that load  {statistics.median(took_ms):.0f} ms")


if __name__ == "__main__":
    main()
