"""The SPARQL 1.1 front end: from text to algebra, and explanations of syntax errors. Depends on no other package."""
