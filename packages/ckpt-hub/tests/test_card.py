"""The model card."""

import torch
from huggingface_hub import ModelCard

from mudarrib.ckpt_hub import model_card


def test_card_says_how_and_hides_tokens():
    text = model_card(
        "my-model",
        metrics={"accuracy": 0.91234567},
        hyperparameters={"learning_rate": 2e-5, "hub_token": "abc", "run_name": "x hf_abcdefghijkl", "eos_token": "|"},
        training_log=[{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "eval_loss": 1.5}],
        base_model="some/base",
        datasets=["imdb"],
        license_name="apache-2.0",
    )
    data = ModelCard(text).data.to_dict()
    assert data["base_model"] == "some/base" and data["datasets"] == ["imdb"] and data["license"] == "apache-2.0"
    assert "- accuracy: 0.9123" in text and "- learning_rate: 2e-05" in text and f"- torch: {torch.__version__}" in text
    assert "| 2 | 1 | 1.5 |" in text and "| 1 | 2 |  |" in text
    assert "hub_token" not in text and "hf_abc" not in text and "\\|" in text


def test_smallest_card():
    assert "trained from scratch" in model_card("m") and "## Results" not in model_card("m")
