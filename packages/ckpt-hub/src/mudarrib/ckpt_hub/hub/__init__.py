"""Pushing checkpoints to the hub."""
