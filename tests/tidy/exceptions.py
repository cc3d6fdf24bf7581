"""Where the tree may differ from a tidy check, each with its reason; one that is stale fails."""

EXCEPTIONS: dict[tuple[str, str, str], str] = {
    # (check, path, name of the thing or "") -> reason
    ("no_workplace", "packages/forewarn-metadata/src/forewarn_metadata/endpoint/instance.py", ""): (
        "where a VM keeps its users' keys, as instance metadata says it"
    ),
    ("tests_do_not_sleep", "tests/e2e/clients/poll.py", "time.sleep"): (
        "a client like those in use, run as a program of its own: it polls and sleeps"
    ),
    ("tests_do_not_sleep", "tests/e2e/clients/with_requests.py", "time.sleep"): (
        "a client like those in use, run as a program of its own: it polls and sleeps"
    ),
    ("assigned_outside", "packages/forewarn-agent/src/forewarn/agent/core/step_table.py", "run"): (
        "the number of a run; a check of the conformance suite holds a callable by this name"
    ),
}

#: Directories, and pages generated from them, whose prose has not been rewritten yet; the checks
#: `plain_words` and `plain_docstrings` pass over them. Only delete from this list.
UNREAD = {
    "tests", "tests/agent",
    "tests/api", "tests/cli", "tests/control", "tests/core",
    "tests/drivers", "tests/e2e", "tests/kubernetes",
    "tests/metadata", "tests/outbox", "tests/page", "tests/planning",
    "tests/protocol", "tests/release", "tests/replication", "tests/settings", "tests/simulator",
    "tests/simulator/checkers", "tests/simulator/exploration", "tests/simulator/mutation",
    "tests/simulator/transcripts", "tests/simulator/world", "tests/store", "tests/telemetry",
    "packages/forewarn-azure/tests/azure_tests/api",
    "packages/forewarn-cli/tests/cli_tests",
    "packages/forewarn-conformance/tests/conformance_tests",
    "packages/forewarn-emulator/tests/emulator_tests",
    "packages/forewarn-emulator/tests/emulator_tests/clients",
    "packages/forewarn-kubernetes/tests/kubernetes_tests",
    "packages/forewarn-libvirt/tests/libvirt_tests",
    "packages/forewarn-openstack/tests/openstack_tests",
}  # fmt: skip
