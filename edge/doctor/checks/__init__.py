"""The checks. Each examines one thing and reports its state, why it matters, and the remedy."""
