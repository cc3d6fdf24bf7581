"""What metrics cost the polls of VMs."""
