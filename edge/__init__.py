"""sepa-edge: a semantic edge gateway with SPARQL subscriptions that notify clients of exact changes."""

__version__ = "0.1.0"
