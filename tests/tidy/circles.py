"""Finds circles of imports: modules of which none can be read, tested or replaced alone.

Imports for the type checker and imports inside functions count like any other.
"""

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from tests.tidy.house import Source


def import_circles(sources: Iterable[Source]) -> list[tuple[str, ...]]:
    """Return circles of imports, each from its first module by name, to the last one."""
    modules = {source.module: source for source in sources if source.module}
    imports = {module: _imported(source, modules) for module, source in modules.items()}
    found: set[tuple[str, ...]] = set()
    while True:
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            circle = error.args[1][:-1]  # each is imported by the next one
            first = circle.index(min(circle))
            found.add((*circle[first:], *circle[:first]))
            imports[circle[0]].discard(circle[-1])
        else:
            return sorted(found)


def _imported(source: Source, modules: dict[str, Source]) -> set[str]:
    """Return the modules that one imports: of `from a.b import c` that is `a.b.c`, or `a.b`."""
    found = set()
    for _, name in source.imports():
        parent = name.rpartition(".")[0]
        found.add(name if name in modules else parent)
    return (found & set(modules)) - {source.module}
