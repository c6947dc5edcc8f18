"""The curves of a run, as a picture and as one page that needs nothing else."""

from .write import write_report

__all__ = ["write_report"]
