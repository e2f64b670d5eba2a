"""SPARQL as text and as algebra: from the characters of a request to a tree that the engine can process.

This package does not know the graph, evaluates nothing and validates no text (Oxigraph does).
"""
