"""The SPARQL 1.1 Protocol over HTTP for the history."""
