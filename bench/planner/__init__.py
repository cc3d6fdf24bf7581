"""How few waves the planner needs, and how fast it finds them, next to Ganeti's. Nothing else."""
