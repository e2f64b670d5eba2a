"""Clients and their permissions: identities, tokens, certificates. Independent of the transports."""
