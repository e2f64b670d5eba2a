"""Programs of an appliance: its first start, the owner's settings, unconfirmed updates, devices of the broker."""
