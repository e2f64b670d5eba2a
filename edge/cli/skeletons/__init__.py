"""Example programs that `edge new` copies: each a Python file with its profile."""
