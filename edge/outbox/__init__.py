"""Outbox: stores observations with the update that made them, cuts them into segments and ships them."""
