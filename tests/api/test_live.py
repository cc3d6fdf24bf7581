"""The helper that runs a whole service for a test."""

from dataclasses import replace

import pytest

from forewarn_base.settings import DriverSettings
from forewarn_server.control.driver_calls import DriverUnknown
from tests.api.live import SETTINGS, Live


def test_service_that_cannot_be_built_shows_its_error() -> None:
    """At once, instead of a wait for a service that never starts."""
    with pytest.raises(DriverUnknown):
        Live(replace(SETTINGS, drivers=DriverSettings(default="nothing")))
