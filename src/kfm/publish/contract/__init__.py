"""Data contracts (Open Data Contract Standard 3.x) and the check of staged bytes against them."""

from __future__ import annotations

from kfm.publish.contract.geojson import bbox_of
from kfm.publish.contract.model import Contract, ContractLimits
from kfm.publish.contract.reader import load_contract
from kfm.publish.contract.table import check_rows_min, validate

__all__ = ["Contract", "ContractLimits", "bbox_of", "check_rows_min", "load_contract", "validate"]
