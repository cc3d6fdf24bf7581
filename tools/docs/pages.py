"""The generated pages, and the function that generates each page.

Other modules contain the pages' texts.
"""

from __future__ import annotations

from collections.abc import Callable

from tools.docs.api import api_page
from tools.docs.architecture import architecture_page
from tools.docs.azure import azure_page
from tools.docs.commands import cli_page
from tools.docs.instance import instance_page
from tools.docs.lifecycle import lifecycle_svg
from tools.docs.outbox import outbox_page
from tools.docs.phases import phases_svg
from tools.docs.policy import policy_page
from tools.docs.reference import (
    blockers_page,
    causes_page,
    errors_page,
    settings_file,
    settings_page,
)
from tools.docs.scenarios import scenarios_page

PAGES: dict[str, Callable[[], str]] = {
    "ARCHITECTURE.md": architecture_page,
    "dist/forewarn.toml": settings_file,
    "docs/lifecycle.svg": lifecycle_svg,
    "docs/phases.svg": phases_svg,
    "docs/reference/api.md": api_page,
    "docs/reference/azure.md": azure_page,
    "docs/reference/blockers.md": blockers_page,
    "docs/reference/causes.md": causes_page,
    "docs/reference/cli.md": cli_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/instance-metadata.md": instance_page,
    "docs/reference/outbox.md": outbox_page,
    "docs/reference/policy.md": policy_page,
    "docs/reference/scenarios.md": scenarios_page,
    "docs/reference/settings.md": settings_page,
}
