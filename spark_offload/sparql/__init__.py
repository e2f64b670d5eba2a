"""SPARQL over the history: rdflib parses the text, and this package translates its own algebra into DataFrames."""
