"""The `webhook` driver: a signed request for each call, and signed reports in return. R-4."""
