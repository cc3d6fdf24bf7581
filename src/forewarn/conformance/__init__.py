"""Whether a server speaks Scheduled Events: what a VM may do, checked statement by statement."""
