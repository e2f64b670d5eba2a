"""Durable subscriptions: continue after a restart at the sequence number that the client has seen."""
