"""Elastic training of a function, which workers fetch from the launcher; prints each worker's last weight.

    elastic_function.py PYTHON HOST:SLOTS ...
"""

import os
import sys

import horovod


def train():
    """Take three steps, and return the weight."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    weight = tf.Variable(float(hvd.rank()))

    @hvd.elastic.run
    def take_steps(state):
        while state.step < 3:
            weight.assign(hvd.allreduce(weight) + 1)
            state.step += 1
            state.commit()

    take_steps(hvd.elastic.TensorFlowState([weight], step=0))
    return float(weight)


if __name__ == "__main__":  # Horovod starts each worker from a process that imports this file.
    python, *hosts = sys.argv[1:]
    os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "300"  # A busy machine takes longer than 30 s to load TensorFlow.
    # Horovod finds the network that several hosts share.
    networks = ["lo"] if len(hosts) == 1 else None
    print("weights", horovod.run(train, num_proc=2, min_num_proc=2, network_interfaces=networks, start_timeout=300,
                                 host_discovery_script=f"printf '%s\\n' {' '.join(hosts)}", executable=python))
