"""The same service and the same command as in the tests of the command line."""

from tests.cli.conftest import live, run

__all__ = ["live", "run"]
