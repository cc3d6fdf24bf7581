"""Read instance metadata with cloud-init's own code, and print what it made of it.

Run with cloud-init on the path: `PYTHONPATH=… python cloud_init.py DIRECTORY`.
"""

import json
import logging
import sys
from importlib import import_module
from typing import Protocol


class AzureSource(Protocol):
    """What is used of cloud-init's data source."""

    def get_imds_data_with_api_fallback(self, *, retries: int) -> object:
        """Fetch everything, by an older version if the newer is unknown."""


class Heard(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__(logging.INFO)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep warnings, and what is said of the api-version."""
        text = record.getMessage()
        if record.levelno >= logging.WARNING or "api-version" in text:
            self.messages.append(text)


def main() -> None:
    """Do what the data source does with the service at 169.254.169.254."""
    from cloudinit import distros, helpers  # type: ignore[import-not-found]

    module = import_module("cloudinit.sources.DataSourceAzure")

    heard = Heard()  # only now: importing it puts logging back to nothing
    logging.getLogger().addHandler(heard)
    logging.getLogger().setLevel(logging.INFO)
    paths = helpers.Paths({"cloud_dir": sys.argv[1], "run_dir": sys.argv[1]})
    distro = distros.fetch("debian")("debian", {}, paths)
    source = module.DataSourceAzure({}, distro, paths)
    found = _fetched(source)
    source._metadata_imds = found
    source.metadata = {"imds": found}
    made = {
        "heard": heard.messages,
        "username": module._username_from_imds(found),
        "hostname": module._hostname_from_imds(found),
        "disable_password": module._disable_password_from_imds(found),
        "user_data": module._userdata_from_imds(found),
        "region": source.region,
        "zone": source.availability_zone,
        "keys": source.get_public_ssh_keys(),
        "network": source.network_config,
        "macs_known": source.validate_imds_network_metadata(found),
    }
    print(json.dumps(made))


def _fetched(source: AzureSource) -> object:
    """Fetch as this version of cloud-init does; since 23.1 it is in a module of its own."""
    try:
        from cloudinit.sources.azure import imds  # type: ignore[import-not-found]
    except ImportError:
        return source.get_imds_data_with_api_fallback(retries=0)
    found: object = imds.fetch_metadata_with_api_fallback(retry_deadline=0)
    return found


if __name__ == "__main__":
    main()
