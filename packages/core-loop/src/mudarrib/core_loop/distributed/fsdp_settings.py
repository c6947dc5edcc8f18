"""`fsdp` and `fsdp_config` as accelerate's plugin takes them."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError

STRATEGIES = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
SAME = (
    "state_dict_type",
    "activation_checkpointing",
    "cpu_ram_efficient_loading",
    "reshard_after_forward",
    "limit_all_gathers",
    "ignored_modules",
)
ONLY_VERSION_1 = ("backward_prefetch", "forward_prefetch", "use_orig_params", "sync_module_states", "limit_all_gathers")
RENAMED = {
    "version": "fsdp_version",
    "transformer_layer_cls_to_wrap": "transformer_cls_names_to_wrap",
    "min_num_params": "min_num_params",
    "cpu_offload": "cpu_offload",
    "offload_params": "cpu_offload",
    "auto_wrap_policy": "auto_wrap_policy",
    "backward_prefetch_policy": "backward_prefetch",
    **{name: name for name in (*SAME, *ONLY_VERSION_1)},
}


def plugin_settings(args: Any) -> dict[str, Any]:
    """Settings of accelerate's FSDP plugin.

    Keys of `fsdp_config` are known with and without the prefix `fsdp_`. Version 2 is the default.

    Raises:
        ArgumentError: names a key or a word that is not known, and those that are.
    """
    given = {key.removeprefix("fsdp_"): value for key, value in dict(args.fsdp_config or {}).items()}
    unknown = sorted(key for key in given if key not in RENAMED and not key.startswith("xla"))
    if unknown:
        raise ArgumentError("fsdp_config", unknown, f"its keys are {', '.join(sorted(RENAMED))}")
    settings = {RENAMED[key]: value for key, value in given.items() if key in RENAMED and value is not None}
    settings["fsdp_version"] = int(settings.get("fsdp_version", 2))
    _add_words(settings, args.fsdp)
    if settings["fsdp_version"] == 2:
        for name in ONLY_VERSION_1:
            settings.pop(name, None)
    layers = settings.get("transformer_cls_names_to_wrap")
    if isinstance(layers, str):
        settings["transformer_cls_names_to_wrap"] = [name.strip() for name in layers.split(",")]
    settings.setdefault("auto_wrap_policy", _policy(settings))
    settings.setdefault("state_dict_type", "FULL_STATE_DICT")
    return settings


def _add_words(settings: dict[str, Any], given: Any) -> None:
    """What the peers' `fsdp="full_shard auto_wrap offload"` says."""
    words = (
        given.replace(",", " ").split() if isinstance(given, str) else list(given) if isinstance(given, list) else []
    )
    for word in words:
        if word in STRATEGIES:
            if settings["fsdp_version"] == 1:
                settings.setdefault("sharding_strategy", word.upper())
            else:
                settings.setdefault("reshard_after_forward", word in ("full_shard", "hybrid_shard"))
        elif word == "offload":
            settings.setdefault("cpu_offload", True)
        elif word not in ("auto_wrap", "true", "True"):
            known = ", ".join((*STRATEGIES, "auto_wrap", "offload"))
            raise ArgumentError("fsdp", given, f"{word!r} is not known; the words are {known}, or True alone")


def _policy(settings: dict[str, Any]) -> str:
    if settings.get("min_num_params"):
        return "SIZE_BASED_WRAP"
    # Where no layers are named, the policy takes those that the model says must not be split.
    return "TRANSFORMER_BASED_WRAP"
