"""Backups: one archive of everything that must survive, made while the gateway runs, and restored as a whole."""

from edge.backup.archive import BackupRefused, Manifest
from edge.backup.making import make
from edge.backup.restoring import Restored, restore

__all__ = ["BackupRefused", "Manifest", "Restored", "make", "restore"]
