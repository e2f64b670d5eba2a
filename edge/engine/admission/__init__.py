"""Admission: quotas, rate limits and the fair order of requests, so that no client starves another."""
