"""Sparkplug B host application: edge nodes of industrial plants, whose births become mappings."""
