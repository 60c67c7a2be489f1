"""A Ray cluster for tests, in a process of its own: a head without CPUs, nodes without its disk.

python ray_nodes.py HIDDEN N: every node has a mount namespace of its own, in which the directory
HIDDEN is empty and HIDDEN/scratch its own ($GSF_SCRATCH). Prints the address and whether that was
permitted; then `kill I` kills node I with -9, `add` adds one, and the end of input ends all.
"""

import contextlib
import ctypes
import os
import shutil
import sys
import tempfile

# Beside other tests nice processes would starve. Ray reads these once.
os.environ |= {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}

from ray._private.utils import get_ray_address_file
from ray.cluster_utils import Cluster

NEW_MOUNTS, NEW_FS, PRIVATE = 0x20000, 0x200, (1 << 18) | (1 << 14)
MEMORY = 80 << 20


def main(hidden: str, n_nodes: int) -> None:
    temporary = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # names of sockets must be short
    # Ray notes its address in its own default place, which a fresh machine does not have.
    os.makedirs(os.path.dirname(get_ray_address_file(None)), exist_ok=True)
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": MEMORY}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "temp_dir": temporary})
    nodes, apart = [], _unshare(hidden, probe=True)

    def add() -> None:
        scratch = f"{hidden}/scratch" if apart else f"{hidden}-{len(nodes)}"
        with _hidden(hidden) if apart else contextlib.nullcontext():
            nodes.append(
                cluster.add_node(
                    num_cpus=1, object_store_memory=MEMORY, env_vars={"GSF_SCRATCH": scratch}
                )
            )

    for _ in range(n_nodes):
        add()
    print(cluster.address, apart, flush=True)
    for line in sys.stdin:
        command, *number = line.split()
        if command == "kill":
            cluster.remove_node(nodes[int(number[0])], allow_graceful=False)
        else:
            add()
        print("done", flush=True)
    cluster.shutdown()
    shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _hidden(directory: str):
    before = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    assert _unshare(directory)
    yield
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(NEW_FS) == 0  # threads that were started since share it
    assert libc.setns(before, 0) == 0
    os.close(before)


def _unshare(directory: str, probe: bool = False) -> bool:
    """Gives this process, or to see whether it may a child, mounts of its own."""
    if probe:
        if (child := os.fork()) == 0:
            os._exit(0 if _unshare(directory) else 1)
        return os.waitpid(child, 0)[1] == 0
    libc = ctypes.CDLL(None, use_errno=True)
    return (
        libc.unshare(NEW_MOUNTS) == 0
        and libc.mount(b"none", b"/", None, PRIVATE, None) == 0
        and libc.mount(b"tmpfs", directory.encode(), b"tmpfs", 0, None) == 0
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
