"""A contract of `.importlinter`: each package below `packages/` takes part in the check.

The names of root packages are listed in `.importlinter`; this contract finds one that is missing.
"""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output

from tools.product import SOURCES


class PackagesContract(Contract):
    """Each package of the product is a root package, so that other contracts can name it."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002, FBT001 - as import-linter calls it
        """Find the packages that the graph lacks."""
        packages = {each.parent.name for source in SOURCES for each in source.glob("*/__init__.py")}
        missing = sorted(packages - graph.modules)
        return ContractCheck(kept=not missing, metadata={"missing": missing})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print what to add."""
        for name in check.metadata["missing"]:
            output.print_error(f"{name} is missing in root_packages of .importlinter.")
