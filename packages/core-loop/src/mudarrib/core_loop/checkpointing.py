"""What goes into a checkpoint and comes back from it. Only this file and `pushing` speak to ckpt-hub."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mudarrib.ckpt_hub import CheckpointStore, RngState, ShardedState

from . import weights
from .errors import ArgumentError
from .logs import Logger, get_logger
from .plan import Position, TrainingPlan
from .progress import Progress
from .pushing import Pushing
from .schedules import Settings
from .waiting import shown_if_long

if TYPE_CHECKING:
    from .run import Run
    from .trainer import Trainer

logger: Logger = get_logger(__name__)
STATE_FILE = "trainer_state.json"
SHARDED = "sharded"
Writer = Callable[[Path], object]


class Stateful(Protocol):
    """A part of a checkpoint: modules, optimizers and schedulers fit as they are."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object: ...


class Saved(Protocol):
    """A checkpoint that is there."""

    @property
    def path(self) -> Path: ...

    @property
    def step(self) -> int: ...

    @property
    def parts(self) -> tuple[str, ...]: ...


class Store(Protocol):
    """Where checkpoints go; `ckpt_hub.CheckpointStore` by default, any object that fits may be given."""

    def save(
        self,
        step: int,
        parts: Mapping[str, Any],
        *,
        metric: float | None = None,
        extra_files: Mapping[str, Any] | None = None,
        protect: Any = (),
        then: Any = None,
    ) -> Saved: ...

    def load(self, parts: Mapping[str, Any], checkpoint: Any = None, *, strict: bool = True) -> Saved | None: ...

    def newest(self, *, intact: bool = False) -> Saved | None: ...

    def finish_snapshot(self) -> None: ...

    def wait(self, *, alone: bool = False) -> None: ...


class EpochRng:
    """The generators as they were when the epoch began, from which a user's own loader shuffles again."""

    per_rank = True

    def __init__(self) -> None:
        self.rng: RngState = RngState()
        self.saved: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.saved}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        self.saved = state_dict["rng"]

    @contextlib.contextmanager
    def at_start(self, within_epoch: bool, replay: bool) -> Iterator[None]:
        """Around the making of an epoch's iterator; within an epoch, as if at its start, then as now."""
        if not replay:
            yield
        elif not within_epoch:
            self.saved = self.rng.state_dict()
            yield
        elif self.saved:
            now = self.rng.state_dict()
            self.rng.load_state_dict(self.saved)
            yield
            self.rng.load_state_dict(now)
        else:
            yield


class ModelWriter:
    """Writes the model's files into a checkpoint; in the background from a copy of its state."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def __call__(self, folder: Path) -> None:
        self.trainer.save_model(str(folder))

    def capture(self, copy: Callable[[Any], Any]) -> Writer:
        """Take the state now; the result writes it later."""
        trainer = self.trainer
        model = trainer.engine.unwrap(trainer.model)
        gathered = trainer.checkpointing.gathered
        state = copy(model.state_dict()) if gathered is None else gathered

        def write(folder: Path) -> None:
            weights.save(model, folder, state)
            trainer.save_companions(folder)

        return write


class Checkpointing:
    """Saves and resumes the runs of one Trainer.

    Args:
        trainer: Whose run it is.
        store: Where checkpoints go; by default the arguments' `output_dir`.
    """

    def __init__(self, trainer: Trainer, store: Store | None = None) -> None:
        self.trainer = trainer
        self.given = store
        self.cache: dict[str, Store] = {}
        self.pushing: Pushing = Pushing(trainer)
        self.gathered: dict[str, Any] | None = None

    @property
    def store(self) -> Store:
        if self.given is not None:
            return self.given
        args = self.trainer.args
        folder = str(args.output_dir)
        if folder not in self.cache:
            background = args.background_save
            self.cache[folder] = CheckpointStore(
                folder, keep=args.save_total_limit, background=background, defer_copy=background
            )
        return self.cache[folder]

    def find(self, resume_from: str | bool | None) -> Path | None:
        """The checkpoint to resume from: True for the newest valid one.

        Raises:
            ArgumentError: there is none, or no such folder.
        """
        if resume_from is None or resume_from is False:
            return None
        if resume_from is True:
            with shown_if_long(self.trainer, "Checking what was saved"):
                newest = self.store.newest(intact=True)
            if newest is None:
                raise ArgumentError(
                    "resume_from_checkpoint",
                    True,
                    f"No valid checkpoint found in output_dir {self.trainer.args.output_dir!r}: train without it first",
                )
            return newest.path
        path = Path(resume_from)
        if not path.is_dir() and (self.trainer.args.folder / path).is_dir():
            path = self.trainer.args.folder / path
        if not path.is_dir():
            raise ArgumentError("resume_from_checkpoint", resume_from, "give the path of a checkpoint folder")
        return path

    def parts(self, run: Run) -> dict[str, Any]:
        """The stateful parts of a run, by the name they have in a checkpoint."""
        args = self.trainer.args
        callbacks = [*self.trainer.callback_handler.callbacks, self.trainer.control]
        progress = Progress(run.state, run.position, callbacks, args.restore_callback_states_from_checkpoint)
        inner = getattr(run.optimizer, "optimizer", run.optimizer)
        progress.optimizer = type(inner).__name__.removeprefix("Fused")
        parts: dict[str, Any] = {
            **self._optimizer_parts(run),
            "scheduler": run.scheduler,
            "rng": RngState(),
            "progress": progress,
        }
        if run.epoch_rng.saved:
            parts["epoch_rng"] = run.epoch_rng
        if run.engine.scaler is not None:
            parts["scaler"] = run.engine.scaler
        if getattr(run.loader, "keeps_place", True) and hasattr(run.loader, "state_dict"):
            parts["data"] = run.loader
        return parts

    def _optimizer_parts(self, run: Run) -> dict[str, Any]:
        if run.engine.saves_shards:
            return {SHARDED: ShardedState(run.model, run.optimizer)}
        return run.engine.optimizer_parts(run.model, run.optimizer)

    def save(self, run: Run) -> Path:
        """Write `checkpoint-<step>`; older ones go by `save_total_limit`, never the best."""
        args, state = self.trainer.args, run.state
        best = state.best_global_step
        if best is not None:
            best_folder = args.folder / f"checkpoint-{best}"
            if best == state.global_step or best_folder.is_dir():
                state.best_model_checkpoint = str(best_folder)
        parts = self.parts(run)
        progress = parts["progress"]
        if args.save_only_model:
            parts = {}
        progress.note_callbacks()
        files: dict[str, Any] = {**self.trainer.get_checkpoint_files(), STATE_FILE: self._write_state}
        with shown_if_long(self.trainer, f"Saving checkpoint-{state.global_step}"):
            saved = self.store.save(
                state.global_step,
                parts,
                metric=state.best_metric if best == state.global_step else None,
                extra_files=files,
                protect=[state.best_model_checkpoint] if state.best_model_checkpoint else [],
                then=self.pushing.checkpoint if args.push_to_hub else None,
            )
        self.gathered = None
        logger.info("Saved %s", saved.path)
        return saved.path

    def _write_state(self, folder: Path) -> None:
        self.trainer.state.save_to_json(folder / STATE_FILE)

    def load_weights(self, checkpoint: Path) -> None:
        """Put a checkpoint's weights into the model; shards wait for the model to be wrapped."""
        if (checkpoint / SHARDED).is_dir():
            return
        with shown_if_long(self.trainer, f"Loading {checkpoint.name}"):
            weights.load(self.trainer.model, checkpoint, put=self.trainer.engine.load_state)

    def resume(self, run: Run, checkpoint: Path) -> None:
        """Give every part of the run the state it had."""
        parts = self.parts(run) | run.engine.optimizer_parts(run.model, run.optimizer)
        parts[SHARDED] = ShardedState(run.model, run.optimizer)
        parts["epoch_rng"] = run.epoch_rng
        if self.trainer.args.ignore_data_skip:
            parts.pop("data", None)
        settings = Settings(run.optimizer, run.scheduler)
        with shown_if_long(self.trainer, f"Loading {checkpoint.name}"):
            saved = self.store.load(parts, checkpoint, strict=False)
        progress: Progress = parts["progress"]
        if saved is None or "progress" not in saved.parts:
            raise ArgumentError(
                "resume_from_checkpoint", str(checkpoint), "it holds a model but no training state (save_only_model?)"
            )
        if progress.saved_optimizer != progress.optimizer:
            fix = f"the checkpoint is of {progress.saved_optimizer}: go on with that, or train without resuming"
            raise ArgumentError("optim", progress.optimizer, fix)
        if self.trainer.given_optimizers[0] is None:
            settings.win()
        if not progress.has_position:
            place_by_steps(run.position, run.plan, run.state.global_step)
        rows = self.trainer.train_batch_size * run.engine.world_size
        if run.position.examples % rows == 0:
            run.position.batches = run.position.examples // rows
        if self.trainer.args.ignore_data_skip:
            run.position.batches = run.position.examples = 0
        best = run.state.best_model_checkpoint
        if best is not None and not Path(best).is_dir():
            beside = checkpoint.parent / Path(best).name
            run.state.best_model_checkpoint = str(beside) if beside.is_dir() else None

    def leave(self, kind: type[BaseException] | None, *error: object) -> None:
        """Wait for what is being written, at the end or after an error, in which other processes may not answer."""
        if kind is None or self.trainer.engine.world_size == 1:
            self.store.wait()
        else:
            self.store.wait(alone=True)

    def finish(self, run: Run) -> None:
        """Wait for what is being written, then put the best weights into the model if that is asked for."""
        with shown_if_long(self.trainer, "Saving"):
            self.store.wait()
        best = run.state.best_model_checkpoint
        if self.trainer.args.load_best_model_at_end and best is not None:
            logger.info("Loading the best model, %s (%s).", best, run.state.best_metric)
            self.load_weights(Path(best))
            if (Path(best) / SHARDED).is_dir():
                self.store.load({SHARDED: ShardedState(run.model, run.optimizer)}, best)
        if self.trainer.args.push_to_hub:
            self.pushing.final("End of training", blocking=True, card={})

    def model_writer(self, is_own: bool) -> Writer:
        """How a checkpoint gets the model: in the background only if `save_model` is not the user's own."""
        engine = self.trainer.engine
        if engine.saves_shards and not self.trainer.args.save_only_model:
            return self._write_all_but_weights
        # By all processes now: only the first of them writes.
        self.gathered = engine.whole_state(self.trainer.model_wrapped)
        if is_own and hasattr(self.trainer.model, "save_pretrained"):
            return ModelWriter(self.trainer)
        return lambda folder: self.trainer.save_model(str(folder))

    def _write_all_but_weights(self, folder: Path) -> None:
        config: Any = getattr(self.trainer.model, "config", None)
        if hasattr(config, "save_pretrained"):
            config.save_pretrained(folder)
        self.trainer.save_companions(folder)

    def whole_state(self) -> dict[str, Any] | None:
        """The state dict of a model that is split over processes; while a checkpoint is written, from memory."""
        if self.gathered is not None:
            return self.gathered
        return self.trainer.engine.whole_state(self.trainer.model_wrapped)


def place_by_steps(position: Position, plan: TrainingPlan, steps: int) -> None:
    """Where a run of another trainer stands in its data, which only counted its steps."""
    position.epoch, within = divmod(steps, plan.steps_per_epoch)
    position.batches = within * plan.accumulation
    position.examples = within * plan.total_batch_size
