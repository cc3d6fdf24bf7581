"""What `make release` makes: packages, man pages, completion, the list of parts, checksums."""
