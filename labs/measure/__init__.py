"""Measurements: collectives, links, throughput, utilization, memory, large batches, kills, bytes on the wire."""

from typing import TYPE_CHECKING

from labs.run import attach_lazily

if TYPE_CHECKING:
    from labs.measure import collectives, kills, large_batches, memory, network, throughput, utilization, wire
    from labs.measure.throughput import gradient_bytes
    from labs.measure.utilization import Utilization
else:
    __getattr__, __dir__, __all__ = attach_lazily(__name__, __file__)
