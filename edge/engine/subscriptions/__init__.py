"""Subscriptions: match changed quads to subscribed queries and compute the added and removed rows."""
