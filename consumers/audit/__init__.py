"""Audit: one append-only row per event, and the proof that it is so."""
