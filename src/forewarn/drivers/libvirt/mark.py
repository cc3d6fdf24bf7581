"""The mark that a domain carries of the task that is done to it, at its hypervisor. Source: R-2.

It goes along when the domain moves, and shows a driver that starts after a crash what is left.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from forewarn.values import value

#: Of the element in the domain's metadata.
NAMESPACE = "https://forewarn.dev/libvirt/task/1"
#: The prefix libvirt writes it with.
PREFIX = "forewarn-task"


@value
class Mark:
    """What is done to one domain, by which operation, in whose name."""

    #: `op-12@` and when it was asked for, so that no two stores mean the same.
    operation: str
    attempt: int
    generation: int
    #: Whether this run of it is to end. A run that was started since does not say so: only
    #: the running domain is marked so, not its definition.
    pending: bool = False
    #: The host it goes to; empty if it stays.
    to: str = ""
    #: Whether it ran, and so has to run again.
    ran: bool = True

    @property
    def element(self) -> str:
        """The element that goes into the domain's metadata."""
        return (
            f"<task operation={quoteattr(self.operation)} attempt='{self.attempt}' "
            f"generation='{self.generation}' pending='{int(self.pending)}' to={quoteattr(self.to)} "
            f"ran='{int(self.ran)}'/>"
        )


def read_mark(element: str) -> Mark | None:
    """Return the mark that a domain's metadata holds; None if that is not a mark of ours."""
    try:
        said = ET.fromstring(element).attrib  # noqa: S314 - libvirt wrote it from its own tree
        return Mark(
            said["operation"],
            int(said["attempt"]),
            int(said["generation"]),
            said["pending"] == "1",
            said["to"],
            said["ran"] == "1",
        )
    except (ET.ParseError, KeyError, ValueError):
        return None
