"""`forewarn version`: the version of this program, and of its installed packages."""

from __future__ import annotations

from forewarn_base.exit_codes import OK
from forewarn_base.version import installed_packages
from forewarn_base.version import version as version_of_program
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import print_structured
from forewarn_server.cli.parameters import PRINTED, OutputOptions
from forewarn_server.cli.program_name import NAME

version = noun_app("version")


@version.default
def _show(*, printed: OutputOptions = PRINTED) -> int:
    """Show the version of this program; `status` shows the version of the service.

    With `-o`, also the installed packages of Forewarn.
    """
    answer: dict[str, object] = {"name": NAME, "version": version_of_program()}
    if printed.structured:
        packages = [{"name": name, "version": at} for name, at in installed_packages().items()]
        return print_structured(printed, {**answer, "packages": packages})
    print(NAME, answer["version"])
    return OK
