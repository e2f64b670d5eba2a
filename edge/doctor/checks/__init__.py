"""The checks: each looks at one thing, and says what is so, why it matters, and what to do."""
