"""Jobs: programs of several processes, on one VM or more, that prepare for an event as a unit."""
