"""The control plane: decides and records; it shows nothing itself and touches no machine."""
