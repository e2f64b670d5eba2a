"""Tests and tools of the appliance images, run from the project's root: `.venv/bin/python -m images.boot_test`."""
