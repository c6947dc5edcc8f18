"""The shape of a model, as far as its memory depends on it: weights, layers, what a layer computes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Weight:
    """A parameter: what it belongs to, and its shape.

    Attributes:
        name: Its role, such as `query` or `norm.bias`.
        shape: As torch has it.
        kind: `linear` (a matrix that low-rank optimizers take), `embedding`, or `other`.
    """

    name: str
    shape: tuple[int, ...]
    kind: str = "other"

    @property
    def count(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


def linear(name: str, outputs: int, inputs: int, bias: bool = False) -> list[Weight]:
    """A linear layer's parameters."""
    return [Weight(name, (outputs, inputs), "linear"), *([Weight(f"{name}.bias", (outputs,))] if bias else [])]


def norm(name: str, width: int, bias: bool) -> list[Weight]:
    """A norm's parameters: scale, and shift where it has one."""
    return [Weight(name, (width,)), *([Weight(f"{name}.bias", (width,))] if bias else [])]


def embedding(name: str, rows: int, width: int) -> Weight:
    """A table of vectors."""
    return Weight(name, (rows, width), "embedding")


@dataclass(frozen=True)
class Block:
    """Equal layers in a row.

    Attributes:
        class_name: The layer's class in transformers; what FSDP wraps.
        number: How many there are.
        hidden, heads, kv_heads, head_dim, intermediate: Widths.
        norm: `rms` (computed in float32 by hand) or `layer` (one kernel).
        norms: Norms of the layer's width.
        norm_bias: The norms shift as well.
        gated: The feed-forward part has a gate (SwiGLU and its like).
        activation: Its name in transformers.
        qkv_bias, out_bias, mlp_bias: Which linear layers have a bias.
        fused_qkv: One matrix makes queries, keys and values.
        rotary: Queries and keys are turned by their positions, which makes new ones.
        qk_norm: `head` (a norm over each head), `width` (over all heads), or nothing.
        cross: There is a second attention, over an encoder's output.
        experts, active_experts: Feed-forward parts, and how many of them a token goes through; 1 without experts.
        attention_dropout: Attention weights are dropped.
        dropouts: Dropouts of the layer's width on the way.
        scores: Tensors of the scores' size that attention keeps for want of a flash kernel: with a learned bias one,
            with a cap two; 0 where a flash kernel serves.
    """

    class_name: str
    number: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    norm: str = "rms"
    norms: int = 2
    norm_bias: bool = False
    gated: bool = True
    activation: str = "silu"
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    fused_qkv: bool = False
    rotary: bool = True
    qk_norm: str = ""
    cross: bool = False
    experts: int = 1
    active_experts: int = 1
    attention_dropout: bool = False
    dropouts: int = 0
    scores: int = 0

    @property
    def query_width(self) -> int:
        """Width of all heads' queries."""
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Width of all heads' keys, or values."""
        return self.kv_heads * self.head_dim

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The parameters of one layer."""
        found = [weight for at in range(self.norms) for weight in norm(f"norm{at}", self.hidden, self.norm_bias)]
        for name in ("attention", "cross_attention")[: 1 + self.cross]:
            found += self._attention(name)
        found += self._feed_forward()
        return tuple(found)

    @property
    def count(self) -> int:
        """Number of entries of one layer."""
        return total(self.weights)

    def _attention(self, name: str) -> list[Weight]:
        queries, keys = self.query_width, self.key_width
        if self.fused_qkv:
            found = linear(f"{name}.qkv", queries + 2 * keys, self.hidden, self.qkv_bias)
        else:
            found = linear(f"{name}.query", queries, self.hidden, self.qkv_bias)
            for part in ("key", "value"):
                found += linear(f"{name}.{part}", keys, self.hidden, self.qkv_bias)
        if self.qk_norm:
            of_head = self.qk_norm == "head"
            found += norm(f"{name}.query_norm", self.head_dim if of_head else queries, False)
            found += norm(f"{name}.key_norm", self.head_dim if of_head else keys, False)
        return found + linear(f"{name}.out", self.hidden, queries, self.out_bias)

    def _feed_forward(self) -> list[Weight]:
        inner = self.intermediate
        if self.experts > 1:
            up = Weight("experts.gate_up", (self.experts, 2 * inner, self.hidden))
            down = Weight("experts.down", (self.experts, self.hidden, inner))
            return [*linear("router", self.experts, self.hidden), up, down]
        found = linear("gate", inner, self.hidden, self.mlp_bias) if self.gated else []
        found += linear("up", inner, self.hidden, self.mlp_bias)
        return found + linear("down", self.hidden, inner, self.mlp_bias)


@dataclass(frozen=True)
class ModelShape:
    """A whole model.

    Attributes:
        architecture: The class in transformers, such as `LlamaForCausalLM`.
        hidden: Width of the residual stream at the head.
        vocabulary: Rows of the token embedding.
        max_positions: The longest sequence, or None where nothing limits it.
        embeddings: What lies before the layers.
        tail: What lies behind them: final norm and head; a tied head is not repeated.
        blocks: The layers, of one kind or (encoder and decoder) two.
        outputs: Width of what the head gives for each token, or for each row of a classifier.
        per_token: The head works on every token; otherwise on one position of a row.
        tied: The head uses the token embedding's matrix.
        head_norms: Norms of the hidden width in `tail`.
        head_dense: The head has a dense layer and an activation before its last matrix.
        embedding_norm: The embeddings' sum is normed.
        embedding_dropout: and dropped.
    """

    architecture: str
    hidden: int
    vocabulary: int
    max_positions: int | None
    embeddings: tuple[Weight, ...]
    tail: tuple[Weight, ...]
    blocks: tuple[Block, ...]
    outputs: int
    per_token: bool = True
    tied: bool = False
    head_norms: int = 1
    head_dense: bool = False
    embedding_norm: bool = False
    embedding_dropout: bool = False

    @property
    def weights(self) -> tuple[tuple[Weight, int], ...]:
        """Each parameter with how often it occurs."""
        layers = [(weight, block.number) for block in self.blocks for weight in block.weights]
        return (*((weight, 1) for weight in (*self.embeddings, *self.tail)), *layers)

    @property
    def count(self) -> int:
        """Number of entries of all parameters."""
        return sum(weight.count * times for weight, times in self.weights)

    @property
    def largest_layer(self) -> int:
        """Number of entries of the largest layer."""
        return max(block.count for block in self.blocks)

    @property
    def layer_classes(self) -> str:
        """The classes that FSDP wraps, joined by commas."""
        return ",".join(dict.fromkeys(block.class_name for block in self.blocks))


def total(weights: Iterable[Weight]) -> int:
    """Number of entries of several parameters."""
    return sum(weight.count for weight in weights)
