"""The disk of a simulated machine, where its agent keeps its journal; it may be full."""

from forewarn.agent.core.agent_core import AgentCore


class AgentDisk:
    """Keeps one journal."""

    def __init__(self) -> None:
        """Begin empty."""
        self.journal: dict[str, object] | None = None
        #: The generation of the agent's core that was written, or read.
        self.written = 0
        #: Whether nothing can be written.
        self.full = False
        #: Whether the machine has restarted since the journal, which names the boot, was written.
        self.rebooted = False

    def write(self, core: AgentCore) -> None:
        """Write what has changed, where that can be done."""
        if core.generation != self.written and not self.full:
            self.written = core.generation
            self.journal = core.journal()
            self.rebooted = False

    def takes(self, core: AgentCore) -> bool:
        """Return whether what the core has decided is written, or can be."""
        return not self.full or core.generation == self.written

    def fill(self, core: AgentCore | None) -> None:
        """Be full from now on; what was written in the simulation's own time is written now."""
        if core is not None:
            self.write(core)
        self.full = True
