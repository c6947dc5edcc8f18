"""Processes, machines, ranks, addresses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..config import Config
from ..phrases import phrase
from .base import rule

Findings = Iterator[dict[str, Any]]


def _count(config: Config, key: str, consequence: str) -> Findings:
    value, number = config.get(key), config.number(key)
    if value is not None and (number is None or number < 1 or isinstance(value, str | float)):
        yield {
            "key": key,
            "message": phrase("{key} is {value!r}, not a whole number of at least 1", key=key, value=value),
            "consequence": consequence,
            "fix": phrase("give {number}", number=number)
            if number is not None and number >= 1
            else phrase("give a number such as 2"),
            "value": number if number is not None and number >= 1 else ...,
        }


@rule("M001")
def processes_is_a_count(config: Config) -> Findings:
    """num_processes must be a whole number of at least 1."""
    yield from _count(config, "num_processes", phrase("it is accepted, and the launch fails or starts something else."))


@rule("M002")
def machines_is_a_count(config: Config) -> Findings:
    """num_machines must be a whole number of at least 1."""
    yield from _count(config, "num_machines", phrase("it is accepted, and the launch fails or starts something else."))


@rule("M003")
def processes_missing(config: Config) -> Findings:
    """Without num_processes a distributed run takes what it finds."""
    if config.get("num_processes") is None and config.kind not in ("NO", "None"):
        yield {
            "key": "num_processes",
            "message": phrase("num_processes is missing"),
            "consequence": phrase("the number of processes depends on the machine that launches."),
            "fix": phrase("give the number of processes over all machines"),
            "stops": False,
        }


@rule("M004")
def processes_fit_machines(config: Config) -> Findings:
    """num_processes counts all machines, each with the same number."""
    processes, machines = config.number("num_processes"), config.number("num_machines")
    if processes and machines and machines > 1 and processes % machines:
        yield {
            "key": "num_processes",
            "message": phrase(
                "{processes} processes do not divide among {machines} machines", processes=processes, machines=machines
            ),
            "consequence": phrase("the machines wait for each other without a line of output."),
            "fix": phrase(
                "give a multiple of {machines}; num_processes counts all machines together", machines=machines
            ),
        }


@rule("M005")
def rank_in_range(config: Config) -> Findings:
    """machine_rank is below num_machines."""
    rank, machines = config.number("machine_rank"), config.number("num_machines") or 1
    if rank is None and config.get("machine_rank") is not None:
        rank = -1
    if rank is not None and not 0 <= rank < machines:
        yield {
            "key": "machine_rank",
            "message": phrase(
                "machine_rank is {machine_rank!r}, but there are {machines} machines",
                machine_rank=config.get("machine_rank"),
                machines=machines,
            ),
            "consequence": phrase("it is accepted; this machine never joins the others."),
            "fix": phrase("give 0 to {machines}, another one on each machine", machines=machines - 1),
            "value": 0 if machines == 1 else ...,
        }


@rule("M006")
def main_address(config: Config) -> Findings:
    """With several machines the others must reach the main one."""
    if (config.number("num_machines") or 1) < 2:
        return
    import ipaddress

    address = config.get("main_process_ip")
    unreachable = address in ("localhost", "0.0.0.0")
    with contextlib.suppress(ValueError):
        unreachable = unreachable or ipaddress.ip_address(str(address)).is_loopback
    if address is None or unreachable:
        yield {
            "key": "main_process_ip",
            "message": phrase("main_process_ip is {address!r}, which other machines cannot reach", address=address),
            "consequence": phrase("the launch waits for the other machines without a line of output."),
            "fix": phrase("give the address of the first machine in its network"),
        }


@rule("M007")
def main_port(config: Config) -> Findings:
    """The port is a number that may be used; with several machines it must be given."""
    value, port = config.get("main_process_port"), config.number("main_process_port")
    several = (config.number("num_machines") or 1) > 1
    if value is None and not several:
        return
    if port is None or not (port == 0 or 1024 <= port <= 65535) or (several and port == 0):
        yield {
            "key": "main_process_port",
            "message": phrase("main_process_port is {value!r}", value=value),
            "consequence": phrase("the processes cannot meet; with a text the launch fails after its imports."),
            "fix": phrase("give the same free port from 1024 to 65535 on every machine, such as 29500"),
            "value": 29500,
        }


@rule("M008")
def one_process_of_many(config: Config) -> Findings:
    """A distributed type with one process is no distributed run."""
    if config.kind.startswith("MULTI_") and config.number("num_processes") == 1:
        yield {
            "key": "num_processes",
            "message": phrase("{kind} with 1 process", kind=config.kind),
            "consequence": phrase("one process trains, with the cost of DDP and none of its use."),
            "fix": phrase("give the number of processes, or distributed_type: NO"),
        }


@rule("M009")
def multi_cpu_needs_mpi(config: Config) -> Findings:
    """MULTI_CPU starts one plain process unless MPI starts the others."""
    hostfile = config.get("mpirun_config.mpirun_hostfile") or config.get("mpirun_hostfile")
    if config.kind == "MULTI_CPU" and (config.number("num_processes") or 1) > 1 and not hostfile:
        yield {
            "key": "distributed_type",
            "message": phrase("MULTI_CPU without an MPI host file"),
            "consequence": phrase("one plain process starts, without a word about the others."),
            "fix": phrase(
                "set distributed_type: MULTI_GPU with use_cpu: true, which starts gloo processes on this machine"
            ),
            "value": "MULTI_GPU",
        }


@rule("M010")
def several_processes_of_no_type(config: Config) -> Findings:
    """distributed_type NO starts one process."""
    if config.kind == "NO" and (config.number("num_processes") or 1) > 1:
        yield {
            "key": "distributed_type",
            "message": phrase(
                "distributed_type NO with {num_processes} processes", num_processes=config.get("num_processes")
            ),
            "consequence": phrase("one process starts."),
            "fix": phrase("set distributed_type: MULTI_GPU, or num_processes: 1"),
            "stops": False,
        }


@rule("M011")
def gpu_ids(config: Config) -> Findings:
    """gpu_ids is `all` or as many numbers as there are processes on this machine."""
    value, processes = config.get("gpu_ids"), config.number("num_processes")
    machines = config.number("num_machines") or 1
    if value is None or value == "all" or isinstance(value, bool):
        return
    if isinstance(value, int):
        yield {
            "key": "gpu_ids",
            "message": phrase("gpu_ids is the number {value}, not a text", value=value),
            "consequence": phrase("accelerate launch stops with a traceback."),
            "fix": phrase("put it in quotes: {word}", word=f"'{value}'"),
            "value": str(value),
        }
    numbers = [part.strip() for part in str(value).split(",")]
    malformed = not all(part.isdigit() for part in numbers) or len(set(numbers)) < len(numbers)
    if malformed or (processes is not None and len(numbers) < processes // machines):
        yield {
            "key": "gpu_ids",
            "message": phrase(
                "gpu_ids is {value!r} for {processes} processes on {machines} machines",
                value=value,
                processes=processes,
                machines=machines,
            ),
            "consequence": phrase("processes share a device or find none."),
            "fix": phrase("give 'all', or one number for each process of this machine, such as '0,1'"),
        }


@rule("M012")
def port_is_free(config: Config) -> Findings:
    """The port at which the processes meet is not taken on this machine."""
    import socket

    port = config.number("main_process_port")
    if port is None or not 1024 <= port <= 65535 or config.number("machine_rank") or config.path is None:
        return
    with socket.socket() as probe:
        probe.settimeout(0.05)
        taken = probe.connect_ex(("127.0.0.1", port)) == 0
    if taken:
        yield {
            "key": "main_process_port",
            "message": phrase("port {port} is in use on this machine", port=port),
            "consequence": phrase("the processes cannot meet: the launch stops with an address already in use."),
            "fix": phrase("give another port, such as {near}, or end what uses it", near=port + 1),
            "stops": False,
        }
