"""The algebra compiled: operators that find the solutions of a pattern in the live graph, and what they compute."""
