"""`TrainingArguments`, without torch."""

from .training_arguments import TrainingArguments
from .validate import validate_with_data

__all__ = ["TrainingArguments", "validate_with_data"]
