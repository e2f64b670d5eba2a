"""SPARQL over the history: rdflib parses, its algebra becomes DataFrames."""
