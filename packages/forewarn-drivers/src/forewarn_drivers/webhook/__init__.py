"""The `webhook` driver, with signed requests and signed reports. Source: R-4."""
