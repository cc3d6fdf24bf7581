"""Where the tree may differ from a tidy check, each with its reason; one that is stale fails."""

EXCEPTIONS: dict[tuple[str, str, str], str] = {
    # (check, path, name of the thing or "") -> reason
    ("no_workplace", "src/forewarn/metadata/instance.py", ""): (
        "where a VM keeps its users' keys, as instance metadata says it"
    ),
    ("tests_do_not_sleep", "tests/e2e/clients/poll.py", "time.sleep"): (
        "a client like those in use, run as a program of its own: it polls and sleeps"
    ),
    ("tests_do_not_sleep", "tests/e2e/clients/with_requests.py", "time.sleep"): (
        "a client like those in use, run as a program of its own: it polls and sleeps"
    ),
}
