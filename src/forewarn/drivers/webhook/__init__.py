"""The `webhook` driver: a signed request for each verb, reports that come back signed. R-4."""
