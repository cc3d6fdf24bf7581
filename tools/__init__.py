"""Programs for those who work on Forewarn; none of this is installed with it."""
