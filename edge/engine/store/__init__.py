"""The live graph in memory: terms, the triple index, change sets, and the Oxigraph mirror that queries read."""
