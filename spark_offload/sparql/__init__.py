"""SPARQL over the history: rdflib reads the text, and an algebra of our own becomes DataFrames."""
