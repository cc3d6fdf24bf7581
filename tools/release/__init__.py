"""Builds the files of `make release`: packages, man pages, completion and checksums."""
