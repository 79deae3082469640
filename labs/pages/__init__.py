"""What the pages' cells draw and compute: drawings, plots, scaling laws, a model of large runs, the reports."""

from typing import TYPE_CHECKING

from labs.run import lazy

if TYPE_CHECKING:
    from labs.pages import (
        ages,
        at_scale,
        drawings,
        elsewhere,
        fruit_trees,
        laws,
        layouts,
        memory_limits,
        node_scaling,
        over_links,
        plots,
        reports,
        search_plots,
        slurm_queue,
        step_cost,
        subset_figures,
        transports,
        two_nodes,
    )
else:
    __getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
