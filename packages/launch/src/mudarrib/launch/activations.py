"""Bytes that a forward pass keeps for the backward pass, counted kernel by kernel.

The counts follow what autograd saves for transformers' own modules; Korthikanti et al. (arXiv 2205.05198, section 4)
count the same way for Megatron's layer. All are for one token unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from .shapes import Block, ModelShape

# Widths of the feed-forward part that an activation keeps besides its result: its input, or each step of a formula.
KEPT_BY_ACTIVATION = {"relu": 0, "gelu_new": 4, "gelu_fast": 6, "quick_gelu": 2}
FLOAT = 4


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass.

    Attributes:
        batch: Rows.
        seq_len: Tokens a row; of an encoder-decoder, of each side.
        compute: Bytes of what the matrix products take.
        stream: Bytes of the residual stream.
        mask: Bytes of a dropout's mask entry: 1 on a GPU; on a CPU those of the stream.
        flash: Attention whose scores are never stored; not on a CPU with dropout, nor with `eager`.
    """

    batch: int
    seq_len: int
    compute: int = 4
    stream: int = 4
    mask: int = 1
    flash: bool = True

    @property
    def tokens(self) -> int:
        """Tokens in the batch."""
        return self.batch * self.seq_len


@dataclass(frozen=True)
class Activations:
    """Bytes of one pass.

    Attributes:
        layers: What all layers keep.
        inputs: What they keep where each is computed anew in backward: their inputs.
        layer: What the largest layer keeps.
        feed_forward: The part of it that the feed-forward part keeps.
        layer_scratch: What its backward takes besides.
        ends: What embeddings and head keep, without what the loss keeps.
        loss: What the loss keeps.
        loss_scratch: What the loss's backward takes besides.
        logits: What the loss's forward takes besides.
    """

    layers: int
    inputs: int
    layer: int
    feed_forward: int
    layer_scratch: int
    ends: int
    loss: int
    loss_scratch: int
    logits: int


def activations(shape: ModelShape, run: Pass) -> Activations:
    """Bytes that one pass of a model keeps, and takes besides."""
    each = [of_layer(block, run) for block in shape.blocks]
    tokens = run.tokens
    kept = [block.number * size * tokens for block, size in zip(shape.blocks, each, strict=True)]
    inputs = [block.number * block.hidden * run.stream * tokens for block in shape.blocks]
    largest = max(range(len(each)), key=each.__getitem__)
    block = shape.blocks[largest]
    loss, loss_scratch, logits = of_loss(shape, run)
    return Activations(
        layers=sum(kept),
        inputs=sum(inputs),
        layer=each[largest] * tokens,
        feed_forward=of_feed_forward(block, run) * tokens,
        layer_scratch=scratch(block, run) * tokens,
        ends=of_ends(shape, run),
        loss=loss,
        loss_scratch=loss_scratch,
        logits=logits,
    )


def of_layer(block: Block, run: Pass) -> int:
    """Bytes that a layer keeps for a token."""
    normed = (FLOAT + run.stream if block.norm == "rms" else run.stream) * block.hidden
    attention = of_attention(block, run) * (2 if block.cross else 1)
    dropouts = block.dropouts * run.mask * block.hidden
    return block.norms * normed + taken(block, run) + attention + of_feed_forward(block, run) + dropouts


def taken(block: Block, run: Pass) -> int:
    """What the matrix products take of the layer's width: what the norms give.

    Products share it, and both parts of a layer with one norm do. Autocast makes a copy for each product.
    """
    products = min(block.norms, 2 + block.cross)
    if run.compute < run.stream:
        products = (1 if block.fused_qkv else 3) * (1 + block.cross) + 1 + block.gated
    return products * run.compute * block.hidden


def of_attention(block: Block, run: Pass) -> int:
    """Queries, keys, values and the result; the scores as well where no flash kernel serves."""
    queries, keys = block.query_width, block.key_width
    kept = run.compute * (2 * queries + 2 * keys)
    if block.qk_norm:
        kept += (FLOAT + run.compute) * (queries + keys)
    if run.flash and not block.scores:
        # The values are a part of what the fused product gave, and keep the whole of it.
        fused = run.compute * (queries + keys) if block.fused_qkv and block.rotary else 0
        return kept + fused + FLOAT * block.heads
    scores = block.heads * run.seq_len
    repeated = run.compute * 2 * (queries - keys)
    dropout = (run.mask + run.compute) * scores if block.attention_dropout else 0
    return kept + repeated + max(1, block.scores) * run.compute * scores + dropout


def of_feed_forward(block: Block, run: Pass) -> int:
    """What the products and the activation keep."""
    activation = KEPT_BY_ACTIVATION.get(block.activation, 1)
    widths = activation + 3 if block.gated else activation + 1
    if block.experts > 1:
        # Each expert takes its own copy of its tokens, and its result is weighted.
        return block.active_experts * run.compute * (widths * block.intermediate + 2 * block.hidden)
    return run.compute * widths * block.intermediate


def scratch(block: Block, run: Pass) -> int:
    """What the backward of the feed-forward part takes at its widest."""
    widths = 2 if block.gated or block.activation == "gelu_new" else 1
    return run.compute * widths * block.intermediate * block.active_experts + (run.stream + run.compute) * block.hidden


def of_ends(shape: ModelShape, run: Pass) -> int:
    """What embeddings and head keep, the loss aside."""
    width = shape.hidden
    kept = 8 * run.tokens + shape.embedding_norm * run.stream * width * run.tokens
    kept += shape.embedding_dropout * run.mask * width * run.tokens
    positions = run.tokens if shape.per_token else run.batch
    rms = shape.blocks[-1].norm == "rms"
    kept += shape.head_norms * (FLOAT + run.stream if rms else run.stream) * width * positions
    return kept + (1 + 3 * shape.head_dense) * run.compute * width * positions


def of_loss(shape: ModelShape, run: Pass) -> tuple[int, int, int]:
    """What the loss keeps, what its backward takes besides, and what its forward does.

    Logits are raised to float32; their log-softmax is kept; backward makes two more of that size, forward one
    (and the logits in half precision).
    """
    entries = (run.tokens if shape.per_token else run.batch) * shape.outputs
    whole = FLOAT * entries
    return whole, 2 * whole, whole + (run.compute * entries if run.compute < FLOAT else 0)
