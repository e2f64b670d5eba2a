"""Recent history: the values of the last day and the aggregates of the last month, on the gateway."""
