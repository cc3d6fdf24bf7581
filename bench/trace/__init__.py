"""Plans and carries out a firmware update of a production GPU cluster, in virtual time."""
