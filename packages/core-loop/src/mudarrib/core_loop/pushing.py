"""What goes to the hub: checkpoints as they are saved, the model at the end with its card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .logs import Logger, get_logger
from .waiting import shown_if_long

if TYPE_CHECKING:
    from mudarrib.ckpt_hub import HubPusher

    from .checkpointing import Saved
    from .trainer import Trainer

logger: Logger = get_logger(__name__)


class Pushing:
    """Sends what one Trainer saves.

    Args:
        trainer: Whose checkpoints and model they are.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.pushers: dict[str, HubPusher] = {}

    @property
    def pusher(self) -> HubPusher:
        """Sends to the repository that the arguments name; the hub's client is loaded only here."""
        from mudarrib.ckpt_hub import HubPusher

        args = self.trainer.args
        name = args.hub_model_id or args.folder.absolute().name
        if name not in self.pushers:
            self.pushers[name] = HubPusher(
                name,
                token=args.hub_token,
                private=args.hub_private_repo,
                revision=args.hub_revision,
                strategy=str(args.hub_strategy),
                root=args.folder,
            )
        return self.pushers[name]

    def checkpoint(self, saved: Saved) -> None:
        """Send a checkpoint that is on the disk, where the strategy wants it."""
        if self.trainer.is_world_process_zero() and self.pusher.pushes_at("save"):
            self.trainer.callback_handler.fire("on_push_begin")
            self.pusher.push(saved.path, "save", step=saved.step)

    def final(self, message: str | None, blocking: bool, card: dict[str, Any]) -> str:
        """Save the model with its card and send it; a hub that fails is told of and does no harm."""
        self.trainer.save_model()
        if not self.trainer.is_world_process_zero():
            return ""
        self.write_card(card)
        self.trainer.callback_handler.fire("on_push_begin")
        self.pusher.push(self.trainer.args.folder, "end", step=self.trainer.state.global_step, message=message)
        with shown_if_long(self.trainer, f"Pushing to {self.pusher.repo_id}"):
            arrived = not blocking or self.pusher.wait()
        if not arrived:
            logger.warning(
                "The model has not arrived at the hub: %s. It is in %s.", self.pusher.error, self.trainer.args.folder
            )
        return self.pusher.repo_id

    def write_card(self, card: dict[str, Any]) -> None:
        """Write the model card into the run's folder."""
        from mudarrib.ckpt_hub import model_card

        args, state = self.trainer.args, self.trainer.state
        path = args.folder / "README.md"
        config = getattr(self.trainer.model, "config", None)
        evaluated: dict[str, Any] = next((entry for entry in reversed(state.log_history) if "eval_loss" in entry), {})
        names = ("learning_rate", "train_batch_size", "eval_batch_size", "seed", "optim", "lr_scheduler_type")
        settings = {name: getattr(args, name) for name in (*names, "num_train_epochs", "max_steps", "weight_decay")}
        text = model_card(
            str(card.get("model_name") or args.hub_model_id or args.folder.name),
            metrics={name: value for name, value in evaluated.items() if name not in ("step", "epoch")},
            hyperparameters=settings,
            training_log=[entry for entry in state.log_history if "loss" in entry or "eval_loss" in entry],
            base_model=card.get("finetuned_from") or getattr(config, "_name_or_path", None) or None,
            datasets=as_list(card.get("dataset")),
            language=as_list(card.get("language")),
            license_name=card.get("license"),
            tags=as_list(card.get("tags")),
        )
        path.write_text(text, encoding="utf-8")


def as_list(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
