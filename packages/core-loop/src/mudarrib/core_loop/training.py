"""What comes before and after the loop: one call of `train()` from its arguments to its result."""

from __future__ import annotations

import time
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from . import loop, seeding
from .checkpointing import EpochRng
from .errors import ArgumentError
from .evaluation import speed_metrics
from .loading import length
from .logs import Logger, get_logger
from .meter import LossMeter
from .outputs import TrainOutput
from .plan import Position, TrainingPlan
from .run import Run
from .signals import StopOnSignal
from .special_tokens import align_special_tokens
from .state import TrainerState

if TYPE_CHECKING:
    from .trainer import Trainer

logger: Logger = get_logger(__name__)


def train(
    trainer: Trainer, resume_from: str | bool | None, trial: Any = None, ignore_keys: list[str] | None = None
) -> TrainOutput:
    """Train, resuming from a checkpoint if one is named; see `Trainer.train`."""
    checkpoint = trainer.checkpointing.find(resume_from)
    seeding.apply(trainer.args.seed, trainer.args.full_determinism)
    trainer.renew(trial)
    while True:
        try:
            return train_once(trainer, checkpoint, trial, ignore_keys)
        except (RuntimeError, MemoryError) as error:
            if not (trainer.args.auto_find_batch_size and out_of_memory(error) and trainer.train_batch_size > 1):
                raise
            trainer.train_batch_size //= 2
            logger.warning("Out of memory: trying again with %s rows a batch.", trainer.train_batch_size)
            trainer.renew(trial)
            free_memory(trainer.engine.device)


def train_once(trainer: Trainer, checkpoint: Path | None, trial: Any, ignore_keys: list[str] | None) -> TrainOutput:
    """Train with the batch size there is; whatever happens, what was put on the model is taken off again."""
    with ExitStack() as undo:
        undo.callback(setattr, trainer, "is_in_train", False)
        trainer.is_in_train = True
        if "underflow_overflow" in trainer.args.debug:
            watch_activations(trainer.model)
        if trainer.args.neftune_noise_alpha is not None:
            undo.enter_context(embedding_noise(trainer.model, trainer.args.neftune_noise_alpha))
        run = prepare(trainer, checkpoint, trial)
        run.ignore_keys = ignore_keys
        stops = trainer.args.handle_signals or trainer.args.enable_jit_checkpoint
        stop = undo.enter_context(StopOnSignal(run)) if stops else None
        undo.push(trainer.checkpointing.leave)
        introduce(run, checkpoint)
        loop.run(run)
        result = finish(run)
    if stop is not None:
        stop.exit_if_asked()
    return result


def prepare(trainer: Trainer, checkpoint: Path | None, trial: Any) -> Run:
    """Everything the loop works on, in the state of the checkpoint if there is one."""
    args, engine = trainer.args, trainer.engine
    loader = trainer.get_train_dataloader()
    plan = TrainingPlan.of(
        args, length(loader), trainer.num_examples(loader), trainer.train_batch_size, engine.world_size
    )
    if checkpoint is not None:
        trainer.checkpointing.load_weights(checkpoint)
    align_special_tokens(trainer.model, trainer.processing_class)
    state = new_state(trainer, plan, trial)

    def build(wrapped: torch.nn.Module) -> tuple[torch.optim.Optimizer, Any]:
        trainer.model_wrapped = wrapped
        enable_checkpointed_activations(trainer)
        trainer.create_optimizer_and_scheduler(plan.max_steps)
        return trainer.create_optimizer(), trainer.lr_scheduler

    model, optimizer, scheduler = engine.prepare(trainer.model, build, plan.max_steps)
    trainer.model_wrapped, trainer.optimizer, trainer.lr_scheduler = model, optimizer, scheduler
    model.train()
    run = Run(
        trainer=trainer,
        args=args,
        plan=plan,
        state=state,
        position=Position(),
        events=trainer.callback_handler,
        engine=engine,
        meter=LossMeter(args.logging_nan_inf_filter),
        loader=loader,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        epoch_rng=EpochRng(),
        started=time.time(),
        flos_per_token=flos_per_token(trainer.model),
    )
    trainer.callback_handler.references.update(
        model=trainer.model, optimizer=optimizer, lr_scheduler=scheduler, train_dataloader=loader
    )
    if checkpoint is not None:
        trainer.checkpointing.resume(run, checkpoint)
        run.first_step = run.logged_at = state.global_step
    trainer.tokens_before = state.num_input_tokens_seen
    return run


def new_state(trainer: Trainer, plan: TrainingPlan, trial: Any) -> TrainerState:
    """The state of a run that begins."""
    state = TrainerState(
        max_steps=plan.max_steps,
        num_train_epochs=plan.num_epochs,
        train_batch_size=trainer.train_batch_size,
        is_local_process_zero=trainer.is_local_process_zero(),
        is_world_process_zero=trainer.is_world_process_zero(),
        is_hyper_param_search=trial is not None,
        trial_name=trainer.hp_name(trial) if trainer.hp_name is not None and trial is not None else None,
        trial_params=dict(getattr(trial, "params", None) or {}) or None,
    )
    state.compute_steps(trainer.args, plan.max_steps)
    trainer.state = trainer.callback_handler.state = state
    return state


def enable_checkpointed_activations(trainer: Trainer) -> None:
    """Recompute activations in the backward pass, where the arguments ask for it."""
    args = trainer.args
    if not args.activation_checkpointing:
        return
    settings = args.activation_checkpointing_kwargs or None
    model: Any = trainer.model
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=settings)
    elif hasattr(model, "gradient_checkpointing_enable"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
    else:
        raise ArgumentError(
            "activation_checkpointing", True, f"{type(model).__name__} does not support it: leave it False"
        )


def watch_activations(model: torch.nn.Module) -> None:
    """Report infinite and NaN values of activations and weights, by transformers' own tool."""
    from transformers.debug_utils import DebugUnderflowOverflow

    DebugUnderflowOverflow(model)


def embedding_noise(model: torch.nn.Module, alpha: float) -> Any:
    """NEFTune, by the entry point that brings it."""
    for entry in entry_points(group="mudarrib.embedding_noise"):
        return entry.load()(model, alpha)
    raise ArgumentError("neftune_noise_alpha", alpha, 'it comes with: pip install "mudarrib-core-loop[optim]"')


def flos_per_token(model: Any) -> float:
    """Floating-point operations of a token, forward and backward: 6 a parameter (arXiv 2001.08361, section 2.1)."""
    return 6.0 * model.num_parameters(exclude_embeddings=True) if hasattr(model, "num_parameters") else 0.0


def introduce(run: Run, checkpoint: Path | None) -> None:
    plan = run.plan
    trained = sum(parameter.numel() for parameter in run.model.parameters() if parameter.requires_grad)
    logger.info(
        "Training %s rows for %s steps (%s a pass), %s rows a step, %s parameters.",
        f"{plan.num_examples:,}",
        f"{plan.max_steps:,}",
        f"{plan.steps_per_epoch:,}",
        f"{plan.total_batch_size:,}",
        f"{trained:,}",
    )
    if checkpoint is not None:
        logger.info("Resuming from %s at step %s.", checkpoint, run.state.global_step)


def finish(run: Run) -> TrainOutput:
    """Metrics, the best model, and everything that was written in the background."""
    trainer, state = run.trainer, run.state
    run.engine.mean(run.meter.drain())
    steps = state.global_step - run.first_step
    train_loss = run.engine.mean(run.meter.total) / max(steps, 0.001)
    share = steps / max(state.max_steps, 1)
    metrics = speed_metrics("train", run.started, samples=run.plan.train_samples * share, steps=steps)
    metrics["total_flos"] = state.total_flos
    metrics["train_loss"] = train_loss
    trainer.memory.add_metrics("train", metrics)
    trainer.log(metrics)
    trainer.checkpointing.finish(run)
    trainer.callback_handler.fire("on_train_end")
    return TrainOutput(state.global_step, train_loss, metrics)


def out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or any(
        sign in text for sign in ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    )


def free_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
