"""Admission: which requests may enter, in which order, and at which price, so that no client starves another.

Quotas limit what clients hold: `fair_share` is their common rule, `slots` counts, `byte_quota` and `graph_quota` limit
memory. `rate` limits what they use over time. `fair_queue` and `round_robin` decide the order, and `evaluation_queue`
combines an order with a rate. `request_charges` and `result_charge` are the prices in the byte quota.
"""
