"""The control plane: decides on changes and records them. Other packages serve VMs."""
