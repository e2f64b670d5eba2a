"""sepa-edge: a semantic edge gateway that tells SPARQL subscribers exactly what changed."""

__version__ = "0.1.0"
