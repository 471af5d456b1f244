"""Joins the workers of a cluster, once waiting.py has found all of them."""

import signal
import threading

import tensorflow as tf

from bert_tf.wording import reason

from .cluster import Cluster
from .waiting import present


def connect(cluster: Cluster, wait_minutes: float) -> tf.distribute.Strategy:
    """Joins the cluster, when all of its workers have come, for which it waits so long."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.task,
        rpc_layer="grpc",
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
    )
    print(f"Waiting for all {len(cluster.addresses)} workers.", flush=True)
    with present(cluster.addresses, cluster.task, wait_minutes):
        return _join(resolver)


def _join(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> tf.distribute.Strategy:
    # TensorFlow holds Python's lock meanwhile, so that no handler of Python's is called; and it
    # takes SIGTERM.
    is_main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, signal.SIG_DFL) for number in signals}
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except tf.errors.OpError as error:
        raise ValueError(
            f"The workers could not join each other ({reason(error, 200)}): start every worker "
            "anew, each with a --task_index (or TF_CONFIG) of its own and a port that is free."
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
