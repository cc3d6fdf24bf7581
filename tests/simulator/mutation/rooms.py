"""The tests that are run for each room, and how pytest is called for them."""

AGENT = (
    "core core_details core_together core_undoing coordination rules journal "
    "core_worlds doubt wild_documents"
)
#: Compares errors, settings and commands with what their pages say.
PAGES = "tests/test_docs.py::test_generated_page_is_up_to_date"
ROUTES = "work_routes maintenance_routes maintenance_gates fleet_routes fleet_watch dispatch"
MAINTENANCE = (
    "again announcing limits maintenance maintenance_sentences moving policy_change postponing "
    "unseen usage why"
)
PREVIEW = "packages/forewarn-cli/tests/cli_tests/test_plan_preview.py"
ACCESS = ("tests/api/test_confirmations.py", "tests/api/test_access.py", "tests/api/test_oidc.py")
CORE = (
    *(PAGES, "tests/core", "tests/transcripts", "tests/planning"),
    *("tests/store/test_backup.py", PREVIEW, *ACCESS),
)
#: What may notice a breakage of a room.
TESTS: dict[str, tuple[str, ...]] = {
    "core": CORE,
    "access": (PAGES, "tests/core", *ACCESS),
    "rules": (*CORE, "tests/control/test_planning.py", "tests/api/test_policy_files.py"),
    "agent/core": (
        *(f"tests/agent/test_{name}.py" for name in AGENT.split()),
        "tests/transcripts",
        "tests/samples/test_samples.py::test_journal_of_an_agent_of_an_earlier_version_is_read",
    ),
    "control": (
        *(PAGES, "tests/control", "tests/transcripts"),
        *("tests/store/test_lease.py", "tests/store/test_retention.py"),
        *("tests/api/test_standby.py", "tests/store/test_failover.py"),
        *(f"tests/api/test_{name}.py" for name in ROUTES.split()),
    ),
    "metadata": (
        PAGES,
        "tests/metadata",
        "tests/protocol",
        "packages/forewarn-emulator/tests/emulator_tests/test_faults.py",
    ),
    "store": (
        *(PAGES, "tests/store", "tests/api/test_audit.py", "tests/cli/test_upgrade.py"),
        *("tests/cli/test_doctor.py", "tests/drivers/test_command.py"),
        *("tests/settings/test_start_check.py", "tests/api/test_overview.py"),
    ),
    "planning": (
        *(PAGES, "tests/planning", "tests/transcripts", "tests/control/test_planning.py"),
        *(f"tests/core/test_{name}.py" for name in MAINTENANCE.split()),
        *("tests/api/test_policy_files.py", PREVIEW),
    ),
}
#: Rooms whose breakages the exploration of small worlds could notice.
EXPLORED = {"core", "access", "rules"}
#: Rooms whose breakages a random world could notice.
SIMULATED = {"core", "access", "agent/core", "control", "planning", "rules"}
#: Rooms that have code for PostgreSQL: its tests are run, too, on one server for all of them.
POSTGRES = {"store"}
OPTIONS = (
    *("-q", "--no-header", "--no-summary", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"),
    "--assert=plain",  # pytest would load the product itself, unbroken, to rewrite its assertions
)


def arguments(room: str) -> tuple[str, ...]:
    """Return how pytest is called for the tests of a room."""
    marks = "not slow and not nightly"
    if room not in POSTGRES:
        marks += " and not postgres"
    return (*OPTIONS, "-m", marks, *TESTS[room])
