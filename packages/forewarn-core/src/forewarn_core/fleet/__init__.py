"""The pure core decides what to announce, show, start and end; no I/O, clock or randomness."""
