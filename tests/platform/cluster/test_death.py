"""What Ray's errors say of a process that died, in their own texts."""

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayError

from ebclab.cluster.death import death_in_words

PROCESS = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: x"
NODE = "The actor died because its node has died. Node Id: 1f\n\tthe actor's node was terminated unexpectedly: y"
MEMORY = "Memory on the node (IP: 10.0.0.7, ID: 1f) was 15.2GB used / 16.0GB limit (0.95)"


def _died(message: str, pid: int = 41) -> RayError:
    return ActorDiedError(
        ActorDiedErrorContext(actor_id=bytes(16), pid=pid, node_ip_address="10.0.0.7", error_message=message)
    )


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (_died(PROCESS), ("its process died (process 41 on 10.0.0.7)", "41")),
        (_died(PROCESS, pid=0), ("its process died", "")),
        (_died(NODE), ("its machine was lost (process 41 on 10.0.0.7)", "")),
        (OutOfMemoryError(f"{MEMORY}\nObject store: z"), (f"Ray ended its process, out of memory: {MEMORY}", "")),
        (ActorDiedError(), ("its process died", "")),
        (ValueError("Worker 3 is unwell"), ("", "")),
        (_died("The actor died because of an error raised in its creation task, ModuleNotFoundError: x"), ("", "")),
    ],
)
def test_a_process_that_died_is_told_with_what_ray_knows(error: Exception, told: tuple[str, str]) -> None:
    assert death_in_words(str(error)) == told
