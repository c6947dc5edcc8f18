"""The model card: what the model is, how it was trained, how well it does."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence

from huggingface_hub import ModelCardData

from .secrets import is_secret_name, redact

_PACKAGES = (
    "torch",
    "transformers",
    "datasets",
    "accelerate",
    "tokenizers",
    "peft",
    "mudarrib-core-loop",
    "mudarrib-sft",
)


def model_card(
    model_name: str,
    *,
    metrics: Mapping[str, float] | None = None,
    hyperparameters: Mapping[str, object] | None = None,
    training_log: Sequence[Mapping[str, float]] = (),
    base_model: str | None = None,
    datasets: Sequence[str] = (),
    language: Sequence[str] = (),
    license_name: str | None = None,
    tags: Sequence[str] = (),
    library_name: str | None = None,
    pipeline_tag: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> str:
    """The text of a `README.md` for the hub.

    Settings whose name says that they hold a credential are left out, and whatever looks like a token of the hub
    is blotted out.

    Args:
        model_name: The heading.
        metrics: Scores of the last evaluation.
        hyperparameters: Settings of the training, in the order in which they shall appear.
        training_log: Rows for the table of results, such as {"step": 500, "loss": 1.2, "eval_loss": 1.3}.
        base_model: The model that was tuned, as on the hub.
        datasets: The data sets, as on the hub.
        language: Languages by code, such as "en".
        license_name: The licence's short name on the hub.
        tags: More tags.
        library_name: The library that loads the model, such as "transformers".
        pipeline_tag: The task, such as "text-classification".
        versions: Package to version; None for the installed ones that matter.

    Returns:
        Markdown with a YAML header.
    """
    data = ModelCardData(
        base_model=base_model,
        datasets=list(datasets) or None,
        language=list(language) or None,
        license=license_name,
        tags=["generated_from_trainer", "mudarrib", *tags],
        library_name=library_name,
        pipeline_tag=pipeline_tag,
    )
    shown = {name: value for name, value in (hyperparameters or {}).items() if not is_secret_name(name)}
    blocks = [
        f"---\n{data.to_yaml()}\n---",
        f"# {model_name}",
        _origin(base_model, datasets),
        _section("Results", _items(metrics or {})),
        _section("Training hyper-parameters", _items(shown)),
        _section("Training log", _table(training_log)),
        _section("Versions", _items(installed_versions() if versions is None else versions)),
    ]
    return redact("\n\n".join(block for block in blocks if block) + "\n")


def installed_versions() -> dict[str, str]:
    """Python's version and those of the packages that bear on a training, as far as installed."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _origin(base_model: str | None, datasets: Sequence[str]) -> str:
    start = (
        f"fine-tuned from [{base_model}](https://huggingface.co/{base_model})" if base_model else "trained from scratch"
    )
    return f"This model was {start}" + (f" on {', '.join(datasets)}." if datasets else ".")


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}" if body else ""


def _items(values: Mapping[str, object]) -> str:
    return "\n".join(f"- {name}: {_number(value)}" for name, value in values.items())


def _table(rows: Sequence[Mapping[str, float]]) -> str:
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_number(row[name]) if name in row else "" for name in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
