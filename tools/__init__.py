"""Programs for Forewarn's developers, which Forewarn's packages do not contain."""
