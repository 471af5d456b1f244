"""Creates the strategy of a cluster after all workers are connected."""

import contextlib
import signal

import tensorflow as tf
from tensorflow.python.eager import context

from bert_tf.io.wording import reason

from .cluster import Cluster
from .waiting import Partners, collected_signals

# TensorFlow checks each second whether it has received SIGTERM, and reports it to all workers.
_NOTICE, _NOTICE_MILLISECONDS = "TF_DEFAULT_PREEMPTION_NOTICE_KEY", 2000


def connect(cluster: Cluster, wait_minutes: float) -> tuple[tf.distribute.Strategy, Partners]:
    """Joins the cluster when all workers are connected; waits up to ``wait_minutes``."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.task,
        rpc_layer="grpc",
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
    )
    partners = Partners(cluster.addresses, cluster.task)
    with partners.reporting():
        with partners.connected_workers(wait_minutes):
            try:
                strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
            except tf.errors.OpError as error:
                raise ValueError(
                    f"The workers cannot connect ({reason(error, 200)}). Restart each worker with "
                    "its own --task_index (or TF_CONFIG) and an unused port."
                ) from error
        # TensorFlow's error cannot be raised while a signal handler raises another.
        with collected_signals() as received, contextlib.suppress(tf.errors.OpError):
            context.context().get_config_key_value(_NOTICE, _NOTICE_MILLISECONDS)
            received.append(signal.SIGTERM)
        if received:
            raise KeyboardInterrupt
    return strategy, partners
