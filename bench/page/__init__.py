"""What the page costs a browser as the fleet grows."""
