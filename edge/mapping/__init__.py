"""The mapping language: payloads in, readings out. Pure: no sockets, no threads, no clock, nothing of edge."""
