"""The command line of a version after this one: its schema has one more step, which only expands.

It is run as a module, beside processes of this version.
"""

from forewarn_base import version as version_module
from forewarn_store import migrations

VERSION = "99.0.0"

_known = migrations.every_step()
STEP = migrations.SchemaMigration(
    len(_known) + 1,
    f"{len(_known) + 1:04}_expand_next",
    "ALTER TABLE operation ADD COLUMN next_version TEXT NOT NULL DEFAULT '';\n"
    "ALTER TABLE history ADD COLUMN next_version TEXT NOT NULL DEFAULT '';\n",
)


def _steps() -> tuple[migrations.SchemaMigration, ...]:
    return (*_known, STEP)


def _version() -> str:
    return VERSION


if __name__ == "__main__":
    migrations.every_step = _steps  # type: ignore[assignment]
    version_module.version = _version  # type: ignore[assignment]
    from forewarn_server.cli.main import main

    raise SystemExit(main())
