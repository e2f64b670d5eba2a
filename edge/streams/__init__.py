"""RDF streams: windows over timestamped graphs, continuous queries on them, and observers of their results.

The interface follows Balduini and Della Valle, "A RESTful Interface for RDF Stream Processors" (ISWC 2013). Semantics
of windows and of stream operators follow C-SPARQL (SIGMOD Record 39(1), 2010) and RSP-QL (IJSWIS 10(4), 2014).
"""
