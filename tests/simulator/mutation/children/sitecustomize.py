"""Breaks the product in a process that a test has started; Python runs this before anything."""

import os
import sys

from tests.simulator.mutation.finder import MODULE, NUMBER, finder_of

if MODULE in os.environ:
    finder = finder_of(os.environ[MODULE], int(os.environ[NUMBER]))
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
