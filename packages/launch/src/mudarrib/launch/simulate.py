"""Memory measured without hardware: the real model, sharded, on fake tensors and a fake process group.

Needs the extra `plan` (torch and transformers). Nothing is computed and nothing is sent: each tensor is a shape, and
torch's memory tracker counts what would live. Any number of processes costs one process here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .errors import ConfigError
from .memory import PARTS, Memory, Setup, Work
from .phrases import later, phrase
from .shapes import Block, ModelShape, Weight
from .states import optimizer_named

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
# The parts under which torch's trackers for plain and for sharded models count.
COUNTED: dict[str, tuple[str, ...]] = {
    "weights": ("Parameter", "Sharded Param", "Buffer"),
    "gradients": ("Gradient", "Sharded Grad"),
    "states": ("Optstate", "OptState"),
    "activations": ("Activation",),
}
ATTENTION = "mudarrib_plan"
Tell = Callable[[str], None]


def simulate(values: dict[str, Any], work: Work, setup: Setup, tell: Tell = lambda text: None) -> Memory:
    """Bytes of one process at its peak, over two steps.

    Weights, gradients and states are those of a GPU; kernels are those that torch has for the CPU, so a dropout's mask
    takes as much as what is dropped, not a byte an entry. DDP's buckets are added by formula, the states of optimizers
    that torch does not have as well.

    Args:
        values: What stands in the model's `config.json`.
        work: What is trained, and how.
        setup: How it is laid over the processes; ddp or FSDP, without offloading.
        tell: Hears what is going on.

    Raises:
        ConfigError: what is asked cannot be simulated; says what can.
    """
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    refuse(work, setup)
    try:
        return rehearse(values, work, setup, tell)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        fix = phrase(
            "the model looks at values ({problem}), and fake tensors have none: it cannot be simulated", problem=error
        )
        raise ConfigError("--simulate", values.get("model_type"), fix) from None
    except KeyError as error:
        # The tracker loses a unit that is made of modules at several places, as T5's shared embedding is.
        fix = phrase(
            "torch's tracker cannot follow this model under FSDP, where modules share a weight; see the formula"
        )
        raise ConfigError("--simulate", values.get("model_type"), fix) from error
    except ConfigError:
        raise
    except (RuntimeError, AttributeError, TypeError, ValueError, NotImplementedError) as error:
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        fix = phrase("this model does not run on fake tensors ({problem}); see the formula", problem=problem)
        raise ConfigError("--simulate", values.get("model_type"), fix) from error


def rehearse(values: dict[str, Any], work: Work, setup: Setup, tell: Tell) -> Memory:
    """Build, shard and measure on fake tensors."""
    with ExitStack() as stack:
        stack.enter_context(quiet("torch._subclasses.fake_tensor"))
        mesh = stack.enter_context(fake_processes(setup))
        from torch._subclasses.fake_tensor import FakeTensorMode

        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        tell(phrase("building the model"))
        model = build(values, work)
        if setup.checkpointing:
            checkpoint(model)
        if setup.engine != "ddp":
            tell(phrase("sharding it over {number} processes", number=setup.processes))
            shard(model, mesh, reshard=setup.shards == "all", half=HALF.get(work.mixed_precision))
        return measure(model, values, work, setup, tell)


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """A logger says nothing: torch logs a traceback of what fake tensors refuse, which the error says in a line."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def checkpoint(model: Any) -> None:
    """Have each layer computed anew in backward."""
    newer = getattr(model, "activation_checkpointing_enable", None)
    (newer or model.gradient_checkpointing_enable)()


def outline(values: dict[str, Any]) -> ModelShape:
    """Name, count and layers of a model that no formula knows, from transformers itself.

    Raises:
        ConfigError: transformers cannot build it.
    """
    with torch.device("meta"):
        model = build(values, Work())
    layers = layers_of(model)
    config = model.config
    # The blocks have no widths: nothing but simulation asks about such a model.
    names = dict.fromkeys(type(layer).__name__ for layer in layers)
    blocks = [Block(name, sum(type(layer).__name__ == name for layer in layers), 0, 0, 0, 0, 0) for name in names]
    return ModelShape(
        architecture=type(model).__name__,
        hidden=0,
        vocabulary=getattr(config, "vocab_size", 0),
        max_positions=getattr(config, "max_position_embeddings", None),
        embeddings=(Weight("all", (sum(parameter.numel() for parameter in model.parameters()),)),),
        tail=(),
        blocks=tuple(blocks),
        outputs=0,
    )


def refuse(work: Work, setup: Setup) -> None:
    """Say what cannot be simulated.

    Raises:
        ConfigError: DeepSpeed, offloading, or an optimizer that steps inside backward.
    """
    if setup.engine == "deepspeed" or setup.offload != "nothing":
        raise ConfigError(
            "--simulate", setup.name, phrase("DDP and FSDP without offloading can be simulated; see the formula")
        )
    if optimizer_named(work.optimizer).in_backward:
        raise ConfigError(
            "--simulate", work.optimizer, phrase("optimizers that step inside backward are not simulated")
        )


@contextmanager
def fake_processes(setup: Setup) -> Iterator[Any]:
    """A process group of which only this process is there, and its mesh."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise ConfigError("--simulate", "a process group is there", phrase("simulate in a process of its own"))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=setup.world)
    try:
        if 1 < setup.processes < setup.world:
            shape = (setup.world // setup.processes, setup.processes)
            yield init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
        else:
            yield init_device_mesh("cpu", (setup.world,))
    finally:
        dist.destroy_process_group()


def build(values: dict[str, Any], work: Work) -> Any:
    """The model that a config stands for, in training mode.

    Raises:
        ConfigError: transformers has no such model, or cannot build it.
    """
    import transformers

    try:
        config = transformers.AutoConfig.for_model(**values)
        if getattr(config, "pad_token_id", None) is None:
            # Classifiers on decoders ask for it; any will do, since nothing is computed.
            config.pad_token_id = 0
        named = values.get("architectures") or []
        cls = getattr(transformers, named[0]) if named else transformers.AutoModelForCausalLM
        factory = cls.from_config if not named else cls._from_config
        dtype = getattr(torch, work.dtype)
        if work.eager_attention:
            model = factory(config, dtype=dtype, attn_implementation="eager")
        else:
            model = with_flash(factory, config, dtype, work)
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ConfigError(
            "--model", values.get("model_type"), phrase("transformers cannot build it: {problem}", problem=error)
        ) from error
    config.use_cache = False
    return model.train()


def with_flash(factory: Callable[..., Any], config: Any, dtype: torch.dtype, work: Work) -> Any:
    """A model whose attention takes the flash kernel, as a GPU would.

    On fake tensors transformers makes a mask where a real run makes none, and a CPU has no flash kernel with dropout.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    def attention(*args: Any, dropout: float = 0.0, **more: Any) -> Any:
        return sdpa_attention_forward(*args, dropout=dropout if work.on_cpu else 0.0, **more)

    if getattr(config, "attn_logit_softcapping", None):
        return factory(config, dtype=dtype, attn_implementation="eager")
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, lambda *args, **more: None)
    try:
        return factory(config, dtype=dtype, attn_implementation=ATTENTION)
    except (ValueError, ImportError, KeyError):
        # Models with attention classes of their own know torch's name alone.
        return factory(config, dtype=dtype, attn_implementation="sdpa")


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The repeated layers: modules of the classes that transformers says not to split."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    inside = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    found = [layer for layers in inside for layer in layers if type(layer).__name__ in names]
    if found:
        return found
    longest = max(inside, key=len, default=nn.ModuleList())
    return list(longest)


def shard(model: Any, mesh: Any, *, reshard: bool, half: torch.dtype | None = None) -> list[nn.Module]:
    """Shard a model as accelerate does: each layer, the embedding, the final norm with the head, the rest.

    Args:
        model: A model of transformers; changed in place.
        mesh: The processes.
        reshard: Free the gathered weights after forward (FULL_SHARD); else keep them until backward (SHARD_GRAD_OP).
        half: Compute in this type.

    Returns:
        The layers.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=half) if half else MixedPrecisionPolicy()
    layers = layers_of(model)
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    embed, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is not None and embed is not None and embed.weight is head.weight
    if embed is not None and not tied:
        fully_shard(embed, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    ends = [module for module in (embed if tied else None, head) if module is not None]
    # All that hold one parameter must be in one unit: an encoder-decoder has its embedding three times.
    owned = {id(parameter) for module in ends for parameter in module.parameters()}
    sharing = [m for m in model.modules() if m not in ends and any(id(p) in owned for p in m.parameters(recurse=False))]
    tail = [module for module in (final_norm(model), *sharing, *ends) if module is not None]
    if tail:
        fully_shard(tail, mesh=mesh, reshard_after_forward=False, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return layers


def final_norm(model: Any) -> nn.Module | None:
    """The norm between the last layer and the head, where the model keeps it beside its layers."""
    base = getattr(model, model.base_model_prefix, None) if model.base_model_prefix else model
    norms = [child for child in base.children() if "Norm" in type(child).__name__] if base is not None else []
    return norms[-1] if norms else None


def inputs_for(model: nn.Module, values: dict[str, Any], work: Work) -> dict[str, torch.Tensor]:
    """A batch for the model's task."""
    name = type(model).__name__
    ids = torch.zeros((work.batch, work.seq_len), dtype=torch.long)
    if "SequenceClassification" in name or "MultipleChoice" in name:
        return {"input_ids": ids, "labels": torch.zeros((work.batch,), dtype=torch.long)}
    if "QuestionAnswering" in name:
        return {"input_ids": ids, **{key: torch.zeros((work.batch,), dtype=torch.long) for key in SPANS}}
    return {"input_ids": ids, "labels": torch.zeros_like(ids)} if "For" in name or "LM" in name else {"input_ids": ids}


SPANS = ("start_positions", "end_positions")


def stepper(model: nn.Module, name: str) -> torch.optim.Optimizer | None:
    """Torch's own optimizer under a name; None where it has none."""
    builders: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adamw": torch.optim.AdamW, "adamw_torch": torch.optim.AdamW, "adamw_torch_fused": torch.optim.AdamW,
        "sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop,
    }  # fmt: skip
    return builders[name](model.parameters(), lr=1e-4, foreach=False) if name in builders else None


def measure(model: nn.Module, values: dict[str, Any], work: Work, setup: Setup, tell: Tell) -> Memory:
    """Two steps under torch's tracker; what lives at the peak."""
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed._tools.mem_tracker import MemTracker

    batch = inputs_for(model, values, work)
    optimizer = stepper(model, work.optimizer)
    tracker: Any
    if setup.engine == "ddp":
        tracker = MemTracker()
        tracker.track_external(model, *([optimizer] if optimizer else []), *batch.values())
    else:
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs(tuple(batch.values()))
    with tracker, hearing(layers_of(model), tell, 2 * work.accumulation):
        for _ in range(2):
            for _ in range(work.accumulation):
                with casting(work, setup):
                    loss = loss_of(model(**batch))
                torch.autograd.backward(loss)
                del loss
                tracker.reset_mod_stats()
            if optimizer:
                optimizer.step()
            model.zero_grad()
    (found,) = tracker.get_tracker_snapshot("peak").values()
    return as_memory({str(getattr(key, "value", key)): size for key, size in found.items()}, model, work, setup)


def loss_of(outputs: Any) -> torch.Tensor:
    """The loss; for a model without a head, a sum of what it gives."""
    loss: torch.Tensor | None = getattr(outputs, "loss", None)
    if loss is not None:
        return loss
    hidden: torch.Tensor = outputs[0]
    return hidden.float().sum()


def casting(work: Work, setup: Setup) -> AbstractContextManager[Any]:
    """Autocast, for DDP in mixed precision; FSDP casts the weights themselves."""
    wanted = setup.engine == "ddp" and work.mixed_precision != "no"
    return torch.autocast("cpu", dtype=HALF.get(work.mixed_precision, torch.bfloat16), enabled=wanted)


@contextmanager
def hearing(layers: Sequence[nn.Module], tell: Tell, passes: int) -> Iterator[None]:
    """Tell of each layer that begins its forward pass."""
    done = 0

    def note(*args: object) -> None:
        nonlocal done
        done += 1
        tell(phrase("layer {done} of {all}", done=done, all=passes * len(layers)))

    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def as_memory(found: dict[str, int], model: nn.Module, work: Work, setup: Setup) -> Memory:
    """The tracker's parts as ours."""
    parts = {name: sum(found.get(key, 0) for key in keys) for name, keys in COUNTED.items()}
    buffers = found["Total"] - sum(parts.values())
    if setup.engine == "ddp" and setup.world > 1:
        buffers += sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    assert set(parts) | {"buffers"} == set(PARTS)
    return Memory(**parts, buffers=buffers, moment=later("simulated"))
