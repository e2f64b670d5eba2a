"""SUB Engine: a live RDF graph, exact change sets, and notifications of changes for subscriptions."""
