"""How long it takes from typing `forewarn emulate` to its first answer. Nothing else."""
