"""Where the tree may differ from a tidy check, each with its reason; one that is stale fails.

No check may go in here.
"""

EXCEPTIONS: dict[tuple[str, str, str], str] = {
    # (check, path, name of the thing or "") -> reason
}
