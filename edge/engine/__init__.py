"""The SUB Engine: a live RDF graph, exact change sets, and subscriptions that are told what changed."""
