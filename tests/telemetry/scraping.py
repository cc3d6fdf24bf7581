"""What tests need to read a scrape; no test may go in here."""

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from forewarn_base.settings import Settings
from tests.api.live import SETTINGS
from tests.asking import ask

#: Name and labels of each sample -> its value.
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(address: str, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    """Return status and text of one request to a metrics address."""
    reply = ask(address, method, path)
    return reply.status, reply.body.decode()


def samples(text: str) -> Samples:
    """Return every sample of an exposition."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    """Return the sample of a name with exactly these labels."""
    return found[name, frozenset(labels.items())]


def with_metrics(settings: Settings = SETTINGS) -> Settings:
    """Return settings of a service that answers scrapes on a free port."""
    return replace(settings, listen=replace(settings.listen, metrics="127.0.0.1:0"))
