"""A maintenance of a large fleet, carried out by the emulator while its VMs approve."""
