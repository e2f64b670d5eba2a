"""Rules of the operator: the gateway itself answers situations in the graph with updates, at once or later."""
