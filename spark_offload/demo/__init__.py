"""Demonstration without gateways: a synthetic city, its history, and a report with charts."""
