"""The recipe of the how-to: VMs without nodes find the active control plane at one address."""

import re
import shutil
from pathlib import Path

import pytest

from tests.chaos.__main__ import inside, missing

ROOT = Path(__file__).resolve().parents[2]
HOWTO = ROOT / "docs" / "howto" / "several-control-planes.md"


@pytest.mark.nightly
@pytest.mark.postgres
@pytest.mark.netns
def test_address_follows_the_leader_with_keepalived() -> None:
    """After a step-down and after a kill VMs are answered at the same address. H-2, H-4."""
    lacks = missing(("single",)) or ("" if KEEPALIVED else "keepalived is not installed")
    if lacks:
        pytest.skip(lacks)
    assert inside("tests.chaos.virtual_address").returncode == 0


KEEPALIVED = shutil.which("keepalived", path="/usr/sbin:/sbin:/usr/bin")


def recipe() -> str:
    """Return the configuration of keepalived in the how-to."""
    [text] = re.findall(r"```\n(vrrp_script .*?)```", HOWTO.read_text("utf-8"), re.DOTALL)
    return str(text)
