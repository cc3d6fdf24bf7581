"""The data that decides about a time zone: the machine's first, then the package's."""

import importlib.util
import re
from pathlib import Path
from zoneinfo import reset_tzpath

from forewarn_base.time_zones import zone_of
from forewarn_server.control.zone_sources import source_of, sources_text


def test_zone_that_the_machine_lacks_comes_from_the_package(tmp_path: Path) -> None:
    """Each answer names the data that decided. Source: F-7."""
    (tmp_path / "Europe").mkdir()
    package = importlib.util.find_spec("tzdata")
    assert package, "the service brings it"
    assert package.submodule_search_locations
    berlin = Path(package.submodule_search_locations[0]) / "zoneinfo/Europe/Berlin"
    (tmp_path / "Europe/Berlin").symlink_to(berlin)
    (tmp_path / "tzdata.zi").write_text("# version 2019z\n# redo posix_only\n")
    reset_tzpath((str(tmp_path),))
    try:
        zone_of.cache_clear()
        source_of.cache_clear()
        assert source_of("Europe/Berlin") == "system 2019z"
        assert re.fullmatch(r"tzdata \d{4}\.\d+", source_of("US/Eastern"))
        assert source_of("Europe/Nowhere") == ""
        both = sources_text(["Europe/Berlin", "UTC", "US/Eastern"])
        assert re.fullmatch(r"system 2019z \(Europe/Berlin\), tzdata [0-9.]+ \(US/Eastern\)", both)
        assert sources_text(["Europe/Berlin", "UTC"]) == "system 2019z"
        assert sources_text(["UTC"]) == ""
    finally:
        reset_tzpath()
        source_of.cache_clear()
