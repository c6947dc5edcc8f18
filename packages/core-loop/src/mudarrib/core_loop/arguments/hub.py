"""Pushing to the hub."""

from __future__ import annotations

from dataclasses import dataclass

from .field import argument
from .names import HubStrategy


@dataclass
class HubArguments:
    push_to_hub: bool = argument(False, "Push the model to the hub.")
    hub_token: str | None = argument(
        None, "Token for the hub; by default that of the last login. Never written anywhere.", secret=True
    )
    hub_private_repo: bool | None = argument(None, "Whether a repository that is made is private.")
    hub_model_id: str | None = argument(
        None, "Repository to push to, 'user/name'; by default the output folder's name."
    )
    hub_strategy: HubStrategy | str = argument(
        "every_save", "What to push when: 'end', 'every_save', 'checkpoint' (resumable), 'all_checkpoints'."
    )
    hub_always_push: bool = argument(False, "With the peers: push also while the last push is under way.")
    hub_revision: str | None = argument(None, "Branch to push to; by default main.")
