"""What the control plane costs as the fleet grows."""
