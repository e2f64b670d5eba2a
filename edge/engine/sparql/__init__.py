"""SPARQL texts in the engine: terms of Oxigraph, size limits, the plan cache, and corrected texts for Oxigraph.

This package does not know the graph, evaluates nothing and validates no text (Oxigraph does).
"""
