"""Programs of an appliance: its first start, the owner's settings, updates on trial, devices of the broker."""
