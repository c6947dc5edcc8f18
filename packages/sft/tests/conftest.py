"""Small tokenizers, models and data, made on the spot: no hub, no files."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import random

import datasets
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = (
    "the a film was good bad not very and plot acting slow great dull fine user assistant system hello world".split()
)
SPECIAL = ["[UNK]", "[PAD]", "[EOS]", "[BOS]"]
CHATML = (
    "{% for m in messages %}{{ '<s> ' + m['role'] + ' ' + m['content'] + ' [EOS] ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s> assistant ' }}{% endif %}"
)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)
    datasets.disable_progress_bars()


@pytest.fixture
def tokenizer():
    """A factory of word-level tokenizers: one token a word."""

    def make(pad="[PAD]", eos="[EOS]", add_bos=False, add_eos=False, template=None):
        vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS, "<s>", "</s>"])}
        core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        if add_bos or add_eos:
            single = f"{'[BOS] ' if add_bos else ''}$A{' [EOS]' if add_eos else ''}"
            ids = [(name, vocabulary[name]) for name in ("[BOS]", "[EOS]") if name in single]
            core.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)
        made = transformers.PreTrainedTokenizerFast(
            tokenizer_object=core, unk_token="[UNK]", pad_token=pad, eos_token=eos, bos_token="[BOS]"
        )
        made.chat_template = template
        return made

    return make


@pytest.fixture
def sentences():
    """A factory of word sequences of random lengths."""

    def make(n, seed=0, low=3, high=9):
        rng = random.Random(seed)
        return [" ".join(rng.choices(WORDS, k=rng.randint(low, high))) for _ in range(n)]

    return make


@pytest.fixture
def llama():
    """A factory of two-layer Llama models, the same weights for the same seed."""

    def make(seed=0, attn="sdpa", **changes):
        torch.manual_seed(seed)
        settings = {
            "vocab_size": 40,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "bos_token_id": 3,
            "eos_token_id": 2,
            "pad_token_id": 1,
        }
        config = transformers.LlamaConfig(**{**settings, **changes}, attn_implementation=attn)
        return transformers.LlamaForCausalLM(config)

    return make


@pytest.fixture
def chatml():
    return CHATML


@pytest.fixture
def run_args(tmp_path):
    """Keywords of a quiet run on the CPU."""
    return {
        "output_dir": str(tmp_path / "out"),
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "max_steps": 3,
        "max_length": 32,
    }


@pytest.fixture
def sft(tokenizer, llama, run_args):
    """A factory of trainers; keywords of SFTConfig and of SFTTrainer may be mixed."""
    from mudarrib.sft import SFTConfig, SFTTrainer

    of_trainer = {"train_dataset", "eval_dataset", "model", "processing_class", "callbacks", "formatting_func",
                  "compute_metrics", "data_collator", "compute_loss_func", "peft_config"}  # fmt: skip

    def make(cls=SFTTrainer, **options):
        given = {name: options.pop(name) for name in of_trainer & set(options)}
        given.setdefault("model", llama())
        given.setdefault("processing_class", tokenizer())
        return cls(args=SFTConfig(**{**run_args, **options}), **given)

    return make
