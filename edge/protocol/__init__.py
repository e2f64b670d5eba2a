"""The SPARQL 1.1 Secure Event protocol: messages, results and errors. Knows no transport and no engine."""
