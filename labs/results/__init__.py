"""Recorded runs: the records and their schema, tables, and the statistics of scaling."""

from typing import TYPE_CHECKING

from labs.run import attach_lazily

if TYPE_CHECKING:
    from labs.results import cost_model, ledger, link_model, noise, records, reference, run_record, scaling, tables
    from labs.results.run_record import finish
else:
    __getattr__, __dir__, __all__ = attach_lazily(__name__, __file__)
