"""The shapes of the architectures that people train, from the names in their configs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import ConfigError
from .phrases import phrase
from .shapes import Block, ModelShape, Weight, embedding, linear, norm

Values = dict[str, Any]
# Class of the layer, and where the family differs from Llama.
LLAMA_LIKE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaDecoderLayer", {}),
    "mistral": ("MistralDecoderLayer", {}),
    "qwen2": ("Qwen2DecoderLayer", {"qkv_bias": True}),
    "qwen3": ("Qwen3DecoderLayer", {"qk_norm": "head"}),
    "qwen3_moe": ("Qwen3MoeDecoderLayer", {"qk_norm": "head"}),
    "mixtral": ("MixtralDecoderLayer", {}),
    "gemma": ("GemmaDecoderLayer", {}),
    # Its scores are capped, which only attention that stores them does.
    "gemma2": ("Gemma2DecoderLayer", {"norms": 4, "scores": 2}),
    "gemma3_text": ("Gemma3DecoderLayer", {"norms": 4, "qk_norm": "head"}),
    "phi3": ("Phi3DecoderLayer", {"fused_qkv": True}),
    "olmo2": ("Olmo2DecoderLayer", {"qk_norm": "width"}),
    "granite": ("GraniteDecoderLayer", {}),
    "smollm3": ("SmolLM3DecoderLayer", {}),
    "stablelm": ("StableLmDecoderLayer", {"norm": "layer", "norm_bias": True}),
    "starcoder2": ("Starcoder2DecoderLayer", {"norm": "layer", "norm_bias": True, "gated": False}),
    "phi": ("PhiDecoderLayer", {"norm": "layer", "norm_bias": True, "gated": False, "norms": 1}),
}
TIED = ("gemma", "gemma2", "gemma3_text", "starcoder2")
BERT_LIKE = {
    "bert": "BertLayer", "roberta": "RobertaLayer", "xlm-roberta": "XLMRobertaLayer", "camembert": "CamembertLayer",
    "electra": "ElectraLayer", "distilbert": "TransformerBlock",
}  # fmt: skip
BART_LIKE = {"bart": "Bart", "mbart": "MBart", "marian": "Marian", "pegasus": "Pegasus"}


def number(values: Values, *names: str, default: int | None = None) -> int:
    """A whole number under the first of the names that is there.

    Raises:
        ConfigError: none is there and there is no default, or it is no positive whole number.
    """
    for name in names:
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(name, value, phrase("the model's config needs a whole number above 0 here"))
        return value
    if default is None:
        raise ConfigError(names[0], None, phrase("the model's config has no such key; is the file complete?"))
    return default


def dropped(values: Values, *names: str) -> bool:
    """Whether a dropout under one of the names is above zero."""
    return any(float(values.get(name) or 0) > 0 for name in names)


def architecture(values: Values, default: str) -> str:
    """The class that the config was saved from."""
    named = values.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else default


def common(values: Values) -> dict[str, Any]:
    """What every model's shape takes from its config."""
    positions = ("max_position_embeddings", "n_positions")
    return {
        "vocabulary": number(values, "vocab_size"),
        "max_positions": number(values, *positions, default=1 << 31) if any(values.get(p) for p in positions) else None,
    }


def heads(values: Values, hidden: int, *names: str) -> tuple[int, int]:
    """Heads, and the width of one.

    Raises:
        ConfigError: the width does not divide by them.
    """
    count = number(values, *names)
    width = values.get("head_dim")
    if width is None and hidden % count:
        raise ConfigError(names[0], count, phrase("the width {width} does not divide by it", width=hidden))
    return count, number(values, "head_dim", default=hidden // count)


def classifier(values: Values, name: str) -> tuple[str, int, bool]:
    """Architecture, outputs and whether every token has them, from the class's name."""
    labels = values.get("id2label")
    outputs = len(labels) if isinstance(labels, dict) and labels else int(values.get("num_labels") or 2)
    return name, 2 if "QuestionAnswering" in name else outputs, "Token" in name or "QuestionAnswering" in name


def decoder(
    values: Values, name: str, block: Block, embeddings: list[Weight], tail: list[Weight], *, tied: bool,
    head_bias: bool = False, **more: Any,
) -> ModelShape:  # fmt: skip
    """A causal language model, or a classifier on top of the same layers."""
    name = architecture(values, name)
    shared = common(values)
    if "ForCausalLM" in name or "LMHead" in name:
        outputs, per_token = shared["vocabulary"], True
        head = [] if tied else linear("head", outputs, block.hidden, head_bias)
        if tied and head_bias:
            head = [Weight("head.bias", (outputs,))]
    else:
        name, outputs, per_token = classifier(values, name)
        tied = False
        head = linear("head", outputs, block.hidden) if "For" in name else []
    return ModelShape(
        architecture=name, hidden=block.hidden, embeddings=tuple(embeddings), tail=(*tail, *head), blocks=(block,),
        outputs=outputs, per_token=per_token, tied=tied, **shared, **more,
    )  # fmt: skip


def llama_like(values: Values) -> ModelShape:
    """Llama and what grew from it."""
    kind = values["model_type"]
    layer, differences = LLAMA_LIKE[kind]
    hidden = number(values, "hidden_size")
    count, width = heads(values, hidden, "num_attention_heads")
    experts = number(values, "num_local_experts", "num_experts", default=1)
    inner = (
        number(values, "moe_intermediate_size", "intermediate_size")
        if experts > 1
        else number(values, "intermediate_size")
    )
    bias = bool(values.get("attention_bias") or values.get("use_bias") or kind == "phi")
    settings: dict[str, Any] = {
        "gated": True, "norm": "rms", "qkv_bias": bias or bool(values.get("use_qkv_bias")), "out_bias": bias,
        "mlp_bias": bool(values.get("mlp_bias") or values.get("use_bias") or kind == "phi"),
        "activation": str(values.get("hidden_act") or values.get("hidden_activation") or "silu"),
        "experts": experts, "active_experts": number(values, "num_experts_per_tok", default=1),
        "attention_dropout": dropped(values, "attention_dropout"),
        "dropouts": 2 * dropped(values, "resid_pdrop", "residual_dropout", "hidden_dropout"), **differences,
    }  # fmt: skip
    block = Block(
        layer, number(values, "num_hidden_layers"), hidden, count,
        number(values, "num_key_value_heads", default=count), width, inner, **settings,
    )  # fmt: skip
    tied = bool(values.get("tie_word_embeddings", kind in TIED))
    name = f"{layer.removesuffix('DecoderLayer')}ForCausalLM"
    table = embedding("tokens", number(values, "vocab_size"), hidden)
    return decoder(
        values, name, block, [table], norm("final_norm", hidden, block.norm_bias), tied=tied, head_bias=kind == "phi"
    )


def gpt_like(values: Values) -> ModelShape:
    """GPT-2, GPT-J, GPT-NeoX, BLOOM, OPT: layer norms and a feed-forward part without a gate."""
    kind = values["model_type"]
    hidden = number(values, "hidden_size", "n_embd")
    count, width = heads(values, hidden, "num_attention_heads", "n_head")
    bias = kind != "gptj" and bool(values.get("attention_bias", values.get("enable_bias", True)))
    block = Block(
        {"gpt2": "GPT2Block", "gptj": "GPTJBlock", "gpt_neox": "GPTNeoXLayer", "bloom": "BloomBlock",
         "opt": "OPTDecoderLayer"}[kind],
        number(values, "num_hidden_layers", "n_layer"), hidden, count, count, width,
        number(values, "intermediate_size", "n_inner", "ffn_dim", default=4 * hidden),
        norm="layer", norm_bias=True, norms=1 if kind == "gptj" else 2, gated=False,
        activation={"bloom": "gelu"}.get(kind) or str(
            values.get("activation_function") or values.get("hidden_act") or "gelu_new"
        ),
        qkv_bias=bias, out_bias=bias, mlp_bias=bool(values.get("enable_bias", True)),
        fused_qkv=kind not in ("gptj", "opt"),
        attention_dropout=dropped(values, "attn_pdrop", "attention_dropout"),
        dropouts=2 * dropped(values, "resid_pdrop", "hidden_dropout", "dropout"),
        scores=int(kind == "bloom"), rotary=kind in ("gptj", "gpt_neox"),
    )  # fmt: skip
    narrow = number(values, "word_embed_proj_dim", default=hidden)
    if narrow != hidden:
        raise ConfigError(
            "word_embed_proj_dim", narrow, phrase("no formula where it differs from hidden_size; use --simulate")
        )
    tables = [embedding("tokens", number(values, "vocab_size"), hidden)]
    if kind in ("gpt2", "opt"):
        extra = 2 if kind == "opt" else 0
        tables.append(embedding("positions", number(values, "n_positions", "max_position_embeddings") + extra, hidden))
    if kind == "bloom":
        tables += norm("embedding_norm", hidden, True)
    name = {"gpt2": "GPT2LMHeadModel", "gptj": "GPTJForCausalLM", "gpt_neox": "GPTNeoXForCausalLM",
            "bloom": "BloomForCausalLM", "opt": "OPTForCausalLM"}[kind]  # fmt: skip
    tied = bool(values.get("tie_word_embeddings", kind not in ("gptj", "gpt_neox")))
    return decoder(
        values, name, block, tables, norm("final_norm", hidden, True), tied=tied, head_bias=kind == "gptj",
        embedding_norm=kind == "bloom",
        embedding_dropout=dropped(values, "embd_pdrop") or (kind == "opt" and block.dropouts > 0),
    )  # fmt: skip


def bert_like(values: Values) -> ModelShape:
    """BERT and its kin: an encoder with a head for masked words, or for classes."""
    kind = values["model_type"]
    hidden = number(values, "hidden_size", "dim")
    count, width = heads(values, hidden, "num_attention_heads", "n_heads")
    narrow = number(values, "embedding_size", default=hidden)
    block = Block(
        BERT_LIKE[kind], number(values, "num_hidden_layers", "n_layers"), hidden, count, count, width,
        number(values, "intermediate_size", "hidden_dim"), norm="layer", norm_bias=True, gated=False,
        activation=str(values.get("hidden_act") or values.get("activation") or "gelu"),
        qkv_bias=True, out_bias=True, mlp_bias=True,
        attention_dropout=dropped(values, "attention_probs_dropout_prob", "attention_dropout"),
        dropouts=2 * dropped(values, "hidden_dropout_prob", "dropout"),
    )  # fmt: skip
    tables = [
        embedding("tokens", number(values, "vocab_size"), narrow),
        embedding("positions", number(values, "max_position_embeddings"), narrow),
    ]
    if kind != "distilbert":
        tables.append(embedding("types", number(values, "type_vocab_size"), narrow))
    tables += norm("embedding_norm", narrow, True)
    if narrow != hidden:
        tables += linear("embedding_projection", hidden, narrow, True)
    base = BERT_LIKE[kind].removesuffix("Layer") if kind != "distilbert" else "DistilBert"
    name = architecture(values, f"{base}ForSequenceClassification")
    head = bert_head(values, kind, name, hidden, narrow)
    return ModelShape(
        architecture=name, hidden=hidden, embeddings=tuple(tables), blocks=(block,), embedding_norm=True,
        embedding_dropout=block.dropouts > 0, **head, **common(values),
    )  # fmt: skip


def bert_head(values: Values, kind: str, name: str, hidden: int, narrow: int) -> dict[str, Any]:
    """What lies on top of the encoder, by the class's name."""
    vocabulary = number(values, "vocab_size")
    if "MaskedLM" in name or "PreTraining" in name:
        if kind == "electra" and "PreTraining" in name:
            tail = [*linear("dense", hidden, hidden, True), *linear("head", 1, hidden, True)]
            return {"tail": tuple(tail), "outputs": 1, "head_norms": 0, "head_dense": True}
        tail = [*linear("dense", narrow, hidden, True), *norm("head_norm", narrow, True)]
        tail.append(Weight("head.bias", (vocabulary,)))
        if kind == "bert" and "PreTraining" in name:
            tail += [*linear("pooler", hidden, hidden, True), *linear("next_sentence", 2, hidden, True)]
        return {"tail": tuple(tail), "outputs": vocabulary, "tied": True, "head_dense": True}
    _, outputs, per_token = classifier(values, name)
    # Only some heads have a dense layer of their own; BERT's pooler counts as one.
    dense = (
        linear("dense", hidden, hidden, True)
        if "Sequence" in name or "MultipleChoice" in name or "For" not in name
        else []
    )
    last = linear("head", outputs, hidden, True) if "For" in name else []
    return {
        "tail": (*dense, *last),
        "outputs": outputs,
        "per_token": per_token,
        "head_norms": 0,
        "head_dense": bool(dense),
    }


def t5(values: Values) -> ModelShape:
    """T5, mT5, Flan-T5, UL2."""
    hidden, inner = number(values, "d_model"), number(values, "d_ff")
    count, width = number(values, "num_heads"), number(values, "d_kv")
    feed = str(values.get("feed_forward_proj") or "relu")
    layers = number(values, "num_layers")
    shared: dict[str, Any] = {
        "hidden": hidden, "heads": count, "kv_heads": count, "head_dim": width, "intermediate": inner,
        "gated": feed.startswith("gated"), "activation": feed.removeprefix("gated-"), "scores": 1,
        "attention_dropout": dropped(values, "dropout_rate"), "dropouts": 2 * dropped(values, "dropout_rate"),
    }  # fmt: skip
    name = "MT5" if values["model_type"] == "mt5" else "T5"
    encoder = Block(class_name=f"{name}Block", number=layers, norms=2, **shared)
    last = number(values, "num_decoder_layers", default=layers)
    decoding = Block(class_name=f"{name}Block", number=last, norms=3, cross=True, **shared)
    buckets = number(values, "relative_attention_num_buckets", default=32)
    tables = [embedding("tokens", number(values, "vocab_size"), hidden)]
    tables += [embedding(f"{part}.positions", buckets, count) for part in ("encoder", "decoder")]
    tail = [*norm("encoder.final_norm", hidden, False), *norm("decoder.final_norm", hidden, False)]
    tied = bool(values.get("tie_word_embeddings", True))
    outputs = number(values, "vocab_size")
    if not tied:
        tail += linear("head", outputs, hidden)
    return ModelShape(
        architecture=architecture(values, f"{name}ForConditionalGeneration"), hidden=hidden, embeddings=tuple(tables),
        tail=tuple(tail), blocks=(encoder, decoding), outputs=outputs, tied=tied,
        embedding_dropout=encoder.dropouts > 0, **{**common(values), "max_positions": None},
    )  # fmt: skip


def bart_like(values: Values) -> ModelShape:
    """BART, mBART, Marian, Pegasus."""
    kind = values["model_type"]
    hidden = number(values, "d_model")
    shared: dict[str, Any] = {
        "hidden": hidden, "norm": "layer", "norm_bias": True, "gated": False, "qkv_bias": True, "out_bias": True,
        "mlp_bias": True, "activation": str(values.get("activation_function") or "gelu"),
        "attention_dropout": dropped(values, "attention_dropout"),
    }  # fmt: skip
    blocks = []
    for part, norms in (("encoder", 2), ("decoder", 3)):
        count = number(values, f"{part}_attention_heads")
        blocks.append(
            Block(
                class_name=f"{BART_LIKE[kind]}{part.title()}Layer", number=number(values, f"{part}_layers"),
                heads=count, kv_heads=count, head_dim=hidden // count,
                intermediate=number(values, f"{part}_ffn_dim"), norms=norms,
                cross=part == "decoder", dropouts=norms * dropped(values, "dropout"), **shared,
            )
        )  # fmt: skip
    outputs = number(values, "vocab_size")
    tables = [embedding("tokens", outputs, hidden)]
    tail: list[Weight] = []
    for part in ("encoder", "decoder"):
        # Marian's and Pegasus's positions are sines, which are kept as parameters that need no gradient.
        extra = 2 if kind in ("bart", "mbart") else 0
        if kind in ("bart", "mbart"):
            tables.append(embedding(f"{part}.positions", number(values, "max_position_embeddings") + extra, hidden))
            tables += norm(f"{part}.embedding_norm", hidden, True)
        if kind in ("mbart", "pegasus"):
            tail += norm(f"{part}.final_norm", hidden, True)
    name = architecture(values, "MarianMTModel" if kind == "marian" else f"{BART_LIKE[kind]}ForConditionalGeneration")
    return ModelShape(
        architecture=name, hidden=hidden, embeddings=tuple(tables), tail=tuple(tail), blocks=tuple(blocks),
        outputs=outputs, tied=True, head_norms=bool(tail), embedding_norm=kind in ("bart", "mbart"),
        embedding_dropout=blocks[0].dropouts > 0, **common(values),
    )  # fmt: skip


FAMILIES: dict[str, Callable[[Values], ModelShape]] = {
    **dict.fromkeys(LLAMA_LIKE, llama_like),
    **dict.fromkeys(("gpt2", "gptj", "gpt_neox", "bloom", "opt"), gpt_like),
    **dict.fromkeys(BERT_LIKE, bert_like),
    **dict.fromkeys(("t5", "mt5"), t5),
    **dict.fromkeys(BART_LIKE, bart_like),
}
