"""Operators: the compiled algebra, which finds the solutions of a pattern in the live graph and computes with them."""
