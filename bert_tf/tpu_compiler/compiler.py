"""A StableHLO program through the TPU's compiler, of the packages jax and libtpu, in a process.

    python -m bert_tf.tpu_compiler.compiler PROGRAM TOPOLOGY HLO_FILE

compiles for one core of the topology, writes the compiled program as text, and prints a line of
JSON: memory, FLOPs and bytes accessed as the compiler counts them, and the seconds. It is a process
of its own because JAX, imported, may look for a TPU or take the memory of a GPU.
"""

import json
import os
import sys
import time

# What of libtpu looks for a TPU, on a machine or on the network, is told that there is none.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",  # no chip is shared
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def main(program: str, topology: str, hlo_file: str) -> None:
    """Compiles a program."""
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies

    device = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
    options = compiler.get_compile_options(
        num_replicas=1, num_partitions=1, device_assignment=np.zeros((1, 1), int)
    )
    with open(program, encoding="utf-8") as file, mlir.make_ir_context():
        # The TPU's compiler does not know what XLA's bridge makes of tf.identity.
        module = ir.Module.parse(file.read().replace("mhlo.copy", "stablehlo.optimization_barrier"))
        began = time.monotonic()
        executable = device.client.compile(module, xla_client.DeviceList((device,)), options)
        seconds = time.monotonic() - began
    memory, costs = executable.get_compiled_memory_stats(), executable.cost_analysis()
    with open(hlo_file, "w", encoding="utf-8") as file:
        file.write("\n".join(module.to_string() for module in executable.hlo_modules()))
    found = {
        "seconds": seconds,
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
        "flops": costs["flops"],
        "bytes": costs["bytes accessed"],
    }
    print(json.dumps(found), flush=True)
    os._exit(0)  # libtpu's own end fails without a TPU


if __name__ == "__main__":
    main(*sys.argv[1:])
