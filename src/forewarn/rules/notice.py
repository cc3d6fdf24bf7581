"""Notice: the VMs of a host learn of its work some time before it starts. Source: F-3, N-1."""

from __future__ import annotations

from dataclasses import field

from forewarn.rules.blockers import UNTIL_START, Code, Meaning, describe
from forewarn.rules.members import SecondsKind, member, members

describe(
    Code.NOTICE,
    Meaning(
        "the VMs of {who} must get their notice first",
        "The VMs' notice period is not over.",
        "The notice is over.",
        UNTIL_START,
        ends_with_wave=True,
    ),
)


@members
class NoticeMembers:
    """The notice that a policy asks for."""

    __slots__ = ()

    #: Least notice, from the announcement to the latest start.
    notice_s: int = field(
        default=900,
        metadata=member(
            "notice", SecondsKind(), "Minimum notice of all impacts; an impact may require more."
        ),
    )
