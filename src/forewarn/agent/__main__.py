"""`python -m forewarn.agent`: the agent's own commands, and `run` with nothing more than it needs.

No command may be defined in here.
"""

import sys

from forewarn.agent.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
