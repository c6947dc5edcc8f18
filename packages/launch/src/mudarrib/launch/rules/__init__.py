"""What can be wrong with a config: each rule a small function with a code, a message and a fix."""

from .base import RULES, Finding, check

__all__ = ["RULES", "Finding", "check"]
