"""Bytes per process by formula: weights, gradients, optimizer states, activations and buffers at the peak of a step.

A step has four moments that can be its peak: the loss (all activations are there), the backward of the last layer, the
end of backward (all gradients are there), and the optimizer's step. The peak is the greatest of them. ZeRO's shares are
those of Rajbhandari et al. (arXiv 1910.02054, section 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from .activations import Activations, Pass, activations
from .phrases import later
from .shapes import ModelShape, total
from .states import FLOAT, Optimizer, optimizer_named, state_bytes

PARTS = (later("weights"), later("gradients"), later("states"), later("activations"), later("buffers"))
# The moments of a step.
LOSS, FORWARD, HEAD = later("loss"), later("end of forward"), later("backward of the head")
LAST, LAST_DONE = later("backward of the last layer"), later("end of the last layer's backward")
BACKWARD, STEP = later("end of backward"), later("optimizer's step")
# DeepSpeed's defaults, in entries: a bucket of gradients, and the parameters that stay gathered in stage 3.
BUCKET, LIVE = 500_000_000, 1_000_000_000


@dataclass(frozen=True)
class Work:
    """What is trained, and how.

    Attributes:
        batch: Rows for each process and forward pass.
        seq_len: Tokens a row.
        optimizer: Its name in TrainingArguments.
        rank: Of low-rank optimizers.
        dtype: What the weights are held in: float32, bfloat16 or float16.
        mixed_precision: no, bf16 or fp16, as in the config.
        accumulation: Forward passes for each step of the optimizer.
        eager_attention: Attention scores are stored.
        on_cpu: Trained on CPUs: AdamW steps parameter by parameter, and dropout keeps attention scores.
    """

    batch: int = 1
    seq_len: int = 1024
    optimizer: str = "adamw"
    rank: int = 128
    dtype: str = "float32"
    mixed_precision: str = "no"
    accumulation: int = 1
    eager_attention: bool = False
    on_cpu: bool = False

    @property
    def entry(self) -> int:
        """Bytes of an entry of the weights."""
        return 4 if self.dtype == "float32" else 2

    @property
    def half(self) -> int:
        """Bytes of an entry in the precision of computing."""
        return self.entry if self.mixed_precision == "no" else 2


@dataclass(frozen=True)
class Setup:
    """How training is laid over the processes.

    Attributes:
        name: For people.
        engine: ddp, fsdp1, fsdp2 or deepspeed.
        shards: What is split: nothing, states, gradients (and states), or all (weights as well).
        processes: Over how many processes it is split.
        world: How many processes there are in all.
        checkpointing: Activations are computed anew in backward.
        offload: What waits in the CPU's memory: nothing, states (and gradients), or all.
    """

    name: str
    engine: str
    shards: str
    processes: int
    world: int
    checkpointing: bool = False
    offload: str = "nothing"


@dataclass(frozen=True)
class Memory:
    """Bytes of one process at its peak.

    Attributes:
        weights: Parameters, as held between steps.
        gradients: At the peak.
        states: The optimizer's, and float32 copies of the weights where DeepSpeed keeps them.
        activations: What forward keeps for backward.
        buffers: Gathered parameters, buckets of gradients, temporaries.
        host: In the CPU's memory, by offloading.
        moment: When the peak comes.
    """

    weights: int
    gradients: int
    states: int
    activations: int
    buffers: int
    host: int = 0
    moment: str = ""

    @property
    def total(self) -> int:
        """Bytes on the device."""
        return self.weights + self.gradients + self.states + self.activations + self.buffers

    @property
    def parts(self) -> dict[str, int]:
        """The five parts on the device, by name."""
        return {name: size for name, size in asdict(self).items() if name in PARTS}


@dataclass(frozen=True)
class Moment:
    """What a moment of the step adds to weights and states."""

    name: str
    gradients: float = 0
    activations: float = 0
    buffers: float = 0


@dataclass(frozen=True)
class Sizes:
    """What the formulas of all engines are made of: numbers of entries, bytes of activations."""

    shape: ModelShape
    work: Work
    setup: Setup
    kept: Activations
    optimizer: Optimizer
    all: int = field(init=False)
    layer: int = field(init=False)
    tail: int = field(init=False)
    tables: int = field(init=False)
    largest: int = field(init=False)

    def __post_init__(self) -> None:
        shape = self.shape
        counts = {
            "all": shape.count,
            "layer": shape.largest_layer,
            # A tied embedding lies in the head's unit.
            "tail": total(shape.tail) + (total(shape.embeddings) if shape.tied else 0),
            "tables": 0 if shape.tied else total(shape.embeddings),
            "largest": max(weight.count for weight, _ in shape.weights),
        }
        for name, count in counts.items():
            object.__setattr__(self, name, count)

    @property
    def layers_kept(self) -> int:
        """Activations of the layers, when the last one starts its backward."""
        return self.kept.inputs + self.kept.layer if self.setup.checkpointing else self.kept.layers

    @property
    def at_loss(self) -> int:
        """Activations when the loss is there."""
        layers = self.kept.inputs if self.setup.checkpointing else self.kept.layers
        return layers + self.kept.ends + self.kept.loss

    @property
    def states(self) -> int:
        """Bytes of all states of the whole model."""
        return state_bytes(self.shape, self.work.optimizer, self.work.entry, self.work.rank)

    def scratch(self, entries: float) -> float:
        """What a step of the optimizer takes besides, for that many entries."""
        if self.work.on_cpu and self.optimizer.state(self.shape.embeddings[0], 4, 1):
            return 2 * self.work.entry * self.largest / max(1, self.all / max(entries, 1))
        return self.optimizer.scratch * entries


def memory_of(shape: ModelShape, work: Work, setup: Setup) -> Memory:
    """Bytes of one process at the peak of a step.

    Args:
        shape: The model.
        work: What is trained, and how.
        setup: How it is laid over the processes.

    Raises:
        ConfigError: the optimizer is unknown.
    """
    # Under FSDP and DeepSpeed the gathered weights themselves are in half precision; with autocast the stream is not.
    stream = work.entry if setup.engine == "ddp" else work.half
    run = Pass(
        batch=work.batch,
        seq_len=work.seq_len,
        compute=work.half,
        stream=stream,
        mask=stream if work.on_cpu else 1,
        flash=not work.eager_attention and not (work.on_cpu and any(b.attention_dropout for b in shape.blocks)),
    )
    sizes = Sizes(shape, work, setup, activations(shape, run), optimizer_named(work.optimizer))
    return ENGINES[setup.engine](sizes)


def peak(weights: float, states: float, moments: list[Moment], host: float = 0) -> Memory:
    """The memory at the moment that takes most."""
    most = max(moments, key=lambda moment: moment.gradients + moment.activations + moment.buffers)
    parts = (weights, most.gradients, states, most.activations, most.buffers)
    return Memory(**dict(zip(PARTS, map(round, parts), strict=True)), host=round(host), moment=most.name)


def ddp(sizes: Sizes) -> Memory:
    """Every process holds everything; the reducer's buckets are a second copy of the gradients."""
    work, kept = sizes.work, sizes.kept
    weights = sizes.all * work.entry
    buckets = weights if sizes.setup.world > 1 else 0
    # Autocast's copies of the matrices in half precision live until their layer's backward.
    casts = 2 * (sizes.all - sizes.tables) if work.half < work.entry else 0
    casts_of_layer = 2 * sizes.layer if sizes.setup.checkpointing and casts else casts
    gradients = sizes.largest * work.entry if sizes.optimizer.in_backward else weights
    before = gradients if work.accumulation > 1 else 0
    head = min(gradients, max(before, sizes.tail * work.entry))
    tail_gone = sizes.layers_kept + kept.ends / 2
    moments = [
        Moment(LOSS, before, sizes.at_loss, buckets + kept.loss_scratch + (0 if sizes.setup.checkpointing else casts)),
        Moment(LAST, head, tail_gone, buckets + kept.layer_scratch + casts_of_layer),
        Moment(BACKWARD, gradients, sizes.kept.layer if sizes.setup.checkpointing else 0, buckets),
        Moment(STEP, gradients, 0, buckets + sizes.scratch(sizes.all)),
    ]
    return peak(weights, sizes.states, moments)


def fsdp(sizes: Sizes) -> Memory:
    """Weights, gradients and states are split; each layer is gathered when its turn comes.

    Gathering takes a layer twice: the buffer and the parameters copied out of it, or the next layer's buffer.
    """
    work, kept, setup = sizes.work, sizes.kept, sizes.setup
    share = 1 / setup.processes
    weights, gradients = sizes.all * work.entry * share, sizes.all * work.entry * share
    whole = sizes.states if sizes.optimizer.whole_matrices else sizes.states * share
    layer, tail, tables = (count * work.half for count in (sizes.layer, sizes.tail, sizes.tables))
    keeps = setup.shards == "gradients"
    gathered = sizes.all * work.half if keeps else tail
    if sizes.optimizer.in_backward:
        gradients = min(gradients, sizes.largest * work.entry * share)
    before = gradients if work.accumulation > 1 else 0
    loss = Moment(LOSS, before, sizes.at_loss, gathered + kept.loss_scratch)
    forward = Moment(FORWARD, before, sizes.at_loss, gathered + max(layer, tail) + kept.logits)
    # The head's gradients are reduced while the last layer is gathered.
    reducing = sizes.layers_kept + kept.ends / 2
    in_layers = gathered if keeps else tail if sizes.shape.tied else 0
    moments = [
        loss,
        forward,
        Moment(HEAD, before, reducing, gathered + 2 * tail + (0 if keeps else layer)),
        Moment(
            LAST,
            max(before, sizes.tail * work.entry * share),
            reducing,
            in_layers + (0 if keeps else 2 * layer) + kept.layer_scratch + layer / 2,
        ),
        Moment(
            LAST_DONE,
            max(before, sizes.tail * work.entry * share),
            reducing - kept.layer,
            in_layers + (layer if not keeps else 0) + 2 * layer,
        ),
        # The last unit is gathered, its gradients are there and are reduced; so is what the first layer sent.
        Moment(BACKWARD, gradients, 0, (tail if sizes.shape.tied else tables) * 3 + layer),
        Moment(STEP, gradients, 0, sizes.scratch(sizes.all * share)),
    ]
    if setup.offload == "all":
        host = weights + whole + gradients
        moments = [replace(moment, gradients=0, buffers=moment.buffers + layer * share) for moment in moments[:-1]]
        return peak(0, 0, moments, host)
    return peak(weights, whole, moments)


def deepspeed(sizes: Sizes) -> Memory:
    """ZeRO: a float32 copy of the weights beside the optimizer's states; buckets by DeepSpeed's defaults."""
    work, kept, setup = sizes.work, sizes.kept, sizes.setup
    share, half = 1 / setup.processes, sizes.work.half
    weights = sizes.all * half * (share if setup.shards == "all" else 1)
    gradients = sizes.all * half * (1 if setup.shards == "states" else share)
    states = (FLOAT * sizes.all + state_bytes(sizes.shape, work.optimizer, FLOAT, work.rank)) * share
    bucket = min(BUCKET, sizes.all) * half
    if setup.shards == "all":
        # Communication overlaps in stage 3, with two buckets in turn, and what was gathered stays a while.
        bucket = 2 * bucket + min(LIVE, sizes.all) * half
    before = gradients if work.accumulation > 1 or setup.shards != "all" else 0
    moments = [
        Moment(LOSS, before, sizes.at_loss, bucket + kept.loss_scratch),
        Moment(LAST, gradients, sizes.layers_kept, bucket + kept.layer_scratch),
        Moment(STEP, gradients, 0, bucket + (0 if setup.shards == "all" else bucket)),
    ]
    host = 0.0
    if setup.offload != "nothing":
        # The gradients' share goes to the CPU in float32, bucket by bucket.
        host = states + FLOAT * sizes.all * share
        moments = [replace(moment, gradients=0) for moment in moments[:2]]
        states = 0
    if setup.offload == "all":
        host, weights = host + weights, 0
    return peak(weights, states, moments, host)


ENGINES: dict[str, Callable[[Sizes], Memory]] = {"ddp": ddp, "fsdp1": fsdp, "fsdp2": fsdp, "deepspeed": deepspeed}
