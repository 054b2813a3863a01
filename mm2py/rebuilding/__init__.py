"""Rebuilds the ledger of records that were copied before mm2py kept one, by comparing both logs."""
