"""SPARQL over the history: `edge.sparql` parses the text, and this package translates it into DataFrames."""
