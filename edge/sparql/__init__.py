"""SPARQL 1.1 as text: its grammar, and explanations of syntax errors. Depends on no other package."""
