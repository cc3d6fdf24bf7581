"""Steps of a public validation suite for AI clouds, asked of a running service as a tenant.

Each step prints one JSON object with `success`. It asks the operator API with the tenant's token
and reports only records that the service has. A step that this service does not offer has `skipped`
and the reason.
"""
