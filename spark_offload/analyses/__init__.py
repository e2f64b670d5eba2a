"""Analyses: from rows of the table to DataFrames that a gateway's owner can read, plot, or go on with.

Each is a function of a file of its own; `edge-history analyse` is its face. They take rows as the table has them
(`spark_offload/table.py`), all or a part, and look at those that have a number.
"""
