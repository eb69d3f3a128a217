"""One contender in a process of its own: `python -m benchmarks.consuming.contender TASK`."""

from benchmarks.consuming import ours, raw
from benchmarks.consuming.task import Task

CONTENDERS = {
    "loop": raw.loop,
    "keyed": raw.keyed,
    "keyed_round_trips": raw.keyed_round_trips,
    "keyed_pipelined": raw.keyed_pipelined,
    "ours": ours.run,
    "flaky": ours.flaky,
    "lateness": ours.lateness,
    "memory": ours.memory,
    "member": ours.member,
}

if __name__ == "__main__":
    task = Task.from_arguments()
    CONTENDERS[task.contender](task)
