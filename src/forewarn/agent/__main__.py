"""`python -m forewarn.agent`: the agent's commands; `run` imports only what it needs."""

import sys

from forewarn.agent.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
