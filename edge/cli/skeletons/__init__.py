"""Programs to begin with, as `edge new` copies them: each a Python file and the profile beside it."""
