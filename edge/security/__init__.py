"""Who the clients are and what they may do: identities, tokens, certificates. Knows no transport."""
