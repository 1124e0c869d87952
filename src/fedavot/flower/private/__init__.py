"""Differential privacy and secure aggregation with aligned weights."""
