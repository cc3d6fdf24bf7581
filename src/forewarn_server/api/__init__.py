"""The operator API under `/v1`: routes, schemas, authentication, the watch."""
