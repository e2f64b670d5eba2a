"""SPARQL 1.1 as text: its grammar, and an explanation of what is wrong with a text. Depends on no other package."""
