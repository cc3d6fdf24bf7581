"""Compares the speed of the metadata service with Go's net/http and nginx."""
