"""Analyses: functions from rows of the table to DataFrames, which notebooks can print, plot or process further.

Each analysis is one function in a module of its own, and a subcommand of `edge-history analyse`. Its input are all or
some rows of the table (`spark_offload/table.py`); it uses the rows with a numeric value.
"""
