"""The film, as a test: maintenance of a private cloud from its announcement to its end."""

from pathlib import Path

import pytest

from libvirt_tests import film

pytestmark = [pytest.mark.nightly, pytest.mark.netns]


def test_private_cloud_is_maintained(tmp_path: Path) -> None:
    """Guests are asked, moved, rebooted and brought up again; none sees what is not its own.

    Source: R-5, L-4, L-7, S-4, C-9, X-1.
    """
    said = film.missing()
    if said:
        pytest.skip(said)
    film.in_laboratory(tmp_path, lambda lab: film.Film(lab, print).play())
