"""Callbacks: observers of the loop that may ask for logs, evaluations, checkpoints, or an end."""

from .base import EVENTS, TrainerCallback
from .early_stopping import EarlyStoppingCallback
from .flow import DefaultFlowCallback
from .handler import CallbackHandler
from .progress import PrinterCallback, ProgressCallback

__all__ = [
    "EVENTS",
    "CallbackHandler",
    "DefaultFlowCallback",
    "EarlyStoppingCallback",
    "PrinterCallback",
    "ProgressCallback",
    "TrainerCallback",
]
