"""SPARQL as text and as algebra: from the characters of a request to a tree that the engine can work on.

Nothing here knows the graph, evaluates anything or judges a text (Oxigraph judges).
"""
