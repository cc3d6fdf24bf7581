"""What all packages of Forewarn share; standard library only."""
