"""Destinations of the outbox that need a package each: NATS, Kafka, and Apprise for mail and chat.

They are entry points of the group `forewarn.sinks`, so that a control plane without this package
serves everything else.
"""
