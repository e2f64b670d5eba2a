"""Backups: one archive of everything that must survive, made while the gateway runs, and restored as a whole."""

from edge.backup.archive import BackupManifest, BackupRefused
from edge.backup.create_backup import make
from edge.backup.restore_backup import RestoredGateway, restore
from edge.backup.staging import complete, confirm, is_staged, stage, undo, unstage

__all__ = [
    "BackupManifest",
    "BackupRefused",
    "RestoredGateway",
    "complete",
    "confirm",
    "is_staged",
    "make",
    "restore",
    "stage",
    "undo",
    "unstage",
]
